"""Runs side by side, in lanes that stop only where something has to be looked at.

A lane advances by reactions or leaps until it stops: at an output time, where a comparison with time turns, where a
trigger changes, or where an event is due. Waiting times are exponential, so a lane forgets nothing by starting afresh
there. Lanes that have stopped wait until a good part of them has; then all are served at once, and a lane whose run is
over takes the next run.
"""

from collections.abc import Callable
from functools import partial
from typing import TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array

from ._expression import Environment, evaluate, holds
from ._lanes import TOO_MANY, Lanes, Queue, Work, environment
from ._program import Program
from ._random import threefry
from ._settle import empty_queue, settle

# A stop now and then keeps the clock of a long segment precise: it counts from the last stop.
_SEGMENT = 2**14
# One in so many lanes may wait before they are served.
_WAITING = 4

Step: TypeAlias = Callable[[Program, Environment, Lanes], Lanes]


@partial(jax.jit, static_argnums=(0, 2, 3, 4))
def start(program: Program, initial: Array, lanes: int, runs: int, times: int) -> Work:
    """Lanes without a run yet, and nothing recorded."""
    dtype = initial.dtype
    zeros = jnp.zeros(lanes, dtype)
    flags, words, counts = jnp.ones(lanes, bool), jnp.zeros(lanes, jnp.uint32), jnp.zeros(lanes, jnp.int32)
    queue = None
    if program.events:
        queue = empty_queue(program, lanes, dtype)
    free = Lanes(
        x=tuple(jnp.broadcast_to(v, (lanes,)) for v in initial), clock=zeros, elapsed=zeros, goal=zeros, reached=flags,
        stopped=flags, output=counts + jnp.iinfo(jnp.int32).max, run=counts - 1, key=(words, words), draws=words,
        shrink=zeros + 1, status=counts, queue=queue,
    )  # fmt: skip
    states = jnp.full((runs, times, len(program.variables)), jnp.nan, dtype)
    return Work(free, jnp.zeros((), jnp.int32), states, jnp.zeros(runs, jnp.int32), jnp.zeros(runs, jnp.int32))


@partial(jax.jit, static_argnums=(0, 1), donate_argnums=(5,))
def advance(
    program: Program, step: Step, constants: Array, initial: Array, plan: tuple[Array, ...], work: Work
) -> tuple[Work, Array]:
    """Go on until all runs are over or `budget` steps are done; also how many runs are still to end.

    `plan` is (times, key, first run, last run + 1, budget).
    """
    times, root, first, last, budget = plan
    count = times.shape[0]

    def active(work: Work) -> Array:
        return work.lanes.output < count

    def more(carry):
        work, spent = carry
        return (jnp.any(active(work)) | (work.next_run < last)) & (spent < budget)

    def serve(carry):
        work, spent = carry
        work = _take_runs(program, initial, root, times, last, work)
        work = _serve(program, constants, times, first, work)
        alive = active(work)
        enough = _count(alive) - _count(alive) // _WAITING

        def go_on(inner):
            lanes, spent = inner
            return (_count(alive & ~lanes.stopped) >= jnp.maximum(enough, 1)) & (spent < budget)

        def one(inner):
            lanes, spent = inner
            values = environment(program, constants, lanes.x, lanes.clock, True)
            return _watch(program, constants, step(program, values, lanes)), spent + 1

        lanes, spent = lax.while_loop(go_on, one, (work.lanes, spent))
        return eqx.tree_at(lambda w: w.lanes, work, lanes), spent + 1

    work, _ = lax.while_loop(more, serve, (work, jnp.zeros((), jnp.int32)))
    return work, _count(active(work)) + (last - work.next_run)


def _count(flags: Array) -> Array:
    return jnp.sum(flags, dtype=jnp.int32)


