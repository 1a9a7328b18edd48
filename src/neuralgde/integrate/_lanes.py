"""Solves side by side: a function that is told when `vmap` runs many of it, and runs them in one loop."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
from jax.custom_batching import custom_vmap

Axes = list[int | None] | None


def over_lanes(function: Callable[[Any, Axes], tuple[Any, Any]], inputs: Any) -> Any:
    """function(inputs, axes)[0], where `axes` is None; under `vmap`, the axis of lanes of each array in `inputs`.

    The second thing that the function returns says, for each array of the first, whether it has an axis of lanes.
    Left to itself, `vmap` turns a loop into one that copies all it carries in each round, for the lanes that are done.
    """
    arrays, rest = eqx.partition(inputs, eqx.is_array)

    @custom_vmap
    def run(arrays):
        return function(eqx.combine(arrays, rest), None)[0]

    @run.def_vmap
    def run_lanes(size, batched, arrays):
        del size
        axes = [0 if b else None for b in jax.tree.leaves(batched)]
        return function(eqx.combine(arrays, rest), axes)

    return run(arrays)


def map_lanes(function: Callable, inputs: Any, axes: Axes) -> Callable:
    """function(inputs, ...) as a function of the rest; with lanes, for each lane, which all of the rest has."""
    if axes is None:
        return lambda *lane: function(inputs, *lane)
    leaves, tree = jax.tree.flatten(eqx.filter(inputs, eqx.is_array))
    rest = eqx.filter(inputs, eqx.is_array, inverse=True)

    def one(leaves, lane):
        return function(eqx.combine(jax.tree.unflatten(tree, leaves), rest), *lane)

    return lambda *lane: jax.vmap(one, in_axes=(axes, 0))(leaves, lane)
