"""Two engines: Diffrax, which takes steps of any kind, and a scan for fixed explicit ones."""

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from .._arrays import on_device
from ._control import Grid, Guard, all_finite, expand, step_count
from ._solvers import Stages, evaluations_per_step
from ._status import Status

VectorField = Callable[[Any, PyTree, Any], PyTree]


class Steps(NamedTuple):
    """How to step: everything that the engines and the adjoint's backward pass share.

    `guess`, which `run_adaptive` alone heeds, is what the first step of a solve like this should have been, else 0.
    `jumps_move` where a gradient may be asked for in what the place of a jump depends on.
    """

    solver: diffrax.AbstractSolver
    rtol: float
    atol: float
    norm: Callable[[PyTree], Array]
    dt: Array | None
    first_step: Array | None
    jumps: Array | None
    gap: Array
    max_steps: int
    guess: Array | None = None
    jumps_move: bool = False


class Outcome(NamedTuple):
    """States at the times asked for, and how it went; of adaptive explicit steps also what the first was to be."""

    states: PyTree
    status: Array
    reached: Array
    stats: dict[str, Any]
    opening: Array | None = None


class _Inside(eqx.Module):
    """A field that is never asked for the two ends of an interval: it may jump there, and the inside is what counts."""

    field: VectorField
    low: Array
    high: Array

    def __call__(self, t, y, args):
        return self.field(jnp.clip(t, self.low, self.high), y, args)


def run_diffrax(
    field: VectorField,
    y0: PyTree,
    times: Float[Array, " times"],
    args: Any,
    steps: Steps,
    adjoint: diffrax.AbstractAdjoint,
) -> Outcome:
    """Solve through Diffrax, stepping onto every output time where the step is fixed, else interpolating."""
    span = jnp.abs(times[-1] - times[0])
    direction = jnp.where(times[-1] >= times[0], 1, -1).astype(times.dtype)
    low, high = jnp.minimum(times[0], times[-1]), jnp.maximum(times[0], times[-1])
    jumps = steps.jumps
    if jumps is not None:
        # Those at the ends are no jumps of this interval: they are put out of the way.
        inner_jump = (jumps > low + 2 * steps.gap) & (jumps < high - 2 * steps.gap)
        jumps = jnp.where(inner_jump, jumps, times[-1] + direction * (1 + span))
        field = _Inside(field, low + steps.gap, high - steps.gap)
    first_step = steps.first_step
    if first_step is None:
        # Diffrax's own rule does not run behind wrapped terms, and falls back on 0.01 whatever the span.
        first_step = jnp.maximum(span / 20, jnp.finfo(times.dtype).tiny)
    if steps.dt is None:
        inner = diffrax.PIDController(rtol=steps.rtol, atol=steps.atol, norm=steps.norm)
    else:
        knots = times if jumps is None else jnp.concatenate([times, jnp.clip(jumps, low, high)])
        inner = Grid(knots=knots, dt=steps.dt, rtol=steps.rtol, atol=steps.atol, norm=steps.norm)
    sol = diffrax.diffeqsolve(
        diffrax.ODETerm(field),
        steps.solver,
        times[0],
        times[-1],
        direction * first_step,
        y0,
        args,
        saveat=diffrax.SaveAt(ts=times, controller_state=True),
        stepsize_controller=Guard(inner, span, jumps, steps.gap),
        adjoint=adjoint,
        max_steps=steps.max_steps,
        throw=False,
    )
    guard = sol.controller_state
    assert guard is not None  # asked for above
    reached = direction * guard.reached
    status = _diffrax_status(sol.result, guard.cause)
    # Diffrax leaves outputs at t0 itself unset when there is nowhere to go.
    still = times == times[0]
    states = jax.tree.map(lambda y, start: jnp.where(expand(still, y), start, y), sol.ys, y0)
    return Outcome(states, status, reached, _diffrax_stats(sol.stats, guard.num_jumps, steps))


def _diffrax_status(result, cause) -> Array:
    def code(status: Status):
        return jnp.asarray(status.value)

    status = jnp.where(result == diffrax.RESULTS.successful, code(Status.SUCCESS), code(Status.IMPLICIT_FAILED))
    status = jnp.where(result == diffrax.RESULTS.max_steps_reached, code(Status.MAX_STEPS), status)
    return jnp.where(cause != Status.SUCCESS, cause, status)


def _diffrax_stats(stats: dict, num_jumps: Array, steps: Steps) -> dict[str, Any]:
    out = {
        "num_steps": stats["num_steps"],
        "num_accepted_steps": stats["num_accepted_steps"],
        "num_rejected_steps": stats["num_rejected_steps"],
        "num_evaluations": None,
    }
    per = evaluations_per_step(steps.solver)
    if per is not None:
        once, each = per
        # What is evaluated once is the first stage of a method that keeps its last one: behind a jump it is stale.
        out["num_evaluations"] = once * (1 + num_jumps) + each * stats["num_steps"]
    return out


