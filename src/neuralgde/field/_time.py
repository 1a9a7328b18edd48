"""Time as a feature of every node."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._types import Time
from ..graph import Graph
from ._protocol import Breakpoints, Field, breakpoints_of, prepare_graph


class WithTime(eqx.Module):
    """field(t, (z, t), graph): t is the last of the features that the inner field takes, which maps d + 1 -> d."""

    field: Field

    @property
    def breakpoints(self) -> Breakpoints:
        return breakpoints_of(self.field)

    def prepare(self, graph: Graph) -> Graph:
        """The graph as the inner field wants it."""
        return prepare_graph(self.field, graph)

    def __call__(self, t: Time, z: Float[Array, "nodes in"], graph: Graph) -> Float[Array, "nodes out"]:
        column = jnp.broadcast_to(jnp.asarray(t, z.dtype), (z.shape[0], 1))
        return self.field(t, jnp.concatenate([z, column], axis=1), graph)
