"""What a vector field is, and what an integrator may ask of one besides its value."""

from collections.abc import Callable
from typing import TypeAlias

import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float

from .._types import Time
from ..graph import Graph

# field(t, z, graph) -> dz/dt, z of shape (nodes, features): any function of this shape is a field. Modules may add
# `prepare(graph)`, which makes once what every evaluation needs, and `breakpoints`, the times where they jump or kink.
Field: TypeAlias = Callable[[Time, Array, Graph], Array]
Breakpoints: TypeAlias = Float[np.ndarray, " _"] | Float[Array, " _"] | None


def prepare_graph(field: Callable, graph: Graph) -> Graph:
    """The graph as `field` wants it for many evaluations; as it came where the field asks for nothing."""
    prepare = getattr(field, "prepare", None)
    return graph if prepare is None else prepare(graph)


def breakpoints_of(field: Callable) -> Breakpoints:
    """The times, ascending, where `field` is not smooth in t, or None where it names none.

    Cast them to the dtype that the integrator keeps time in: a field does the same before it compares.
    """
    return merge_breakpoints(getattr(field, "breakpoints", None))


def merge_breakpoints(*times: Breakpoints) -> Breakpoints:
    """All of the given times, ascending."""
    found = [t for t in times if t is not None]
    traced = [t for t in found if isinstance(t, Tracer)]
    if traced:
        return jnp.sort(jnp.concatenate([jnp.asarray(t, traced[0].dtype) for t in found]))
    merged = np.unique(np.concatenate([np.zeros(0), *(np.asarray(t, float) for t in found)]))
    return merged if merged.size else None
