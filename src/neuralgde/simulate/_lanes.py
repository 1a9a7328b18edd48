"""Lanes: the state of many runs side by side, each with its own clock."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int, UInt32

from ._expression import TIME, Environment, evaluate
from ._program import Program
from ._timed import CLOCK, LATE

# Why a run was given up; reactions whose rates went wrong are numbered from RATE on.
EVENT_CASCADE, DELAY_OVERFLOW, TOO_MANY = -1, -2, -3
RATE = 1


class Queue(eqx.Module):
    """Triggers as last seen, and for each event when it is due and what it assigns, in as many places as can wait."""

    truth: Bool[Array, "events lanes"]
    due: tuple[Float[Array, "_ lanes"], ...]
    values: tuple[Float[Array, "_ _ lanes"], ...]


class Lanes(eqx.Module):
    """The state of each lane. `clock` is the time of its last stop, `elapsed` what has passed since.

    `goal` is the time of its next stop. `output` is the index of the next output time, or the number of those once the
    run is over.
    """

    x: tuple[Float[Array, " lanes"], ...]
    clock: Float[Array, " lanes"]
    elapsed: Float[Array, " lanes"]
    goal: Float[Array, " lanes"]
    reached: Bool[Array, " lanes"]
    stopped: Bool[Array, " lanes"]
    output: Int[Array, " lanes"]
    run: Int[Array, " lanes"]
    key: tuple[UInt32[Array, " lanes"], UInt32[Array, " lanes"]]
    draws: UInt32[Array, " lanes"]
    shrink: Float[Array, " lanes"]
    status: Int[Array, " lanes"]
    queue: Queue | None


class Work(eqx.Module):
    """What a device computes on: the lanes, the runs that wait for one, and what has been recorded."""

    lanes: Lanes
    next_run: Int[Array, ""]
    states: Float[Array, "runs times variables"]
    steps: Int[Array, " runs"]
    status: Int[Array, " runs"]


def environment(program: Program, constants: Array, x: tuple[Array, ...], clock: Array, late: Any) -> Environment:
    """The values of all names; LATE says that the clock is just past its time."""
    values = dict(zip(program.constants, constants, strict=True)) | dict(zip(program.variables, x, strict=True))
    return Environment({**values, TIME.name: clock, CLOCK.name: clock, LATE.name: late}, dict(program.rules))


def propensities(program: Program, values: Environment, lanes: Lanes) -> tuple[list[Array], Array]:
    """The rate of each reaction, zero where its reactants are not there, and the reactions whose rate is wrong.

    A rate that is negative by no more than rounding counts as zero.
    """
    like = lanes.clock
    raw = [jnp.broadcast_to(jnp.asarray(evaluate(r, values), like.dtype), like.shape) for r in program.rates]
    scale = sum((jnp.abs(a) for a in raw), start=jnp.zeros_like(like))
    wrong, rates = jnp.zeros(like.shape, jnp.int32), []
    for j, (a, change) in enumerate(zip(raw, program.changes, strict=True)):
        possible = [lanes.x[i] >= -n for i, n in change if n < 0]
        for enough in possible:
            a = jnp.where(enough, a, 0.0)
        fine = (a >= -1e-5 * scale) & (scale < jnp.inf)
        wrong = jnp.where(fine, wrong, RATE + j)
        rates.append(jnp.maximum(a, 0.0))
    return rates, wrong


def hold(tree: Any, always: Array) -> Any:
    """The same arrays, computed once. XLA would otherwise compute them again for each that reads them.

    A condition that the compiler cannot know to be true is a wall that it does not fuse across.
    """
    return lax.cond(always, lambda tree: tree, lambda tree: jax.tree.map(jnp.zeros_like, tree), tree)
