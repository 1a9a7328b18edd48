"""The states at the output times, from the polynomials of the steps they lie in, and the way back to those.

Outputs go block by block, and a step looks only at blocks that it reaches: to look at all of them in every step would
cost outputs times steps. With lanes, whose axis is the first of all arrays, every lane looks at the same blocks.
"""

import functools
import itertools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PyTree

from ._control import expand
from ._engines import combine
from ._solvers import Pair

# Few outputs are one block: a loop over blocks costs more than it spares.
_ONE_BLOCK = 64
_BLOCK = 16
# Entries up to which the sums over a block are a loop that XLA compiles. Measured with 40 to 640,000 entries an output.
_LIBRARY_FROM = 2**12


class Piece(NamedTuple):
    """The solution in a step: z(start + theta (end - start)) = sum_p theta^p q_p; one not taken ends at its start."""

    start: Float[Array, "*lanes"]
    end: Float[Array, "*lanes"]
    q: PyTree


def interpolate(pair: Pair, y: PyTree, step: Array, ks: list[PyTree]) -> PyTree:
    """The coefficients q_p of a step from its slopes, on a first axis of each leaf."""
    higher = [combine(None, step, weights, ks) for weights in pair.dense.T]
    return jax.tree.map(lambda *q: jnp.stack(q), y, *higher)


def fill_blocks(x: Float[Array, "times ..."], fill: Array | float) -> Float[Array, "more_times ..."]:
    """The same with entries behind that fill blocks."""
    missing = 0 if x.shape[0] <= _ONE_BLOCK else -x.shape[0] % _BLOCK
    return jnp.concatenate([x, jnp.full((missing, *x.shape[1:]), fill, x.dtype)]) if missing else x


def write(outputs: PyTree, times: Float[Array, "*lanes times"], piece: Piece) -> PyTree:
    """The outputs, those inside the piece set. Times and outputs fill blocks."""

    def values(inside, theta, q, out):
        def leaf(q, out):
            x = expand(theta, out).astype(out.dtype)
            value = functools.reduce(lambda total, q: total * x + q, [q[p] for p in reversed(range(q.shape[0]))])
            return jnp.where(expand(inside, out), value, out)

        return jax.tree.map(leaf, q, out)

    def visit(outputs, part, put, inside, theta):
        return put(outputs, _on_lanes(values, times)(inside, theta, piece.q, part(outputs)))

    return _visit_blocks(visit, outputs, times, piece.start, piece.end)


def read_back(grads: PyTree, times: Float[Array, "*lanes times"], start: Array, end: Array, terms: int) -> PyTree:
    """The gradient in the coefficients of the step from start to end, so many, from those in all outputs."""

    def sums(inside, theta, grads):
        powers = jnp.stack(
            list(itertools.accumulate([theta] * (terms - 1), jnp.multiply, initial=jnp.ones_like(theta)))
        )

        def leaf(g):
            return _times_block(powers.astype(g.dtype), jnp.where(expand(inside, g), g, 0))

        return jax.tree.map(leaf, grads)

    def visit(total, part, put, inside, theta):
        del put
        return jax.tree.map(jnp.add, total, _on_lanes(sums, times)(inside, theta, part(grads)))

    def none_yet(g):
        lanes, state = g.shape[: times.ndim - 1], g.shape[times.ndim :]
        return jnp.zeros((*lanes, terms, *state), g.dtype)

    return _visit_blocks(visit, jax.tree.map(none_yet, grads), times, start, end)


def _times_block(
    powers: Float[Array, "powers block"], g: Float[Array, "block *state"]
) -> Float[Array, "powers *state"]:
    flat = g.reshape(g.shape[0], -1)
    out = jnp.sum(powers[:, :, None] * flat, axis=1) if g.size < _LIBRARY_FROM else powers @ flat
    return out.reshape(-1, *g.shape[1:])


def _visit_blocks(
    visit: Callable, carry: PyTree, times: Float[Array, "*lanes times"], start: Array, end: Array
) -> PyTree:
    """Fold visit(carry, part, put, inside, theta) over the blocks that the step of any lane reaches.

    part(x) is the block's part of an array of all outputs, put(x, new) the array with that part set; `inside` says
    which of the block's outputs are in the step, and `theta` where.
    """
    axis, count = times.ndim - 1, times.shape[-1]

    def at_block(carry, at, size):
        def part(x):
            return jax.tree.map(lambda x: jax.lax.dynamic_slice_in_dim(x, at, size, axis), x)

        def put(x, new):
            return jax.tree.map(lambda x, new: jax.lax.dynamic_update_slice_in_dim(x, new, at, axis), x, new)

        if size == count:
            return visit(carry, lambda x: x, lambda x, new: new, *places)
        return visit(carry, part, put, *map(part, places))

    first, last, *places = _on_lanes(_places, times)(times, start, end)
    if count <= _ONE_BLOCK:
        return at_block(carry, 0, count)
    # Where a lane reaches no output, its first comes behind its last.
    begin, behind = jnp.min(first) // _BLOCK, -(-jnp.max(last) // _BLOCK)
    _, carry = jax.lax.while_loop(
        lambda c: c[0] < behind, lambda c: (c[0] + 1, at_block(c[1], c[0] * _BLOCK, _BLOCK)), (begin, carry)
    )
    return carry


def _places(
    times: Float[Array, " times"], start: Array, end: Array
) -> tuple[Int[Array, ""], Int[Array, ""], Bool[Array, " times"], Float[Array, " times"]]:
    """The outputs in (start, end] as a range, empty from `count` to 0; whether each is there; and where, as theta."""
    count = times.shape[0]

    def passed(t):
        return jnp.where(times[-1] >= times[0], times <= t, times >= t)

    inside = passed(end) & ~passed(start)
    # Clipped, because far outside powers of theta could overflow.
    theta = jnp.clip((times - start) / jnp.where(end == start, 1, end - start), 0, 1)
    some = jnp.any(inside)
    first, last = jnp.sum(passed(start)), jnp.sum(passed(end))
    return jnp.where(some, first, count), jnp.where(some, last, 0), inside, theta


def _on_lanes(function: Callable, times: Float[Array, "*lanes times"]) -> Callable:
    return jax.vmap(function) if times.ndim == 2 else function
