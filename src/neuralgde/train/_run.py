"""The compiled programs: many steps in one dispatch, and a look at the validation data."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key, PRNGKeyArray, PyTree

from ._batches import Batches
from ._state import Program, State, start, train_step, validate_step


class Keys(eqx.Module):
    """The keys of a run, one of each per seed; every step folds its number into them."""

    order: PRNGKeyArray
    loss: PRNGKeyArray
    metric: PRNGKeyArray


@eqx.filter_jit
def make_keys(key: Key[Array, "*seeds"], seeds: int | None) -> Keys:
    """The keys of one seed, or of each."""

    def one(key: PRNGKeyArray) -> Keys:
        return Keys(*jax.random.split(key, 3))

    return one(key) if seeds is None else jax.vmap(one)(key)


@eqx.filter_jit
def start_all(program: Program, arrays: PyTree, dtype: Any, seeds: int | None) -> State:
    """The state before the first step, of one seed or of each."""

    def one(arrays: PyTree) -> State:
        return start(program, arrays, dtype)

    return one(arrays) if seeds is None else jax.vmap(one)(arrays)


# The number of steps is an argument, not a length: the last, shorter run needs no other program, and a run of no steps
# is a compilation.
@eqx.filter_jit
def run_steps(
    program: Program,
    batches: Batches,
    state: State,
    keys: Keys,
    data: PyTree,
    first_step: Int[Array, ""],
    num_steps: Int[Array, ""],
    rates: Float[Array, " log_every"],
    figures: dict[str, jax.ShapeDtypeStruct],
    seeds: int | None,
    same_order: bool,
    in_turn: bool,
) -> tuple[State, dict[str, Array]]:
    """The state after `num_steps` steps, and each seed's means of the figures to log over the steps it took."""
    per_epoch = batches.steps_per_epoch

    def one(state, keys, order, step, rate):
        batch = batches.take(data, order, step % per_epoch)
        return train_step(program, state, batch, jax.random.fold_in(keys.loss, step), rate)

    order_of = batches.order
    if seeds is not None:
        one = _over_seeds(one, (True, True, not same_order, False, False), in_turn)
        if not same_order:
            order_of = jax.vmap(batches.order, in_axes=(0, None))
    order_key = keys.order[0] if seeds is not None and same_order else keys.order

    def body(i, carry):
        state, order, sums, count = carry
        step = first_step + i
        order = jax.lax.cond(step % per_epoch == 0, lambda: order_of(order_key, step // per_epoch), lambda: order)
        state, taken, values = one(state, keys, order, step, rates[i])
        sums = {name: sums[name] + jnp.where(taken, value, 0) for name, value in values.items()}
        return state, order, sums, count + taken.astype(jnp.int32)

    shape = () if seeds is None else (seeds,)
    sums = {name: jnp.zeros(shape, figure.dtype) for name, figure in figures.items()}
    order = order_of(order_key, first_step // per_epoch)
    carry = (state, order, sums, jnp.zeros(shape, jnp.int32))
    state, _, sums, count = jax.lax.fori_loop(0, num_steps, body, carry)
    return state, {name: total / count.astype(total.dtype) for name, total in sums.items()}


@eqx.filter_jit
def run_validation(
    program: Program,
    state: State,
    keys: Keys,
    validation: PyTree,
    patience: Int[Array, ""],
    seeds: int | None,
    in_turn: bool,
) -> tuple[State, dict[str, Array]]:
    """The state after the validation data were looked at, and the figures to log. The key is the same at every look."""

    def one(state, keys):
        return validate_step(program, state, validation, keys.metric, patience)

    return one(state, keys) if seeds is None else _over_seeds(one, (True, True), in_turn)(state, keys)


def _over_seeds(one: Callable, own: tuple[bool, ...], in_turn: bool) -> Callable:
    """`one` for all seeds, side by side or in turn; `own` says which of its arguments each seed has for itself."""
    if not in_turn:
        return jax.vmap(one, in_axes=tuple(0 if mine else None for mine in own))

    def call(*args):
        def of_one(mine):
            mine = iter(mine)
            return one(*(next(mine) if is_own else arg for is_own, arg in zip(own, args, strict=True)))

        return jax.lax.map(of_one, [arg for is_own, arg in zip(own, args, strict=True) if is_own])

    return call
