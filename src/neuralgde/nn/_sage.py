"""GraphSAGE with the mean of neighbours (Hamilton et al. 2017)."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from ..graph import Graph
from ._init import glorot


class GraphSAGE(eqx.Module):
    """z -> M z W_neighbours + z W_self + b, M the mean over incoming edges; edge weights are ignored."""

    weight_neighbours: Float[Array, "in out"]
    weight_self: Float[Array, "in out"]
    bias: Float[Array, " out"]

    def __init__(self, in_size: int, out_size: int, *, key: PRNGKeyArray):
        k_neighbours, k_self = jax.random.split(key)
        self.weight_neighbours = glorot(k_neighbours, (in_size, out_size))
        self.weight_self = glorot(k_self, (in_size, out_size))
        self.bias = jnp.zeros(out_size)

    def prepare(self, graph: Graph) -> Graph:
        """The graph with the operator this layer needs: pass it to calls in a loop."""
        return graph.prepare("unweighted_random_walk")

    def __call__(self, z: Float[Array, "nodes in"], graph: Graph) -> Float[Array, "nodes out"]:
        mean = graph.operator("unweighted_random_walk")
        in_size, out_size = self.weight_self.shape
        if in_size < out_size:
            return (mean @ z) @ self.weight_neighbours + z @ self.weight_self + self.bias
        return mean @ (z @ self.weight_neighbours) + z @ self.weight_self + self.bias
