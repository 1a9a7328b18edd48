"""Gated recurrent cell on each node (Cho et al. 2014): the cell that sees no edges."""

import equinox as eqx
import jax
from jaxtyping import Array, Float, PRNGKeyArray

from ..graph import Graph


class GRU(eqx.Module):
    """The same GRU cell on every node: `cell(x, z)` gives the state after the input x."""

    cell: eqx.nn.GRUCell

    def __init__(self, in_size: int, hidden: int, *, use_bias: bool = True, key: PRNGKeyArray):
        self.cell = eqx.nn.GRUCell(in_size, hidden, use_bias=use_bias, key=key)

    def prepare(self, graph: Graph) -> Graph:
        """The graph as it is: it is not used."""
        return graph

    def __call__(
        self, x: Float[Array, "nodes in"], z: Float[Array, "nodes hidden"], graph: Graph | None = None
    ) -> Float[Array, "nodes hidden"]:
        del graph
        return jax.vmap(self.cell)(x, z)
