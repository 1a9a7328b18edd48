"""Operators that count each edge once, whatever its weight."""

import equinox as eqx
import jax.numpy as jnp

from ..graph import AbstractOperator, Graph


def prepare_unweighted(graph: Graph, name: str) -> Graph:
    """The graph, carrying the named operator of the same edges with weight 1."""
    key = _key(name)
    if key in graph.prepared:
        return graph
    op = graph.with_weights(jnp.ones_like(graph.weights)).operator(name)
    return eqx.tree_at(lambda g: g.prepared, graph, {**graph.prepared, key: op})


def unweighted(graph: Graph, name: str) -> AbstractOperator:
    """The operator that `prepare_unweighted` stores, or a new one."""
    return prepare_unweighted(graph, name).prepared[_key(name)]


def _key(name: str) -> str:
    return f"unweighted_{name}"
