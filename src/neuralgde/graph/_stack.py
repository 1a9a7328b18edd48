"""Graphs of different sizes made alike and stacked, so that one compiled program serves all of them."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from .._errors import InputError
from ._graph import Graph
from ._layout import choose_layout
from ._slices import Slices, Slicing


def alike(graphs: Sequence[Graph], name: str) -> list[Graph]:
    """The same graphs in one layout and one shape: the layout that they share, else the one for their common size."""
    if _same_shapes(graphs):
        return list(graphs)
    graphs = [_without_slices(g) for g in graphs]
    if _same_shapes(graphs):
        return graphs
    channels = {None if g.edge_features is None else g.edge_features.shape[-1] for g in graphs}
    if len(channels) > 1:
        raise InputError(f"{name}: expected the same edge features in all graphs, got {channels} channels.")
    nodes = max(g.num_nodes for g in graphs)
    if len({g.layout for g in graphs}) > 1:
        # Pairs hold a slot for every edge that might be; how many there are decides.
        graphs = [g.with_layout("dense") if g.layout == "pairs" else g for g in graphs]
        layout = choose_layout(nodes, max(g.num_edges for g in graphs))
        graphs = [g if g.layout == layout else g.with_layout(layout) for g in graphs]
    edges = None if graphs[0].layout == "pairs" else max(g.num_edges for g in graphs)
    return [g.pad(nodes, edges) for g in graphs]


def _same_shapes(graphs: Sequence[Graph]) -> bool:
    return len({(jax.tree.structure(g), *[a.shape for a in jax.tree.leaves(g)]) for g in graphs}) == 1


def _without_slices(graph: Graph) -> Graph:
    """The same graph and operators; slices are cut otherwise in every graph."""

    def is_cut(x: Any) -> bool:
        return isinstance(x, Slicing | Slices)

    return jax.tree.map(lambda x: None if is_cut(x) else x, graph, is_leaf=is_cut)


def stacked(trees: Sequence[Any]) -> Any:
    """One tree, whose arrays have a new axis before all others."""
    return jax.tree.map(lambda *arrays: on_host(lambda xp, *a: xp.stack(a), *arrays), *trees)


def unstacked(graph: Graph) -> list[Graph]:
    """The graphs along the first axis."""
    leaves, structure = jax.tree.flatten(graph)
    leaves = [a if isinstance(a, Tracer) else np.asarray(a) for a in leaves]
    return [jax.tree.unflatten(structure, [a[k] for a in leaves]) for k in range(graph.senders.shape[0])]


def on_host(f: Callable[..., Any], *arrays: Any) -> Any:
    """`f(numpy, *arrays)`, where nothing is traced: arrays of ever new lengths would each compile on the device."""
    if any(isinstance(a, Tracer) for a in arrays):
        return f(jnp, *arrays)
    return jax.device_put(f(np, *[np.asarray(a) for a in arrays]))
