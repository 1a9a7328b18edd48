"""Adaptive explicit Runge-Kutta steps in one loop, whose gradient goes back over the steps that were accepted."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from ._adaptive_step import Lane, Problem, attempt, stages, start
from ._control import expand
from ._engines import Outcome, Steps, VectorField
from ._lanes import map_lanes, over_lanes
from ._outputs import block_size, fill_blocks, interpolate, read_back, write
from ._record import Record, new_record, note_step, thin, walk_back
from ._solvers import explicit_pair
from ._status import Status


def _problem(inputs: tuple[PyTree, Any, Array], steps: Steps, field: VectorField) -> Problem:
    y0, args, times = inputs
    return Problem(y0, args, times, steps, field)


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


def _outcome(problem: Problem, axes) -> tuple[Outcome, Any]:
    """The solve where no gradient goes back over its steps: nothing of them is kept."""
    limit = problem.steps.max_steps
    carry, advance = _set_out(problem, axes)
    (lanes, outputs), _ = jax.lax.while_loop(
        lambda carry: ~jnp.all(carry[0][0].done) & (carry[1] < limit),
        lambda carry: (advance(*carry[0]), carry[1] + 1),
        (carry, jnp.asarray(0)),
    )
    outcome = map_lanes(_finish, problem, axes)(lanes, outputs)
    return outcome, jax.tree.map(lambda _: True, outcome)


def _forward(problem: Problem, axes) -> tuple[tuple[Outcome, Record], tuple]:
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


def _set_out(problem: Problem, axes) -> tuple[tuple[Lane, PyTree], Callable]:
    """All lanes at the start, with room for outputs if there are any on the way; and what takes them a step on."""
    times, y0 = map_lanes(_times_and_start, problem, axes)()
    on_the_way = times.shape[-1] > 2
    times, block = _in_blocks(times, y0)

    def room(problem):
        # No step comes to outputs at the start, which stay as they are.
        return jax.tree.map(lambda y: jnp.broadcast_to(y, (times.shape[-1], *y.shape)), problem.y0)

    def advance(lanes, outputs):
        lanes, piece = map_lanes(attempt, problem, axes)(lanes)
        return lanes, outputs if piece is None else write(outputs, times, piece, block)

    outputs = map_lanes(room, problem, axes)() if on_the_way else None
    return (map_lanes(start, problem, axes)(), outputs), advance


def _times_and_start(problem: Problem) -> tuple[Array, PyTree]:
    return problem.times, problem.y0


def _in_blocks(times: Float[Array, "*lanes times"], y0: PyTree) -> tuple[Float[Array, "*lanes more_times"], int]:
    """The output times with the last repeated until blocks are full, and how many are a block."""
    block = block_size(times.shape[-1], y0)
    return fill_blocks(times, times.ndim - 1, block, mode="edge"), block


def _finish(problem: Problem, lane: Lane, outputs: PyTree) -> Outcome:
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


def _backward(inputs: tuple[Problem, Record, PyTree], axes, wanted) -> tuple[tuple, Any]:
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
        return stages(inputs[0], y, t, end - t, None)[1]

    def back_one(inputs, carry, y, t, end, by_q):
        problem, _, _ = inputs
        step = end - t
        adjoint, grad_theta = carry
        theta, rest = eqx.partition(problem.args, wanted)

        def run(y, theta):
            at = eqx.tree_at(lambda p: p.args, problem, eqx.combine(theta, rest), is_leaf=lambda x: x is None)
            ks, y1 = stages(at, y, t, step, None)
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
