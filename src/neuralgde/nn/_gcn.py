"""Graph convolution (Kipf and Welling 2017)."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from ..graph import Graph
from ._init import glorot


class GCN(eqx.Module):
    """z -> L z W + b, with L = D^-1/2 (A + I) D^-1/2 unless another operator is named."""

    weight: Float[Array, "in out"]
    bias: Float[Array, " out"] | None
    operator: str = eqx.field(static=True)

    def __init__(self, in_size: int, out_size: int, *, operator: str = "gcn", use_bias: bool = True, key: PRNGKeyArray):
        self.weight = glorot(key, (in_size, out_size))
        self.bias = jnp.zeros(out_size) if use_bias else None
        self.operator = operator

    def prepare(self, graph: Graph) -> Graph:
        """The graph with the operator this layer needs: pass it to calls in a loop."""
        return graph.prepare(self.operator)

    def __call__(self, z: Float[Array, "nodes in"], graph: Graph) -> Float[Array, "nodes out"]:
        op = graph.operator(self.operator)
        in_size, out_size = self.weight.shape
        # L (z W) = (L z) W: the graph product runs over the fewer features.
        out = (op @ z) @ self.weight if in_size < out_size else op @ (z @ self.weight)
        return out if self.bias is None else out + self.bias
