"""Names for the arrays that appear in many signatures."""

from typing import TypeAlias

from jaxtyping import Array, Float, PRNGKeyArray

NodeState: TypeAlias = Float[Array, "nodes features"]
Time: TypeAlias = float | Float[Array, ""]
Times: TypeAlias = Float[Array, "times"]
Key: TypeAlias = PRNGKeyArray
