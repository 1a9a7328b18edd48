"""Graph isomorphism network (Xu et al. 2019)."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from ..graph import Graph
from ._mlp import NodeMLP


class GIN(eqx.Module):
    """z -> MLP((1 + eps) z + sum over incoming edges of z_u); edge weights are ignored.

    The MLP has one hidden layer of size `width`. `eps` stays as given unless `learn_eps=True`.
    """

    mlp: NodeMLP
    eps: Float[Array, ""] | float

    def __init__(
        self,
        in_size: int,
        out_size: int,
        width: int,
        *,
        eps: float = 0.0,
        learn_eps: bool = False,
        activation: Callable[[Array], Array] = jax.nn.relu,
        key: PRNGKeyArray,
    ):
        self.mlp = NodeMLP(in_size, out_size, width, 1, activation=activation, key=key)
        # A Python number is no array, so no optimiser touches it.
        self.eps = jnp.asarray(eps, float) if learn_eps else eps

    def prepare(self, graph: Graph) -> Graph:
        """The graph with the operator this layer needs: pass it to calls in a loop."""
        return graph.prepare("unweighted_adjacency")

    def __call__(self, z: Float[Array, "nodes in"], graph: Graph) -> Float[Array, "nodes out"]:
        return self.mlp((1 + self.eps) * z + graph.operator("unweighted_adjacency") @ z)
