"""The name of an array that appears in many signatures."""

from typing import TypeAlias

from jaxtyping import Array, Float

Time: TypeAlias = float | Float[Array, ""]
