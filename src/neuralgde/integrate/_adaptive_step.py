"""One adaptive explicit Runge-Kutta step: where a solve stands, and how it tries to go on."""

import functools
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PyTree

from ..graph._loop import keep_apart
from ._control import all_finite
from ._engines import Steps, VectorField, combine
from ._outputs import Piece, interpolate
from ._solvers import Pair, explicit_pair
from ._status import Status

_SAFETY, _SHRINK, _GROW = 0.9, 0.2, 10.0


class Problem(eqx.Module):
    """All that a solve depends on."""

    y0: PyTree
    args: Any
    times: Float[Array, " times"]
    steps: Steps
    field: VectorField

    @property
    def pair(self) -> Pair:
        pair = explicit_pair(self.steps.solver)
        assert pair is not None  # who calls has looked
        return pair

    @property
    def fsal(self) -> bool:
        """Whether a step begins with the slope that the one before ended with: not where the field may jump between."""
        return self.pair.fsal and self.steps.jumps is None

    @property
    def direction(self) -> Array:
        return jnp.where(self.times[-1] >= self.times[0], 1, -1).astype(self.times.dtype)

    @property
    def span(self) -> Array:
        return jnp.abs(self.times[-1] - self.times[0])

    @property
    def start(self) -> Array:
        """The first time at which to look at the field."""
        return self.within(self.times[0], self.direction * self.span, 0)

    def within(self, t: Array, step: Array, share: float) -> Array:
        """The time at that share of a step from t, on the step's side of jumps at its ends."""
        if self.steps.jumps is None:
            return t + share * step
        length = jnp.abs(step)
        edge = jnp.minimum(self.steps.gap, length / 4)
        low, high = (jnp.where(self._is_jump(end), edge, 0) for end in (t, t + step))
        return t + self.direction * jnp.clip(share * length, low, length - high)

    def _is_jump(self, t: Array) -> Bool[Array, ""]:
        jumps = self.steps.jumps
        return jnp.asarray(False) if jumps is None else jnp.any(jnp.abs(jumps - t) <= self.steps.gap)

    def target(self, t: Array) -> Array:
        """The next time to step onto: a jump of the field between t and the end, or the end."""
        end, jumps = self.times[-1], self.steps.jumps
        if jumps is None or jumps.shape[0] == 0:
            return end
        gap = self.steps.gap
        ahead, behind = self.direction * (jumps - t), self.direction * (end - jumps)
        ahead = jnp.where((ahead > gap) & (behind > gap), ahead, jnp.inf)
        return jnp.where(jnp.isfinite(jnp.min(ahead)), jumps[jnp.argmin(ahead)], end)


class Lane(NamedTuple):
    """A solve on its way: where it is, the slope there, and the length of the step to try.

    `opening` is what the first step should have been, by its error.
    """

    t: Float[Array, ""]
    y: PyTree
    slope: PyTree
    h: Float[Array, ""]
    opening: Float[Array, ""]
    done: Bool[Array, ""]
    cause: Int[Array, ""]
    accepted: Int[Array, ""]
    rejected: Int[Array, ""]


def start(problem: Problem) -> Lane:
    """At t0, with a first step to try."""
    t0, y0, steps = problem.times[0], problem.y0, problem.steps
    slope = problem.field(problem.start, y0, problem.args)
    if steps.first_step is not None:
        h = steps.first_step
    elif steps.guess is not None:
        h = jax.lax.cond(steps.guess > 0, lambda: steps.guess, lambda: _first_step(problem, slope))
    else:
        h = _first_step(problem, slope)
    # A field that is not finite gives no length; the first step will find out and say so.
    h = jnp.where(jnp.isfinite(h) & (h > 0), jnp.minimum(h, problem.span), problem.span / 20).astype(t0.dtype)
    zero = jnp.zeros((), jnp.int32)
    return Lane(t0, y0, slope, h, jnp.zeros_like(h), t0 == problem.times[-1], zero, zero, zero)