class Schedule(NamedTuple):
    """A fixed grid made on the host: step bounds, the output slot that each step leads to, whether it arrives there."""

    starts: Array
    ends: Array
    slots: Array
    arrives: Array
    outputs: Array


def make_schedule(times: np.ndarray, dt: float, jumps: np.ndarray | None, dtype) -> Schedule:
    """Cut every interval between output times, and between jumps, into the fewest equal steps no longer than dt."""
    distinct, outputs = np.unique(times, return_inverse=True)
    knots = distinct
    if jumps is not None:
        inside = jumps[(jumps > distinct[0]) & (jumps < distinct[-1])]
        knots = np.union1d(distinct, inside)
    edges = [knots[:1]]
    for a, b in itertools.pairwise(knots):
        n = int(step_count(b - a, dt, np))
        edges.append(np.append(a + (b - a) * np.arange(1, n) / n, b))
    grid = np.concatenate(edges)
    if len(times) > 1 and times[-1] < times[0]:
        grid, distinct, outputs = grid[::-1], distinct[::-1], len(distinct) - 1 - outputs
    sign = 1 if grid[-1] >= grid[0] else -1
    slots = np.searchsorted(sign * distinct, sign * grid[1:], side="left")
    arrives = np.diff(slots, append=len(distinct)) != 0
    bounds = on_device(grid[:-1], dtype), on_device(grid[1:], dtype)
    return Schedule(*bounds, *map(on_device, (slots, arrives, outputs)))


# A loop's gradient copies what it keeps into and out of stacked arrays. For large states that costs a quarter of the
# time, far more than compiling a few steps one by one.
_UNROLL_SIZE = 2**18
_UNROLL_EVALUATIONS = 32


def _worth_unrolling(y0: PyTree, evaluations: int) -> bool:
    size = sum(y.size for y in jax.tree.leaves(y0))
    return size >= _UNROLL_SIZE and evaluations <= _UNROLL_EVALUATIONS


def run_scan(
    field: VectorField, y0: PyTree, schedule: Schedule, args: Any, stages: Stages, *, gap: Array | None, remat: bool
) -> Outcome:
    """Fixed explicit steps in one scan: no step-size logic, and as many evaluations as stages times steps."""

    def step(y, start, end):
        h = end - start
        ks = []
        for c, row in stages.rows:
            t = end if c == 1 else start + c * h
            if gap is not None and c in (0, 1):
                # The field may jump at either end, and the stage belongs to the side that the step is on.
                inwards = jnp.minimum(gap, jnp.abs(h) / 4) * jnp.sign(h)
                t = start + inwards if c == 0 else end - inwards
            ks.append(field(t, combine(y, h, row, ks), args))
        return combine(y, h, stages.weights, ks)

    if remat:
        step = jax.checkpoint(step)

    count, wanted = schedule.starts.shape[0], schedule.outputs.shape[0]
    # The two ends are at hand when all is done: what is written on the way is for the times between.
    only_ends = wanted == 2 and count > 0

    def body(carry, bounds):
        y, out, reached, finite = carry
        start, end, slot, arrives = bounds
        y = step(y, start, end)
        if not only_ends:
            # Added to zeros and not written: the gradient of writing copies all outputs in every step.
            out = jax.tree.map(lambda o, v: o.at[slot].add(jnp.where(arrives, v, 0)), out, y)
        finite = finite & all_finite(y)
        return (y, out, jnp.where(finite, end, reached), finite), None

    out = None
    if not only_ends:
        out = jax.tree.map(lambda y: jnp.zeros((wanted, *y.shape), y.dtype).at[0].set(y), y0)
    first = schedule.starts[0] if count else jnp.zeros((), schedule.starts.dtype)
    init = (y0, out, first, jnp.asarray(True))
    (y, out, reached, finite), _ = jax.lax.scan(
        body, init, schedule[:4], unroll=_worth_unrolling(y0, count * len(stages.rows))
    )
    if only_ends:
        states = jax.tree.map(lambda a, b: jnp.stack([a, b]), y0, y)
    else:
        states = jax.tree.map(lambda o: o[schedule.outputs], out)
    status = jnp.where(finite, Status.SUCCESS.value, Status.NOT_FINITE.value)
    per_step = len(stages.rows)
    stats = {
        "num_steps": count,
        "num_accepted_steps": count,
        "num_rejected_steps": 0,
        "num_evaluations": per_step * count,
    }
    return Outcome(states, status, reached, stats)


def combine(y: PyTree | None, h: Array, weights: Sequence[float] | np.ndarray, ks: list[PyTree]) -> PyTree:
    """Y + h sum_i w_i k_i, or without y the sum alone. Weights of 0 cost nothing."""
    terms = [(float(w), k) for w, k in zip(weights, ks, strict=True) if w != 0]
    if not terms:
        return y

    def total(*k):
        scaled = [w * x for (w, _), x in zip(terms, k, strict=True)]
        return h.astype(scaled[0].dtype) * functools.reduce(jnp.add, scaled)

    change = jax.tree.map(total, *(k for _, k in terms))
    return change if y is None else jax.tree.map(jnp.add, y, change)
