"""Events: triggers that turn true, assignments that are made now or after a delay."""

import equinox as eqx
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array

from ._expression import evaluate, holds
from ._lanes import DELAY_OVERFLOW, EVENT_CASCADE, Lanes, Queue, environment
from ._program import Program

# How often one event can wait for its delay to pass, in one run.
_PLACES = 8
# Events that set each other off without end would never let time go on.
_CASCADE = 1000


def places(program: Program) -> list[int]:
    """Which event each place of the queue belongs to."""
    return [e for e, event in enumerate(program.events) for _ in range(1 if event.delay is None else _PLACES)]


def empty_queue(program: Program, lanes: int, dtype) -> Queue:
    """A queue in which nothing waits."""
    rows = places(program)
    zeros = jnp.zeros(lanes, dtype)
    values = tuple(
        tuple(zeros for _ in program.events[e].assignments) if program.events[e].early_values else () for e in rows
    )
    truth = jnp.zeros((len(program.events), lanes), bool)
    return Queue(truth, jnp.full((len(rows), lanes), jnp.inf, dtype), values)


def settle(program: Program, constants: Array, lanes: Lanes, where: Array, *, late: bool) -> Lanes:
    """Make all events happen that are due in these lanes, one after another, and those that they set off."""
    lanes = _look(program, constants, lanes, where, late)

    def waiting(carry):
        lanes, rounds = carry
        return jnp.any(_ready(lanes, where)) & (rounds <= _CASCADE)

    def one(carry):
        lanes, rounds = carry
        lanes, changed = _carry_out(program, constants, lanes, where, late)
        return _look(program, constants, lanes, changed, late), rounds + 1

    lanes, _ = lax.while_loop(waiting, one, (lanes, jnp.zeros((), jnp.int32)))
    endless = jnp.any(_ready(lanes, where), axis=0)
    return eqx.tree_at(lambda s: s.status, lanes, jnp.where(endless, EVENT_CASCADE, lanes.status))


def _ready(lanes: Lanes, where: Array) -> Array:
    assert lanes.queue is not None
    return where & (lanes.queue.due <= lanes.clock)


def _look(program: Program, constants: Array, lanes: Lanes, where: Array, late: bool) -> Lanes:
    """Evaluate the triggers: those that have turned true are put in the queue, some that turned false taken out."""
    assert lanes.queue is not None
    values = environment(program, constants, lanes.x, lanes.clock, late)
    shape, dtype = lanes.clock.shape, lanes.clock.dtype

    def full(value):
        return jnp.broadcast_to(jnp.asarray(value, dtype), shape)

    truth, due, stored = list(lanes.queue.truth), list(lanes.queue.due), list(lanes.queue.values)
    overflow = jnp.zeros(shape, bool)
    rows = places(program)
    for e, event in enumerate(program.events):
        now = jnp.broadcast_to(holds(event.trigger, values), shape)
        mine = [q for q, owner in enumerate(rows) if owner == e]
        if not event.persistent:
            for q in mine:
                due[q] = jnp.where(where & ~now, jnp.inf, due[q])
        rises = where & now & ~truth[e]
        at = lanes.clock + (0.0 if event.delay is None else jnp.maximum(full(evaluate(event.delay, values)), 0.0))
        early = [full(evaluate(f, values)) for _, f in event.assignments] if event.early_values else []
        for q in mine:
            put = rises & (jnp.isinf(due[q]) | (event.delay is None))
            due[q] = jnp.where(put, at, due[q])
            stored[q] = tuple(jnp.where(put, new, old) for new, old in zip(early, stored[q], strict=True))
            rises = rises & ~put
        overflow = overflow | rises
        truth[e] = jnp.where(where, now, truth[e])
    status = jnp.where(overflow, DELAY_OVERFLOW, lanes.status)
    return eqx.tree_at(
        lambda s: (s.queue, s.status), lanes, (Queue(jnp.stack(truth), jnp.stack(due), tuple(stored)), status)
    )


def _carry_out(program: Program, constants: Array, lanes: Lanes, where: Array, late: bool) -> tuple[Lanes, Array]:
    """The one event of each lane that is due and comes first, by priority and then in the order of the network."""
    assert lanes.queue is not None
    values = environment(program, constants, lanes.x, lanes.clock, late)
    shape, dtype = lanes.clock.shape, lanes.clock.dtype
    ready, rows = _ready(lanes, where), places(program)
    best, chosen = jnp.full(shape, -jnp.inf, dtype), jnp.full(shape, -1)
    for q, e in enumerate(rows):
        priority = program.events[e].priority
        lowest = jnp.finfo(dtype).min
        rank = jnp.broadcast_to(jnp.asarray(lowest if priority is None else evaluate(priority, values), dtype), shape)
        better = ready[q] & (rank > best)
        best, chosen = jnp.where(better, rank, best), jnp.where(better, q, chosen)
    x, due = list(lanes.x), list(lanes.queue.due)
    for q, e in enumerate(rows):
        event, picked = program.events[e], chosen == q
        for a, (name, formula) in enumerate(event.assignments):
            value = lanes.queue.values[q][a] if event.early_values else jnp.asarray(evaluate(formula, values), dtype)
            i = program.variables.index(name)
            x[i] = jnp.where(picked, value, x[i])
        due[q] = jnp.where(picked, jnp.inf, due[q])
    queue = Queue(lanes.queue.truth, jnp.stack(due), lanes.queue.values)
    return eqx.tree_at(lambda s: (s.x, s.queue), lanes, (tuple(x), queue)), chosen >= 0