def _first_step(problem: Problem, slope: PyTree) -> Array:
    """The first step by Hairer, Norsett and Wanner (Solving ODEs I, II.4)."""
    t0, y0, steps = problem.times[0], problem.y0, problem.steps
    scale = jax.tree.map(lambda y: steps.atol + steps.rtol * jnp.abs(y), y0)

    def size(x):
        return steps.norm(jax.tree.map(lambda x, s: x / s, x, scale))

    d0, d1 = size(y0), size(slope)
    tiny = (d0 < 1e-5) | (d1 < 1e-5)
    h0 = jnp.where(tiny, 1e-6, 0.01 * d0 / jnp.where(tiny, 1, d1)).astype(t0.dtype)
    h0 = jnp.minimum(h0, problem.span)
    step = problem.direction * h0
    ahead = problem.field(problem.start + step, combine(y0, step, [1.0], [slope]), problem.args)
    d2 = size(jax.tree.map(jnp.subtract, ahead, slope)) / jnp.where(h0 > 0, h0, 1)
    worst = jnp.maximum(d1, d2)
    h1 = jnp.where(worst > 1e-15, (0.01 / jnp.where(worst > 1e-15, worst, 1)) ** (1 / (problem.pair.order + 1)), 0)
    h1 = jnp.where(worst > 1e-15, h1, jnp.maximum(1e-6, h0 * 1e-3)).astype(t0.dtype)
    return jnp.minimum(100 * h0, h1)


def stages(problem: Problem, y: PyTree, t: Array, step: Array, slope: PyTree | None) -> tuple[list[PyTree], PyTree]:
    """The slopes k_i of a step from (t, y), and where it ends. Without the first slope it is computed."""
    pair = problem.pair
    ks = []
    for i, (c, row) in enumerate(pair.rows):
        if i == 0 and slope is not None:
            ks.append(slope)
        else:
            ks.append(problem.field(problem.within(t, step, c), combine(y, step, row, ks), problem.args))
    return ks, combine(y, step, pair.weights, ks)


def attempt(problem: Problem, lane: Lane) -> tuple[Lane, Piece | None]:
    """Try a step: the lane after it, which stays where it was if the step is rejected or there is none to take.

    With it comes the solution over the step, if there are outputs that could lie inside.
    """
    steps, pair = problem.steps, problem.pair
    end, target = problem.times[-1], problem.target(lane.t)
    left = jnp.abs(target - lane.t)
    # A last step may stretch by a hair, so that none is left over by rounding.
    lands = lane.h >= left * (1 - 1e-5)
    length = jnp.where(lands, left, lane.h)
    step = problem.direction * length
    ks, y1 = stages(problem, lane.y, lane.t, step, lane.slope if problem.fsal else None)
    t1 = jnp.where(lands, target, lane.t + step)

    error = combine(None, step, pair.error, ks)
    scaled = jax.tree.map(
        lambda e, a, b: e / (steps.atol + steps.rtol * jnp.maximum(jnp.abs(a), jnp.abs(b))), error, lane.y, y1
    )
    ratio = steps.norm(scaled)
    # The error too: a slope at the end that is not finite shows nowhere else.
    finite = all_finite((y1, error))
    keep = finite & (ratio < 1) & ~lane.done
    factor = _SAFETY * jnp.where(ratio > 0, ratio, 1) ** (-1 / pair.order)
    factor = jnp.where(ratio == 0, _GROW, factor)
    factor = jnp.clip(jnp.where(finite, factor, _SHRINK), jnp.where(keep, 1, _SHRINK), _GROW)
    h = (length * factor.astype(length.dtype)).astype(length.dtype)
    # A step that was cut short and taken says nothing against the length there was before.
    h = jnp.where(keep & lands, jnp.maximum(h, lane.h), h)

    eps = jnp.finfo(lane.t.dtype).eps
    stuck = ~keep & ~lane.done & (h <= 16 * eps * jnp.maximum(jnp.abs(lane.t), 1e-6 * problem.span))
    why = jnp.where(finite, Status.STEP_UNDERFLOW.value, Status.NOT_FINITE.value)
    t_after = jnp.where(keep, t1, lane.t)
    piece = None
    if problem.times.shape[0] > 2:
        piece = Piece(lane.t, t_after, _interpolate_apart(pair, lane.y, step, ks))
    lane = Lane(
        t=t_after,
        y=_where(keep, y1, lane.y),
        slope=_where(keep, ks[-1], lane.slope) if problem.fsal else lane.slope,
        h=jnp.where(lane.done, lane.h, h),
        opening=jnp.where(keep & (lane.accepted == 0), h, lane.opening),
        done=lane.done | stuck | (keep & lands & (target == end)),
        cause=jnp.where(stuck, why, lane.cause).astype(lane.cause.dtype),
        accepted=lane.accepted + keep.astype(jnp.int32),
        rejected=lane.rejected + (~keep & ~lane.done).astype(jnp.int32),
    )
    return lane, piece


def _interpolate_apart(pair: Pair, y: PyTree, step: Array, ks: list[PyTree]) -> PyTree:
    """`interpolate`, which every output reads from: fused with that on a CPU, it would be computed as many times."""
    plain = functools.partial(interpolate, pair)
    return jax.lax.platform_dependent(y, step, ks, cpu=functools.partial(keep_apart, plain), default=plain)


def _where(condition, new, old):
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), new, old)
