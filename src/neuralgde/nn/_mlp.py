"""A multilayer perceptron on each node: the layer that sees no edges."""

from collections.abc import Callable

import equinox as eqx
import jax
from jaxtyping import Array, Float, PRNGKeyArray

from ..graph import Graph


class NodeMLP(eqx.Module):
    """The same MLP on every row of z, with `depth` hidden layers of size `width`."""

    mlp: eqx.nn.MLP

    def __init__(
        self,
        in_size: int,
        out_size: int,
        width: int,
        depth: int,
        *,
        activation: Callable[[Array], Array] = jax.nn.relu,
        key: PRNGKeyArray,
    ):
        self.mlp = eqx.nn.MLP(in_size, out_size, width, depth, activation=activation, key=key)

    def prepare(self, graph: Graph) -> Graph:
        """The graph as it is: it is not used."""
        return graph

    def __call__(self, z: Float[Array, "nodes in"], graph: Graph | None = None) -> Float[Array, "nodes out"]:
        del graph
        return jax.vmap(self.mlp)(z)
