"""A batch on its way from one jump to the next: where each sample starts, how far it goes, how fast its state moves."""

from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..graph import Graph


class Span(NamedTuple):
    """What an interval needs besides the state: the flow, the graph, and where each sample starts and how far it goes.

    The graph is one for all samples or has a leading axis of them. States have the axis of samples where products with
    the graph want it: second where they share one graph, so that samples are features of one product, else first.
    """

    flow: Callable
    graph: Graph
    start: Float[Array, " batch"]
    length: Float[Array, " batch"]


def sample_axis(graph: Graph) -> int:
    return 0 if graph.senders.ndim == 2 else 1


def per_sample(f: Callable, graph: Graph, *axes: int) -> Callable:
    """f(…, graph) over samples; `axes` says where each of the other arguments has them."""
    shared = graph.senders.ndim == 1
    return eqx.filter_vmap(f, in_axes=(*axes, None if shared else 0), out_axes=sample_axis(graph))


def over_states(values: Array, graph: Graph) -> Array:
    """One value for each sample, lined up with states."""
    return values[None, :, None] if sample_axis(graph) else values[:, None, None]


def present(graph: Graph) -> Array:
    """The nodes that are there, lined up with states."""
    return graph.node_mask[..., None] if graph.senders.ndim == 2 else graph.node_mask[:, None, None]


# `jit` for the sake of its cache: traced once for all the stages that call it.
@eqx.filter_jit
def rate(s: Array, z: Array, span: Span) -> Array:
    """dz/ds = Δt f(t + s Δt, z) for every sample; absent nodes stay as they are."""
    flow, graph, start, length = span
    dz = per_sample(flow, graph, 0, sample_axis(graph))(start + s * length, z, graph)
    return jnp.where(present(graph), dz * over_states(length, graph), 0)
