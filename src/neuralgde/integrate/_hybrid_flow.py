"""The flow between two jumps, for a batch at once: every sample over its own span of time, rescaled to s in [0, 1]."""

from collections.abc import Callable
from typing import Any, NamedTuple

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..field import breakpoints_of
from ..graph import Graph
from ._clock import knots_of_breakpoints
from ._control import MaskedRMS, gap_around
from ._dispatch import run
from ._engines import Outcome, Steps
from ._hybrid_config import HybridConfig
from ._hybrid_event import Event, step_to_event
from ._hybrid_span import Span, over_states, rate, sample_axis
from ._solvers import Stages, explicit_stages
from ._status import Status

# So few steps are written out one after the other; more go through a loop, which compiles once.
UNROLLED = 4


class Dynamics(NamedTuple):
    """What moves the state between observations, and how it is solved."""

    flow: Callable | None
    event: Event | None
    config: HybridConfig


class Flown(NamedTuple):
    """The state at the end of an interval, and how it went; `opening` is how long its first adaptive step was to be."""

    z: Any
    status: Array
    num_steps: Array
    num_evaluations: Array | None
    num_events: Array
    opening: Array


def flow_over(
    dynamics: Dynamics,
    z: Array,
    start: Float[Array, " batch"],
    end: Float[Array, " batch"],
    graph: Graph,
    guess: Array,
) -> Flown:
    """The state of every sample at its `end`, from `z` at its `start`.

    Adaptive steps begin with `guess`, what would have been right in the interval before: it is nearer than any rule.
    """
    flow, event, config = dynamics
    zero = jnp.zeros((), jnp.int32)
    success = jnp.asarray(Status.SUCCESS.value)
    if flow is None:
        return Flown(z, success, zero, zero, zero, guess)
    span = Span(flow, graph, start, end - start)
    solver = config.solver
    assert isinstance(solver, diffrax.AbstractSolver)  # by HybridConfig.checked
    stages = explicit_stages(solver)
    if config.num_steps is None or config.adjoint == "backsolve" or stages is None:
        # Steps are shares of the interval, of which the longest of the batch decides.
        longest = jnp.max(span.length)
        moves = longest > 0
        outcome = _engine(z, span, solver, config, jnp.where(moves, guess / jnp.where(moves, longest, 1), 0))
        stats = outcome.stats
        # Where a solve failed its last state is one from on the way: nothing may be made of it.
        z = jnp.where(outcome.status == Status.SUCCESS, outcome.states[-1], jnp.nan)
        opening = guess
        if outcome.opening is not None:
            # Where no time passes nothing is learned of steps.
            opening = jax.lax.stop_gradient(jnp.where(moves, outcome.opening * longest, guess))
        return Flown(z, outcome.status, stats["num_steps"], stats["num_evaluations"], zero, opening)
    z, num_events = _fixed(z, span, stages, config.num_steps, event, remat=config.adjoint == "checkpoint")
    count = jnp.asarray(config.num_steps, jnp.int32)
    return Flown(z, success, count, count * len(stages.rows), num_events, guess)


def _fixed(z: Array, span: Span, stages: Stages, num_steps: int, event: Event | None, *, remat: bool):
    """Equal explicit steps."""
    h = 1 / num_steps

    def step(z, span, s, h):
        tall = (lambda x: over_states(x, span.graph)) if jnp.ndim(h) else (lambda x: x)
        ks: list[Array] = []
        for c, row in stages.rows:
            ks.append(rate(s + c * h, _combine(z, tall(h), row, ks), span))
        return _combine(z, tall(h), stages.weights, ks)

    def advance(z, span, s):
        if event is None:
            return step(z, span, s, h), jnp.zeros((), jnp.int32)
        return step_to_event(event, step, z, span, s, h)

    if remat:
        advance = eqx.filter_checkpoint(advance)
    if num_steps <= UNROLLED:
        total = jnp.zeros((), jnp.int32)
        for i in range(num_steps):
            z, count = advance(z, span, jnp.asarray(i * h, z.dtype))
            total = total + count
        return z, total
    grid = jnp.arange(num_steps, dtype=z.dtype) * h
    z, counts = jax.lax.scan(lambda z, s: advance(z, span, s), z, grid)
    return z, jnp.sum(counts, dtype=jnp.int32)


def _combine(z: Array, h: Any, weights: Any, ks: list[Array]) -> Array:
    terms = [float(w) * k for w, k in zip(weights, ks, strict=True) if w != 0]
    return z + h * sum(terms[1:], terms[0]) if terms else z


class _SampleRMS(eqx.Module):
    """The error norm where samples are the second axis."""

    norm: MaskedRMS

    def __call__(self, error: Array) -> Array:
        return self.norm(jnp.swapaxes(error, 0, 1))


def _engine(z: Array, span: Span, solver: diffrax.AbstractSolver, config: HybridConfig, guess: Array) -> Outcome:
    """Adaptive and implicit steps, and the continuous adjoint: one joint solve of all samples over s in [0, 1]."""
    flow, graph, start, length = span
    size = start.shape[0]
    norm = MaskedRMS(jnp.broadcast_to(graph.node_mask, (size, graph.num_nodes)), True)
    knots = jnp.asarray([0.0, 1.0], z.dtype)
    dt = first_step = jumps = None
    if config.num_steps is not None:
        dt = jnp.asarray(1 / config.num_steps, z.dtype)
    else:
        first_step = None if config.first_step is None else jnp.asarray(config.first_step, z.dtype)
        breakpoints = breakpoints_of(flow)
        if breakpoints is not None:
            ends = jnp.stack([start, start + length], axis=1)
            jumps = knots_of_breakpoints(jnp.asarray(breakpoints, z.dtype), ends, knots)
    steps = Steps(
        solver,
        config.rtol,
        config.atol,
        _SampleRMS(norm) if sample_axis(graph) else norm,
        dt,
        first_step,
        jumps,
        gap_around(knots),
        max(config.max_steps, (config.num_steps or 0) + 1),
        guess,
        jumps_move=jumps is not None,
    )
    assert config.adjoint is not None  # by HybridConfig.checked
    return run(rate, z, knots, span, steps, config.adjoint)
