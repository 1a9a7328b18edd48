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


def empty_queue(program: Program, lanes: int, dtype) -> Queue:
    """A queue in which nothing waits."""
    due, values = [], []
    for event in program.events:
        places = 1 if event.delay is None else _PLACES
        due.append(jnp.full((places, lanes), jnp.inf, dtype))
        values.append(jnp.zeros((len(event.assignments) if event.early_values else 0, places, lanes), dtype))
    return Queue(jnp.zeros((len(program.events), lanes), bool), tuple(due), tuple(values))


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
    """Which events are due, (events, lanes)."""
    assert lanes.queue is not None
    return jnp.stack([where & (jnp.min(due, axis=0) <= lanes.clock) for due in lanes.queue.due])


def _look(program: Program, constants: Array, lanes: Lanes, where: Array, late: bool) -> Lanes:
    """Evaluate the triggers: those that have turned true are put in the queue, some that turned false taken out."""
    assert lanes.queue is not None
    values = environment(program, constants, lanes.x, lanes.clock, late)
    shape, dtype = lanes.clock.shape, lanes.clock.dtype

    def full(value):
        return jnp.broadcast_to(jnp.asarray(value, dtype), shape)

    truth, all_due, all_stored = list(lanes.queue.truth), list(lanes.queue.due), list(lanes.queue.values)
    overflow = jnp.zeros(shape, bool)
    for e, event in enumerate(program.events):
        due = all_due[e]
        now = jnp.broadcast_to(holds(event.trigger, values), shape)
        if not event.persistent:
            due = jnp.where(where & ~now, jnp.inf, due)
        rises = where & now & ~truth[e]
        at = lanes.clock
        if event.delay is None:
            # What is due at once is never kept waiting, so its one place can be taken again.
            put = rises[None]
        else:
            at = at + jnp.maximum(full(evaluate(event.delay, values)), 0.0)
            free = jnp.isinf(due)
            first = jnp.argmax(free, axis=0)
            put = rises & free & (jnp.arange(due.shape[0])[:, None] == first)
            overflow = overflow | (rises & ~jnp.any(free, axis=0))
        all_due[e] = jnp.where(put, at, due)
        if event.early_values and event.assignments:
            early = jnp.stack([full(evaluate(f, values)) for _, f in event.assignments])
            all_stored[e] = jnp.where(put, early[:, None], all_stored[e])
        truth[e] = jnp.where(where, now, truth[e])
    status = jnp.where(overflow, DELAY_OVERFLOW, lanes.status)
    queue = Queue(jnp.stack(truth), tuple(all_due), tuple(all_stored))
    return eqx.tree_at(lambda s: (s.queue, s.status), lanes, (queue, status))


def _carry_out(program: Program, constants: Array, lanes: Lanes, where: Array, late: bool) -> tuple[Lanes, Array]:
    """The one event of each lane that is due and comes first, by priority and then in the order of the network."""
    assert lanes.queue is not None
    values = environment(program, constants, lanes.x, lanes.clock, late)
    shape, dtype = lanes.clock.shape, lanes.clock.dtype
    ready = _ready(lanes, where)
    ranks = [jnp.finfo(dtype).min if e.priority is None else evaluate(e.priority, values) for e in program.events]
    rank = jnp.stack([jnp.broadcast_to(jnp.asarray(r, dtype), shape) for r in ranks])
    chosen = jnp.where(jnp.any(ready, axis=0), jnp.argmax(jnp.where(ready, rank, -jnp.inf), axis=0), -1)
    x, all_due = list(lanes.x), list(lanes.queue.due)
    for e, event in enumerate(program.events):
        picked, due = chosen == e, all_due[e]
        # Of one event that waits several times, what was set off first comes first.
        place = jnp.arange(due.shape[0])[:, None] == jnp.argmin(due, axis=0)
        for a, (name, formula) in enumerate(event.assignments):
            if event.early_values:
                value = jnp.sum(jnp.where(place, lanes.queue.values[e][a], 0.0), axis=0)
            else:
                value = jnp.asarray(evaluate(formula, values), dtype)
            i = program.variables.index(name)
            x[i] = jnp.where(picked, value, x[i])
        all_due[e] = jnp.where(picked & place, jnp.inf, due)
    queue = Queue(lanes.queue.truth, tuple(all_due), lanes.queue.values)
    return eqx.tree_at(lambda s: (s.x, s.queue), lanes, (tuple(x), queue)), chosen >= 0
