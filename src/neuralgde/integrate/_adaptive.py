"""Adaptive explicit Runge-Kutta steps in one loop, whose gradient goes back over the steps that were accepted."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PyTree

from ..graph._loop import keep_apart
from ._control import all_finite, expand
from ._engines import Outcome, Steps, VectorField, combine
from ._lanes import map_lanes, over_lanes
from ._outputs import Piece, block_size, fill_blocks, interpolate, read_back, write
from ._record import Record, new_record, note_step, thin, walk_back
from ._solvers import Pair, explicit_pair
from ._status import Status

_SAFETY, _SHRINK, _GROW = 0.9, 0.2, 10.0


class _Problem(eqx.Module):
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


def _problem(inputs: tuple[PyTree, Any, Array], steps: Steps, field: VectorField) -> _Problem:
    y0, args, times = inputs
    return _Problem(y0, args, times, steps, field)


class _Lane(NamedTuple):
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


def can_adapt(steps: Steps) -> bool:
    """Whether `run_adaptive` can take these steps."""
    return steps.dt is None and not steps.jumps_move and explicit_pair(steps.solver) is not None


def run_adaptive(field: VectorField, y0: PyTree, times: Float[Array, " times"], args: Any, steps: Steps) -> Outcome:
    """As `run_diffrax` with its checkpoints, where it can take the steps; several times faster on small systems.

    Under `vmap` each solve keeps its own steps, and all of them share one loop.
    """
    arrays, rest = eqx.partition(steps, eqx.is_inexact_array)
    # The choice of steps is not differentiated.
    steps = eqx.combine(jax.lax.stop_gradient(arrays), rest)
    return _differentiable((y0, args, times), field, steps)


@eqx.filter_custom_vjp
def _differentiable(inputs: tuple[PyTree, Any, Array], field: VectorField, steps: Steps) -> Outcome:
    return over_lanes(_outcome, _problem(inputs, steps, field))


@_differentiable.def_fwd
def _fwd(perturbed, inputs, field, steps):
    del perturbed
    outcome, record = over_lanes(_forward, _problem(inputs, steps, field))
    return outcome, (record, outcome.states)


@_differentiable.def_bwd
def _bwd(residuals, grad_outcome, perturbed, inputs, field, steps):
    record, states = residuals
    _, args, times = inputs
    _, wanted, times_wanted = perturbed
    # States may have None among them, as the gradients of what is not differentiated.
    grads = jax.tree.map(
        lambda y, g: jnp.zeros_like(y) if g is None and y is not None else g,
        states,
        grad_outcome.states,
        is_leaf=lambda x: x is None,
    )
    problem = _problem(inputs, steps, field)
    adjoint, grad_args = over_lanes(lambda inputs, axes: _backward(inputs, axes, wanted), (problem, record, grads))
    if not times_wanted:
        return adjoint, grad_args, None
    # An output's derivative in its time is the field there; a solve that starts later misses what the field did.
    at = times
    if steps.jumps is not None:
        # A field that jumps at an output counts as it was before, and at the start as it is behind.
        inwards = problem.direction * jnp.minimum(steps.gap, problem.span / 4)
        at = jnp.where(times == times[0], times + inwards, times - inwards)
    slopes = jax.vmap(lambda t, y: field(t, y, args))(at, states)
    moved = jax.tree.map(lambda g, s: jnp.sum(g * s, axis=range(1, g.ndim)), grads, slopes)
    missed = jax.tree.map(lambda a, s: jnp.sum(a * s[0]), adjoint, slopes)
    return adjoint, grad_args, jax.tree.reduce(jnp.add, moved).at[0].add(-jax.tree.reduce(jnp.add, missed))


def _outcome(problem: _Problem, axes) -> tuple[Outcome, Any]:
    """The solve where no gradient goes back over its steps: nothing of them is kept."""
    limit = problem.steps.max_steps
    start, advance = _set_out(problem, axes)
    (lanes, outputs), _ = jax.lax.while_loop(
        lambda carry: ~jnp.all(carry[0][0].done) & (carry[1] < limit),
        lambda carry: (advance(*carry[0]), carry[1] + 1),
        (start, jnp.asarray(0)),
    )
    outcome = map_lanes(_finish, problem, axes)(lanes, outputs)
    return outcome, jax.tree.map(lambda _: True, outcome)


def _forward(problem: _Problem, axes) -> tuple[tuple[Outcome, Record], tuple]:
    limit = problem.steps.max_steps
    (lanes, outputs), advance = _set_out(problem, axes)
    record = new_record(lanes.t, lanes.y, limit, lanes=axes is not None)

    def go_on(carry):
        lanes, _, record = carry
        return ~jnp.all(lanes.done) & (record.tried < limit)

    def step(carry):
        lanes, outputs, record = carry
        after, outputs = advance(lanes, outputs)
        return after, outputs, note_step(record, after.t, lanes.y, lanes=axes is not None)

    def until_full(carry):
        lanes, outputs, record = carry
        # Not behind the loop: a record that the last step fills need not be thinned.
        carry = lanes, outputs, thin(record, lanes=axes is not None)
        return jax.lax.while_loop(lambda c: go_on(c) & ~c[2].full, step, carry)

    lanes, outputs, record = jax.lax.while_loop(go_on, until_full, (lanes, outputs, record))
    outcome = map_lanes(_finish, problem, axes)(lanes, outputs)
    on_lanes = jax.tree.map(lambda _: True, (outcome, record))
    return (outcome, record), (on_lanes[0], record.lane_axes())


def _set_out(problem: _Problem, axes) -> tuple[tuple[_Lane, PyTree], Callable]:
    """All lanes at the start, with room for outputs if there are any on the way; and what takes them a step on."""
    times, y0 = map_lanes(_times_and_start, problem, axes)()
    axis, count = times.ndim - 1, times.shape[-1]
    times, block = _in_blocks(times, y0)
    outputs = None
    if count > 2:
        # What no step reaches stays as it is: outputs at the start.
        shape = times.shape[-1:]
        outputs = jax.tree.map(
            lambda y: jnp.broadcast_to(jnp.expand_dims(y, axis), (*y.shape[:axis], *shape, *y.shape[axis:])), y0
        )
    attempt = map_lanes(_attempt, problem, axes)

    def advance(lanes, outputs):
        lanes, piece = attempt(lanes)
        return lanes, outputs if piece is None else write(outputs, times, piece, block)

    return (map_lanes(_start, problem, axes)(), outputs), advance


def _times_and_start(problem: _Problem) -> tuple[Array, PyTree]:
    return problem.times, problem.y0


def _in_blocks(times: Float[Array, "*lanes times"], y0: PyTree) -> tuple[Float[Array, "*lanes more_times"], int]:
    """The output times with the last repeated until blocks are full, and how many are a block."""
    block = block_size(times.shape[-1], y0)
    return fill_blocks(times, times.ndim - 1, block, mode="edge"), block


def _start(problem: _Problem) -> _Lane:
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
    return _Lane(t0, y0, slope, h, jnp.zeros_like(h), t0 == problem.times[-1], zero, zero, zero)


def _first_step(problem: _Problem, slope: PyTree) -> Array:
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


def _stages(problem: _Problem, y: PyTree, t: Array, step: Array, slope: PyTree | None) -> tuple[list[PyTree], PyTree]:
    """The slopes k_i of a step from (t, y), and where it ends. Without the first slope it is computed."""
    pair = problem.pair
    ks = []
    for i, (c, row) in enumerate(pair.rows):
        if i == 0 and slope is not None:
            ks.append(slope)
        else:
            ks.append(problem.field(problem.within(t, step, c), combine(y, step, row, ks), problem.args))
    return ks, combine(y, step, pair.weights, ks)


def _attempt(problem: _Problem, lane: _Lane) -> tuple[_Lane, Piece | None]:
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
    ks, y1 = _stages(problem, lane.y, lane.t, step, lane.slope if problem.fsal else None)
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
    lane = _Lane(
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


def _finish(problem: _Problem, lane: _Lane, outputs: PyTree) -> Outcome:
    reached_end = lane.t == problem.times[-1]
    status = jnp.where(reached_end, Status.SUCCESS.value, Status.MAX_STEPS.value)
    status = jnp.where(lane.cause != Status.SUCCESS, lane.cause, status)
    if outputs is None:
        states = jax.tree.map(lambda a, b: jnp.stack([a, b]), problem.y0, lane.y)
    else:
        states = jax.tree.map(lambda x: x[: problem.times.shape[0]], outputs)
    tried = lane.accepted + lane.rejected
    stages, once = len(problem.pair.rows), 1 + (problem.steps.first_step is None)
    if problem.steps.first_step is None and problem.steps.guess is not None:
        once = once - (problem.steps.guess > 0).astype(jnp.int32)
    # Where there is nowhere to go, the slope at the start is all that was looked at.
    evaluations = once + (stages - problem.fsal) * tried
    stats = {
        "num_steps": tried,
        "num_accepted_steps": lane.accepted,
        "num_rejected_steps": lane.rejected,
        "num_evaluations": evaluations,
    }
    return Outcome(states, status, lane.t, stats, lane.opening)


def _backward(inputs: tuple[_Problem, Record, PyTree], axes, wanted) -> tuple[tuple, Any]:
    """The gradient in y0 and in what is wanted of args, given the gradients of all outputs."""
    record = inputs[1]
    if axes is not None and record.times.ndim == 1:
        # Many gradients of one solve: each gets the record.
        times, states = map_lanes(lambda inputs: inputs[1][-2:], inputs, axes)()
        record = record._replace(times=times, states=states)

    def begin(inputs):
        problem, _, grads = inputs
        theta = eqx.filter(problem.args, wanted)
        adjoint = jax.tree.map(lambda g: g[-1] if problem.times.shape[0] == 2 else jnp.zeros_like(g[-1]), grads)
        return adjoint, jax.tree.map(jnp.zeros_like, theta)

    def forth(inputs, y, t, end):
        return _stages(inputs[0], y, t, end - t, None)[1]

    def back_one(inputs, carry, y, t, end, by_q):
        problem, _, _ = inputs
        step = end - t
        adjoint, grad_theta = carry
        theta, rest = eqx.partition(problem.args, wanted)

        def run(y, theta):
            at = eqx.tree_at(lambda p: p.args, problem, eqx.combine(theta, rest), is_leaf=lambda x: x is None)
            ks, y1 = _stages(at, y, t, step, None)
            return y1, None if by_q is None else interpolate(problem.pair, y, step, ks)

        _, pull = jax.vjp(run, y, theta)
        by_y, by_theta = pull((adjoint, by_q))
        return by_y, jax.tree.map(jnp.add, grad_theta, by_theta)

    def end(inputs, carry):
        problem, _, grads = inputs
        adjoint, grad_theta = carry
        if problem.times.shape[0] == 2:
            here = jax.tree.map(lambda g: g[0], grads)
        else:
            at_start = problem.times == problem.times[0]
            here = jax.tree.map(lambda g: jnp.sum(jnp.where(expand(at_start, g), g, 0), axis=0), grads)
        return jax.tree.map(jnp.add, adjoint, here), grad_theta

    (times, y0), all_grads = map_lanes(lambda inputs: (_times_and_start(inputs[0]), inputs[2]), inputs, axes)()
    on_the_way = times.shape[-1] > 2
    times, block = _in_blocks(times, y0)
    all_grads = jax.tree.map(lambda g: fill_blocks(g, times.ndim - 1, block), all_grads)
    terms = 1 + inputs[0].pair.dense.shape[1]

    def back(carry, y, t, end):
        by_q = read_back(all_grads, times, t, end, terms, block) if on_the_way else None
        return map_lanes(back_one, inputs, axes)(carry, y, t, end, by_q)

    carry = map_lanes(begin, inputs, axes)()
    carry = walk_back(record, carry, map_lanes(forth, inputs, axes), back, lanes=axes is not None)
    out = map_lanes(end, inputs, axes)(carry)
    return out, jax.tree.map(lambda _: True, out)


def _where(condition, new, old):
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), new, old)
