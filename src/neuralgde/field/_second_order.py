"""Second-order dynamics: the field gives an acceleration."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._errors import InputError
from .._types import Time
from ..graph import Graph
from ._checks import split_halves
from ._protocol import Breakpoints, Field, breakpoints_of, prepare_graph


class SecondOrder(eqx.Module):
    """z = (x, v) side by side, 2 d features: dx/dt = v and dv/dt = field(t, z, graph), which maps 2 d -> d."""

    field: Field

    @property
    def breakpoints(self) -> Breakpoints:
        return breakpoints_of(self.field)

    def prepare(self, graph: Graph) -> Graph:
        """The graph as the inner field wants it."""
        return prepare_graph(self.field, graph)

    def __call__(self, t: Time, z: Float[Array, "nodes features"], graph: Graph) -> Float[Array, "nodes features"]:
        _, v = split_halves(z, "SecondOrder", "positions and velocities")
        dv = self.field(t, z, graph)
        if dv.shape != v.shape:
            raise InputError(
                f"field: SecondOrder expects one that maps {z.shape[1]} features to {v.shape[1]}, the acceleration; "
                f"this one gave shape {dv.shape}. Set the last of its widths to {v.shape[1]}."
            )
        return jnp.concatenate([v, dv], axis=1)
