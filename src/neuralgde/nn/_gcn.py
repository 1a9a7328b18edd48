"""Graph convolution (Kipf and Welling 2017)."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from ..graph import Graph
from ._bias import add_bias
from ._init import glorot
from ._paths import SELF, Operators, along_paths, as_paths, mixed, prepare_paths


class GCN(eqx.Module):
    """z -> L z W + b, with L = D^-1/2 (A + I) D^-1/2 unless another operator is named.

    With several operators, ("self", "gcn"), products stand side by side and the weight has a block of rows for each:
    "self" is z itself.
    """

    weight: Float[Array, "paths_in out"]
    bias: Float[Array, " out"] | None
    operator: Operators = eqx.field(static=True)

    def __init__(
        self, in_size: int, out_size: int, *, operator: Operators = "gcn", use_bias: bool = True, key: PRNGKeyArray
    ):
        self.weight = glorot(key, (len(as_paths(operator)) * in_size, out_size))
        self.bias = jnp.zeros(out_size) if use_bias else None
        self.operator = operator

    @property
    def in_size(self) -> int:
        return self.weight.shape[0] // len(as_paths(self.operator))

    def prepare(self, graph: Graph) -> Graph:
        """The graph with the operator this layer needs: pass it to calls in a loop."""
        return prepare_paths(self.operator, graph)

    def __call__(self, z: Float[Array, "nodes in"], graph: Graph) -> Float[Array, "nodes out"]:
        if isinstance(self.operator, str) and self.operator != SELF:
            out = graph.operator(self.operator).linear(z, self.weight)
        else:
            out = mixed(along_paths(self.operator, z, graph), self.weight)
        return add_bias(out, self.bias)