def _take_runs(program: Program, initial: Array, root: Array, times: Array, last: Array, work: Work) -> Work:
    """Give the next runs to the lanes that are free."""
    lanes = work.lanes
    free = lanes.output >= times.shape[0]
    run = work.next_run + jnp.cumsum(free, dtype=jnp.int32) - 1
    new = free & (run < last)
    zero = jnp.zeros_like(lanes.draws)
    key = threefry((zero + root[0], zero + root[1]), zero, run.astype(jnp.uint32))

    def take(fresh, old):
        return jnp.where(new, fresh, old)

    # Where runs have starts of their own, `initial` has an axis of runs before that of variables.
    fresh = initial if initial.ndim == 1 else initial[jnp.minimum(run, initial.shape[0] - 1)].T
    queue = lanes.queue
    if queue is not None:
        starts = jnp.array([e.starts_true for e in program.events])
        queue = Queue(
            jnp.where(new, starts[:, None], queue.truth),
            tuple(jnp.where(new, jnp.inf, due) for due in queue.due),
            queue.values,
        )
    lanes = Lanes(
        x=tuple(take(v, x) for v, x in zip(fresh, lanes.x, strict=True)), clock=take(times[0], lanes.clock),
        elapsed=take(0.0, lanes.elapsed), goal=take(times[0], lanes.goal), reached=lanes.reached | new,
        stopped=lanes.stopped | new, output=take(0, lanes.output), run=take(run, lanes.run),
        key=(take(key[0], lanes.key[0]), take(key[1], lanes.key[1])), draws=take(zero, lanes.draws),
        shrink=take(1.0, lanes.shrink), status=take(0, lanes.status), queue=queue,
    )  # fmt: skip
    return Work(lanes, work.next_run + _count(new), work.states, work.steps, work.status)


def _serve(program: Program, constants: Array, times: Array, first: Array, work: Work) -> Work:
    """Look at the lanes that have stopped: events, outputs, and the time to stop at next."""
    lanes = work.lanes
    count = times.shape[0]
    served = lanes.stopped & (lanes.output < count)
    clock = jnp.where(served, jnp.where(lanes.reached, lanes.goal, lanes.clock + lanes.elapsed), lanes.clock)
    lanes = eqx.tree_at(lambda s: s.clock, lanes, clock)
    if program.events:
        lanes = settle(program, constants, lanes, served, late=False)
    at_output = served & lanes.reached & (clock >= times[jnp.minimum(lanes.output, count - 1)])
    most = 2.0 ** (jnp.finfo(clock.dtype).nmant + 1)
    large = served & jnp.any(jnp.stack([jnp.abs(lanes.x[i]) >= most for i in program.counted] or [~served]), axis=0)
    status = jnp.where(large & (lanes.status == 0), TOO_MANY, lanes.status)

    row = jnp.where(at_output, lanes.run - first, work.states.shape[0])
    states = work.states.at[row, lanes.output].set(jnp.stack(lanes.x, axis=-1), mode="drop")
    output = lanes.output + at_output.astype(jnp.int32)
    output = jnp.where(served & (status != 0), count, output)
    over = served & (output >= count)
    ended = jnp.where(over, lanes.run - first, work.steps.shape[0])
    steps = work.steps.at[ended].set(lanes.draws.astype(jnp.int32), mode="drop")
    all_status = work.status.at[ended].set(status, mode="drop")

    lanes = eqx.tree_at(lambda s: (s.output, s.status), lanes, (output, status))
    if program.events:
        lanes = settle(program, constants, lanes, served, late=True)
    goal = jnp.where(output < count, times[jnp.minimum(output, count - 1)], jnp.inf)
    values = environment(program, constants, lanes.x, clock, True)
    for moment in program.moments:
        at = jnp.broadcast_to(jnp.asarray(evaluate(moment, values), clock.dtype), clock.shape)
        goal = jnp.where(at > clock, jnp.minimum(goal, at), goal)
    if lanes.queue is not None:
        for due in lanes.queue.due:
            goal = jnp.minimum(goal, jnp.min(jnp.where(due > clock, due, jnp.inf), axis=0))
    lanes = eqx.tree_at(
        lambda s: (s.elapsed, s.goal, s.reached, s.stopped),
        lanes,
        (
            jnp.where(served, 0.0, lanes.elapsed),
            jnp.where(served, goal, lanes.goal),
            lanes.reached & ~served,
            (lanes.stopped & ~served) | (output >= count),
        ),
    )
    return Work(lanes, work.next_run, states, steps, all_status)


def _watch(program: Program, constants: Array, lanes: Lanes) -> Lanes:
    """Stop the lanes in which a trigger has changed, or that should look at the clock."""
    stop = (lanes.draws % _SEGMENT) == 0
    if lanes.queue is not None:
        values = environment(program, constants, lanes.x, lanes.clock, True)
        for e, event in enumerate(program.events):
            stop = stop | (holds(event.trigger, values) != lanes.queue.truth[e])
    if program.restless:
        stop = jnp.ones_like(stop)
    return eqx.tree_at(lambda s: s.stopped, lanes, lanes.stopped | stop)
