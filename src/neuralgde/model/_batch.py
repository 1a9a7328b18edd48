"""One sample or a batch of them, with one graph or one for each."""

from collections.abc import Callable

import equinox as eqx
from jaxtyping import Array

from ..graph import Graph


def over_batch(layer: Callable, x: Array, graph: Graph) -> Callable:
    """layer(z, graph) as it is, or mapped over samples, and over their graphs, where x is a batch."""
    if x.ndim == 2:
        return layer
    return eqx.filter_vmap(layer, in_axes=(0, 0 if graph.senders.ndim == 2 else None))
