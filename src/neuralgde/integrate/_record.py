"""What a solve keeps of its steps so that a gradient can go back over them, in memory that grows like their root."""

import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PyTree


class Record(NamedTuple):
    """The times between the steps tried, equal on both sides of one not taken, and the state before every `stride`-th.

    Times are kept and not lengths: start plus length, rounded, may fall short of the end, and an output there would be
    in no step. When its slots are full the record forgets every second state. With lanes, their axis is the first of
    `times` and `states`; the counts are common to all.
    """

    tried: Int[Array, ""]
    stride: Int[Array, ""]
    full: Bool[Array, ""]
    times: Float[Array, "*lanes limit+1"]
    states: PyTree

    def lane_axes(self) -> "Record":
        """Which of the arrays have an axis of lanes, where there are lanes."""
        return Record(False, False, False, True, jax.tree.map(lambda _: True, self.states))  # pyright: ignore[reportArgumentType]


# Slots are cleared and copied whether a solve uses them or not, so that large states have fewer. Up to 250 steps
# sixteen lose nothing; of 1000 steps each is computed 2.4 times more on the way back, with 32 slots 1.0, of 4000 8.4
# and 2.5. Clearing 32 for 1280 small systems, 200 kB, took 1.5 ms of about 45 in a profile.
_ROOM = 2**21  # bytes of all states kept
_FEWEST, _MOST = 16, 32


def _num_slots(limit: int, size: int) -> int:
    """How many states to keep of solves of up to `limit` steps, the state of all lanes being `size` bytes."""
    fitting = max(_FEWEST, min(_MOST, 2 * (_ROOM // max(1, 2 * size))))
    # Going back keeps as many states again: with the most, at most about four steps lie between two of them.
    return min(2 * math.ceil(limit / 2), max(fitting, 2 * math.ceil(fitting / _MOST * math.sqrt(limit) / 4)))


def new_record(t: Array, y: PyTree, limit: int, *, lanes: bool) -> Record:
    size = sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(y))
    slots, at = _num_slots(limit, size), int(lanes)

    def room(x, length):
        return jnp.zeros((*x.shape[:at], length, *x.shape[at:]), x.dtype)

    times = jax.lax.dynamic_update_index_in_dim(room(t, limit + 1), t, 0, at)
    states = jax.tree.map(lambda x: room(x, slots), y)
    return Record(jnp.asarray(0), jnp.asarray(1), jnp.asarray(False), times, states)


def note_step(record: Record, end: Array, y: PyTree, *, lanes: bool) -> Record:
    n, stride, axis = record.tried, record.stride, int(lanes)
    slot = n // stride

    def write(room, x):
        kept = jax.lax.dynamic_index_in_dim(room, slot, axis, keepdims=False)
        return jax.lax.dynamic_update_index_in_dim(room, jnp.where(n % stride == 0, x, kept), slot, axis)

    states = jax.tree.map(write, record.states, y)
    slots = jax.tree.leaves(states)[0].shape[axis]
    return Record(
        n + 1,
        stride,
        n + 1 >= slots * stride,
        jax.lax.dynamic_update_index_in_dim(record.times, end, n + 1, axis),
        states,
    )


def thin(record: Record, *, lanes: bool) -> Record:
    """Every second state forgotten, where the slots are full."""
    axis = int(lanes)

    def halve(room):
        kept = jax.lax.slice_in_dim(room, 0, None, 2, axis)
        return jax.lax.dynamic_update_slice_in_dim(room, kept, 0, axis)

    states = jax.lax.cond(record.full, lambda s: jax.tree.map(halve, s), lambda s: s, record.states)
    stride = jnp.where(record.full, 2 * record.stride, record.stride)
    return record._replace(stride=stride, full=jnp.zeros_like(record.full), states=states)


class _Walk(NamedTuple):
    """On the way back: the step to differentiate next, a state at or before it, and the states kept in its segment."""

    target: Int[Array, ""]
    at: Int[Array, ""]
    y: PyTree
    segment: PyTree
    carry: PyTree


def walk_back(record: Record, carry: PyTree, forth: Callable, back: Callable, *, lanes: bool) -> PyTree:
    """Fold back(carry, y, t, end) over the steps, the last one first; forth(y, t, end) recomputes states between."""
    axis = int(lanes)
    slots = jax.tree.leaves(record.states)[0].shape[axis]
    # Steps between two states of a segment: more than one only where a stride has more steps than slots.
    between = jnp.maximum(1, -(-record.stride // slots))

    def pick(rooms, slot):
        return jax.tree.map(lambda room: jax.lax.dynamic_index_in_dim(room, slot, axis, keepdims=False), rooms)

    def put(rooms, y, slot):
        return jax.tree.map(lambda room, x: jax.lax.dynamic_update_index_in_dim(room, x, slot, axis), rooms, y)

    def where(condition, new, old):
        return jax.tree.map(lambda a, b: jnp.where(condition, a, b), new, old)

    def advance(walk: _Walk) -> _Walk:
        t, end = pick(record.times, walk.at), pick(record.times, walk.at + 1)
        arrived = walk.at == walk.target
        y, carry = jax.lax.cond(
            arrived,
            lambda y, carry: (y, back(carry, y, t, end)),
            lambda y, carry: (forth(y, t, end), carry),
            walk.y,
            walk.carry,
        )
        # Turn to the step before, or follow the state just recomputed, which the segment keeps if it is its turn.
        target = walk.target - arrived.astype(walk.target.dtype)
        place = jnp.maximum(target, 0) % record.stride
        first = pick(record.states, jnp.maximum(target, 0) // record.stride)
        ahead = (walk.at + 1) % record.stride
        slot = jnp.where(arrived, 0, ahead // between)
        kept = where(ahead % between == 0, y, pick(walk.segment, slot))
        segment = put(walk.segment, where(arrived, first, kept), slot)
        # The states behind the first are there unless the turn led into another stride.
        near = jnp.where(walk.target // record.stride == target // record.stride, place // between, 0)
        at = jnp.where(arrived, target - place + near * between, walk.at + 1)
        return _Walk(target, at, where(arrived, pick(segment, near), y), segment, carry)

    last = jnp.maximum(record.tried - 1, 0)
    y = pick(record.states, last // record.stride)
    segment = put(jax.tree.map(jnp.zeros_like, record.states), y, 0)
    walk = _Walk(record.tried - 1, last - last % record.stride, y, segment, carry)
    return jax.lax.while_loop(lambda w: w.target >= 0, advance, walk).carry
