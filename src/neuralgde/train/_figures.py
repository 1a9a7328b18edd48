"""What is trained and what is logged, found from the model and the losses before anything runs."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from .._errors import InputError
from ._batches import Batches
from ._log import FIXED
from ._result import take_seed
from ._run import Keys
from ._state import Program, with_aux


def which_are_trained(arrays: Any, frozen: Callable | None) -> Any:
    """Which arrays of the model are trained."""
    trained = jax.tree.map(eqx.is_inexact_array, arrays)
    if frozen is not None:
        trained = eqx.tree_at(frozen, trained, replace_fn=lambda node: jax.tree.map(lambda _: False, node))
    if not any(jax.tree.leaves(trained)):
        raise InputError("model: expected floating-point arrays to train, found none.")
    return trained


def figures_of(
    program: Program, batches: Batches, arrays: PyTree, data: PyTree, keys: Keys, seeds: int | None
) -> dict[str, jax.ShapeDtypeStruct]:
    """What the loss returns to be logged, found without computing it."""
    one = (lambda tree: tree) if seeds is None else (lambda tree: take_seed(tree, 0))

    def look(arrays, data, keys):
        arrays, keys = one(arrays), one(keys)
        batch = batches.take(data, jnp.arange(batches.num_samples), jnp.zeros((), jnp.int32))
        loss, aux = with_aux(program.loss_fn(program.model(arrays), batch, keys.loss))
        return {**aux, "loss": loss}

    figures = eqx.filter_eval_shape(look, arrays, data, keys)
    for name, figure in figures.items():
        if getattr(figure, "shape", None) != () or not jnp.issubdtype(figure.dtype, jnp.floating):
            raise InputError(
                f"loss_fn: expected a floating-point scalar, or (scalar, {{name: scalar}}), got {figure} for {name!r}."
            )
        if name in FIXED and name != "loss":
            raise InputError(f"loss_fn: the name {name!r} is taken by the history. Call it something else.")
    return figures


def rename(seen: dict, values: dict, same_fn: bool) -> dict:
    """The metric's further figures by their own names, unless it is the loss, whose names are taken."""
    renamed = {f"validation_{name}" if same_fn and name != "validation" else name: seen[name] for name in seen}
    if taken := (set(renamed) - {"validation"}) & {*values, *FIXED}:
        raise InputError(f"metric_fn: the name {taken.pop()!r} is taken by the loss or the history. Call it another.")
    return renamed
