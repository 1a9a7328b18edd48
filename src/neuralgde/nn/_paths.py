"""Paths that features take to a node: along the graph by one operator or several, and past it, from the node itself."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from .._errors import InputError
from ..graph import Graph
from ..graph._rows import times_weight

# The path past the graph: z as it is.
SELF = "self"
Operators = str | tuple[str, ...]


def as_paths(operator: Operators) -> tuple[str, ...]:
    paths = (operator,) if isinstance(operator, str) else tuple(operator)
    if not paths or len(set(paths)) < len(paths) or not all(isinstance(p, str) for p in paths):
        raise InputError(f"operator: expected a name, or several different ones in a tuple, got {operator!r}.")
    return paths


def prepare_paths(operator: Operators, graph: Graph) -> Graph:
    """The graph, carrying the operators that these paths multiply by."""
    return graph.prepare(*(name for name in as_paths(operator) if name != SELF))


def along_paths(operator: Operators, z: Float[Array, "nodes features"], graph: Graph) -> list[Array]:
    """What arrives at every node by each path."""
    return [z if name == SELF else graph.operator(name) @ z for name in as_paths(operator)]


def mixed(arrived: list[Array], weight: Float[Array, "paths_in out"]) -> Float[Array, "nodes out"]:
    """What arrived by each path times its block of rows of the weight, added up.

    A sum and not one product of all side by side: under `vmap` a concatenation would move the samples to the front.
    """
    first, *others = (times_weight(z, w) for z, w in zip(arrived, jnp.split(weight, len(arrived)), strict=True))
    return sum(others, first)
