"""Checks of what fields are given, which several of them share."""

import jax.numpy as jnp
from jaxtyping import Array, ArrayLike

from .._errors import InputError
from ..graph import Graph


def check_widths(widths: tuple[int, ...], owner: str, length: int | None = None) -> tuple[int, ...]:
    """`widths` as a tuple, all of it positive whole numbers; `length` of them where it is given, two or more if not."""
    widths = tuple(widths)
    wanted = "two or more" if length is None else str(length)
    if len(widths) < 2 or length not in (None, len(widths)) or any(not isinstance(w, int) or w < 1 for w in widths):
        raise InputError(
            f"widths: {owner} expects {wanted} positive whole numbers, from the features it takes to those it gives, "
            f"got {widths}."
        )
    return widths


def check_state(z: Array, features: int, graph: Graph, owner: str) -> None:
    """That z has one row per node and the features that a network was built for."""
    if z.shape != (graph.num_nodes, features):
        raise InputError(
            f"z: {owner} expects shape {(graph.num_nodes, features)}, a row per node of the graph with the features it "
            f"was built for, got {z.shape}. Change its widths, or the encoder before it."
        )


def split_halves(z: Array, owner: str, names: str) -> tuple[Array, Array]:
    """The two halves of the features of z."""
    if z.shape[-1] % 2:
        raise InputError(f"z: {owner} expects {names} side by side, an even number of features, got {z.shape[-1]}.")
    half = z.shape[-1] // 2
    return z[:, :half], z[:, half:]


def as_float(x: ArrayLike) -> Array:
    """An array of x in its own floating dtype, or in the default one where x is made of whole numbers."""
    x = jnp.asarray(x)
    return x if jnp.issubdtype(x.dtype, jnp.floating) else x.astype(float)
