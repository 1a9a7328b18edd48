"""What changes while one seed trains, and one step of it."""

import enum
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, PRNGKeyArray, PyTree

from .._errors import InputError


class TrainStatus(enum.IntEnum):
    """How a seed's training stands, or ended."""

    RUNNING = 0
    FINISHED = 1
    STOPPED_EARLY = 2
    DIVERGED = 3


class State(eqx.Module):
    """All that changes. With seeds, every array has a leading seed axis.

    `good` are the last parameters that had a finite loss and gradient, `best` those with the best validation.
    """

    arrays: PyTree
    optimiser: PyTree
    good: PyTree
    best: PyTree
    best_value: Array
    waited: Array
    first_loss: Array
    steps: Array
    skipped: Array
    skipped_in_a_row: Array
    status: Array


class Program(eqx.Module):
    """All that does not: the model's static part, which arrays are trained, losses, optimiser, limits."""

    static: PyTree
    trained: PyTree[bool]
    loss_fn: Callable
    metric_fn: Callable
    optimiser: optax.GradientTransformation
    max_skipped: int
    divergence: float

    def model(self, arrays: PyTree) -> Any:
        """The model with these arrays."""
        return eqx.combine(arrays, self.static)

    def split(self, arrays: PyTree) -> tuple[PyTree, PyTree]:
        """The arrays that are trained, and the others."""
        return eqx.partition(arrays, self.trained)


def start(program: Program, arrays: PyTree, dtype: Any) -> State:
    """The state before the first step of one seed, with losses of the given dtype."""
    params, _ = program.split(arrays)
    zero = jnp.zeros((), jnp.int32)
    return State(
        arrays=arrays,
        optimiser=program.optimiser.init(params),
        good=params,
        best=params,
        best_value=jnp.full((), jnp.inf, dtype),
        waited=zero,
        first_loss=jnp.full((), jnp.nan, dtype),
        steps=zero,
        skipped=zero,
        skipped_in_a_row=zero,
        status=jnp.full((), TrainStatus.RUNNING.value, jnp.int32),
    )


def with_aux(out: Any) -> tuple[Array, dict[str, Array]]:
    """What a loss returned, as the pair (scalar, more to log)."""
    return out if isinstance(out, tuple) else (out, {})


def train_step(
    program: Program, state: State, batch: PyTree, key: PRNGKeyArray, rate: Array
) -> tuple[State, Array, dict[str, Array]]:
    """The next state, whether the step was taken, and the losses to log."""
    params, rest = program.split(state.arrays)

    def objective(params):
        return with_aux(program.loss_fn(program.model(eqx.combine(params, rest)), batch, key))

    (loss, aux), grads = jax.value_and_grad(objective, has_aux=True)(params)
    # The norm is infinite where squares overflow too: a second moment that became infinite would freeze the optimiser.
    finite = jnp.isfinite(loss) & jnp.isfinite(optax.tree.norm(grads))
    # Optax mixes dtypes, which strict promotion would refuse.
    with jax.numpy_dtype_promotion("standard"):
        direction, optimiser = program.optimiser.update(grads, state.optimiser, params)
    moved = jax.tree.map(lambda p, d: p - rate.astype(p.dtype) * d, params, direction)

    running = state.status == TrainStatus.RUNNING
    first = jnp.where(jnp.isnan(state.first_loss) & finite, loss, state.first_loss)
    # A first loss of exactly 0 gives no scale.
    exploded = finite & (first != 0) & (loss > program.divergence * jnp.abs(first))
    taken = running & finite & ~exploded
    in_a_row = jnp.where(running, jnp.where(finite, 0, state.skipped_in_a_row + 1), state.skipped_in_a_row)
    diverged = running & (exploded | (in_a_row >= program.max_skipped))

    good = choose(taken, params, state.good)
    params = choose(diverged, good, choose(taken, moved, params))
    new = State(
        arrays=eqx.combine(params, rest),
        optimiser=choose(taken, optimiser, state.optimiser),
        good=good,
        best=state.best,
        best_value=state.best_value,
        waited=state.waited,
        first_loss=jnp.where(running, first, state.first_loss),
        steps=state.steps + running.astype(jnp.int32),
        skipped=state.skipped + (running & ~finite).astype(jnp.int32),
        skipped_in_a_row=in_a_row,
        status=jnp.where(diverged, TrainStatus.DIVERGED.value, state.status),
    )
    return new, taken, {"loss": loss, **aux}


def validate_step(
    program: Program, state: State, validation: PyTree, key: PRNGKeyArray, patience: Array
) -> tuple[State, dict[str, Array]]:
    """The state after a look at the validation data, and the figures to log."""
    value, aux = with_aux(program.metric_fn(program.model(state.arrays), validation, key))
    for name, figure in {"validation": value, **aux}.items():
        if jnp.shape(figure) != ():
            raise InputError(f"metric_fn: expected scalars, got shape {jnp.shape(figure)} for {name!r}.")
    value = jnp.asarray(value).astype(state.best_value.dtype)
    better = value < state.best_value
    params, _ = program.split(state.arrays)
    running = state.status == TrainStatus.RUNNING
    waited = jnp.where(better, 0, state.waited + running.astype(jnp.int32))
    new = eqx.tree_at(
        lambda s: (s.best, s.best_value, s.waited, s.status),
        state,
        (
            choose(better, params, state.best),
            jnp.where(better, value, state.best_value),
            waited,
            jnp.where(running & (waited >= patience), TrainStatus.STOPPED_EARLY.value, state.status),
        ),
    )
    return new, {"validation": value, **aux}


def choose(condition: Array, yes: PyTree, no: PyTree) -> PyTree:
    """One of two trees."""
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), yes, no)
