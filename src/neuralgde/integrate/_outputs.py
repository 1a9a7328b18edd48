"""The states at the output times, from the polynomials of the steps they lie in, and the way back to those.

Outputs go block by block, and a step looks only at blocks that it reaches: to look at all of them in every step would
cost outputs times steps. With lanes, whose axis is the first of all arrays, every lane looks at the same blocks, from
the first that one of them reaches to the last.
"""

import functools
import itertools
from collections.abc import Callable
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PyTree

from ._control import expand
from ._engines import combine
from ._solvers import Pair

# Entries of all outputs up to which they are one block: where few, a loop over blocks costs more than it spares.
_ONE_BLOCK = 2**16
_MOST, _USUAL = 64, 16
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


def block_size(count: int, y: PyTree) -> int:
    """How many of so many outputs are looked at together, y being the states of all lanes at one of them."""
    entries = sum(x.size for x in jax.tree.leaves(y))
    if count <= _MOST and count * entries <= _ONE_BLOCK:
        return count
    return _USUAL if entries <= _ONE_BLOCK else 1


def fill_blocks(x: Array, axis: int, block: int, mode: Literal["edge", "constant"] = "constant") -> Array:
    """The same with entries behind, the last again or zeros, that make blocks along the axis full."""
    widths = [(0, -size % block if i == axis else 0) for i, size in enumerate(x.shape)]
    return jnp.pad(x, widths, mode=mode)


def write(outputs: PyTree, times: Float[Array, "*lanes times"], piece: Piece, block: int) -> PyTree:
    """The outputs, those inside the piece set. Times and outputs fill blocks."""

    def values(inside, theta, q, out):
        def leaf(q, out):
            x = expand(theta, out).astype(out.dtype)
            value = functools.reduce(lambda total, q: total * x + q, [q[p] for p in reversed(range(q.shape[0]))])
            return jnp.where(expand(inside, out), value, out)

        return jax.tree.map(leaf, q, out)

    def visit(outputs, part, put, inside, theta):
        return put(outputs, _on_lanes(values, times)(inside, theta, piece.q, part(outputs)))

    return _visit_blocks(visit, outputs, times, piece.start, piece.end, block)


def read_back(
    grads: PyTree, times: Float[Array, "*lanes times"], start: Array, end: Array, terms: int, block: int
) -> PyTree:
    """The gradient in the coefficients of the step from start to end, so many, from those in all outputs."""

    def sums(inside, theta, grads):
        powers = jnp.stack([*itertools.accumulate([theta] * (terms - 1), jnp.multiply, initial=jnp.ones_like(theta))])

        def leaf(g):
            return _times_block(powers.astype(g.dtype), jnp.where(expand(inside, g), g, 0))

        return jax.tree.map(leaf, grads)

    def visit(total, part, put, inside, theta):
        del put
        return jax.tree.map(jnp.add, total, _on_lanes(sums, times)(inside, theta, part(grads)))

    def none_yet(g):
        lanes, state = g.shape[: times.ndim - 1], g.shape[times.ndim :]
        return jnp.zeros((*lanes, terms, *state), g.dtype)

    return _visit_blocks(visit, jax.tree.map(none_yet, grads), times, start, end, block)


def _times_block(
    powers: Float[Array, "powers block"], g: Float[Array, "block *state"]
) -> Float[Array, "powers *state"]:
    flat = g.reshape(g.shape[0], -1)
    small = g.size < _LIBRARY_FROM
    out = jnp.sum(powers[:, :, None] * flat, axis=1) if small else jnp.matmul(powers, flat, precision="highest")
    return out.reshape(-1, *g.shape[1:])


def _visit_blocks(
    visit: Callable, carry: PyTree, times: Float[Array, "*lanes times"], start: Array, end: Array, block: int
) -> PyTree:
    """Fold visit(carry, part, put, inside, theta) over the blocks between the first and the last that any lane reaches.

    part(x) is the block's part of an array of all outputs, put(x, new) the array with that part set; `inside` says
    which of the block's outputs are in the step, and `theta` where.
    """
    axis, count = times.ndim - 1, times.shape[-1]
    forward = times[..., -1] >= times[..., 0]

    def places(times):
        return _on_lanes(_places, times)(times, forward, start, end)

    if count == block:
        return visit(carry, lambda x: x, lambda x, new: new, *places(times))

    def part_at(at):
        return lambda x: jax.tree.map(lambda x: jax.lax.dynamic_slice_in_dim(x, at * block, block, axis), x)

    def one_block(at, carry):
        def put(x, new):
            return jax.tree.map(lambda x, n: jax.lax.dynamic_update_slice_in_dim(x, n, at * block, axis), x, new)

        return at + 1, visit(carry, part_at(at), put, *places(part_at(at)(times)))

    def count_passed(times, t):
        return jnp.sum(_on_lanes(_passed, times)(times, forward, t), axis=-1)

    # Blocks that lie before the step's start as a whole, and those that begin before its end; none if it is not taken.
    done = jnp.where(start == end, count // block, count_passed(times[..., block - 1 :: block], start))
    begun = jnp.where(start == end, 0, count_passed(times[..., ::block], end))
    begin, behind = jnp.min(done), jnp.max(begun)
    # Where steps are many more than outputs, most lie inside of a block and meet none of its outputs.
    inside, _ = places(part_at(begin)(times))
    begin = jnp.where(jnp.any(inside), begin, begin + 1)
    return jax.lax.while_loop(lambda c: c[0] < behind, lambda c: one_block(*c), (begin, carry))[1]


def _places(
    times: Float[Array, " times"], forward: Bool[Array, ""], start: Array, end: Array
) -> tuple[Bool[Array, " times"], Float[Array, " times"]]:
    """Which outputs are in (start, end], and where, as theta."""
    inside = _passed(times, forward, end) & ~_passed(times, forward, start)
    # Clipped, because far outside powers of theta could overflow.
    return inside, jnp.clip((times - start) / jnp.where(end == start, 1, end - start), 0, 1)


def _passed(times: Float[Array, " times"], forward: Bool[Array, ""], t: Array) -> Bool[Array, " times"]:
    """Which times a solve in that direction has behind it at t."""
    return jnp.where(forward, times <= t, times >= t)


def _on_lanes(function: Callable, times: Float[Array, "*lanes times"]) -> Callable:
    return jax.vmap(function) if times.ndim == 2 else function
