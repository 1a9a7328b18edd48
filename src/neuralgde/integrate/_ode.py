"""`solve`: the one door to the integrators of ordinary differential equations on graphs."""

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, ArrayLike

from .._errors import InputError, unknown_name
from ..field import breakpoints_of, prepare_graph
from ..graph import Graph
from ._checks import as_state, as_times, check_steps, times_are_right
from ._clock import Clock, knots_of_breakpoints, make_clock
from ._control import MaskedRMS, all_finite, expand, gap_around
from ._dispatch import run
from ._engines import Outcome, Schedule, Steps, make_schedule, run_scan
from ._failure import raise_or_return
from ._solution import Solution
from ._solvers import explicit_stages, find_solver
from ._status import Status

ADJOINTS = ("checkpoint", "backsolve", "direct")


def solve(
    field: Callable[..., Array],
    z0: ArrayLike,
    times: ArrayLike | Sequence[float],
    graph: Graph | None = None,
    *,
    solver: str | diffrax.AbstractSolver = "tsit5",
    rtol: float = 1e-4,
    atol: float = 1e-6,
    dt0: float | Array | None = None,
    first_step: float | Array | None = None,
    adjoint: str | diffrax.AbstractAdjoint = "checkpoint",
    max_steps: int = 4096,
    throw: bool = True,
) -> Solution:
    """Solve dz/dt = field(t, z, graph) from z0 at `times[0]`, and return the states at all `times`.

    **Arguments**

    - `field`: a field of this package, or any function of (t, z, graph).
    - `z0`: the state at `times[0]`, (nodes, features). A batch, (batch, nodes, features), is one joint solve: `times`
      are then (times,) for all, or (batch, times), and the graph is one for all or has a leading batch axis. The steps
      are shared, and small enough for the sample that needs the smallest.
    - `times`: in either direction; repeated times are fine.
    - `solver`: a name or a Diffrax solver. Without `dt0` the steps adapt to `rtol` and `atol`, starting from
      `first_step`, by default one that the field's size and change suggest. With `dt0` they are fixed: each interval
      between times is cut into the fewest equal steps no longer than `dt0`.
    - `adjoint`: "checkpoint" differentiates the steps taken and recomputes inside them; "direct" does so and stores
      everything; "backsolve" solves the adjoint equation backwards, with memory that does not grow with the steps.
      A gradient by it can itself be differentiated, in reverse mode.
    - `max_steps`: how many steps, rejected ones included, before an adaptive solve gives up; so many fixed steps too
      where `times` are traced and their number cannot be known before.
    - `throw`: raise `SolveError` where the solve fails; inside `jit`, JAX turns it into a runtime error with the same
      message. With False the part solved comes back, with a status.
    """
    z0 = as_state(z0)
    batched = graph is not None and z0.ndim == 3
    times, host_times = as_times(times, z0, batched)
    solver = find_solver(solver, fixed=dt0 is not None)
    check_steps(solver, dt0, first_step, max_steps)
    if isinstance(adjoint, str) and adjoint not in ADJOINTS:
        raise InputError(unknown_name("adjoint", adjoint, ADJOINTS) + " A Diffrax adjoint object works too.")
    if graph is not None and z0.shape[-2:-1] != (graph.num_nodes,):
        raise InputError(
            f"z0: expected shape ({graph.num_nodes}, features), one row per node of the graph, got {z0.shape}."
        )
    field = _lift_closure(field, z0, graph, batched)

    jumps = breakpoints_of(field)
    # A batch with times of its own meets breakpoints where those say.
    jumps_move = isinstance(jumps, Tracer) or (jumps is not None and times.ndim == 2 and host_times is None)
    schedule, limit = None, max_steps
    if host_times is not None and isinstance(dt0, int | float) and not isinstance(jumps, Tracer):
        schedule = _fixed_grid(host_times, dt0, jumps, z0.dtype)
        # A power of two, so that solves of similar length share a program.
        limit = max(limit, 2 ** math.ceil(math.log2(schedule.starts.shape[0] + 2)))
        if explicit_stages(solver) is None or adjoint not in ("checkpoint", "direct"):
            schedule = None

    def scalar(x):
        return None if x is None else jnp.asarray(x, z0.dtype)

    sol = _solve(
        field, z0, times, graph, jumps, jumps_move, scalar(dt0), scalar(first_step), schedule, solver, rtol, atol,
        adjoint, limit,
    )  # fmt: skip
    return raise_or_return(sol, field, max_steps) if throw else sol


@eqx.filter_jit
def _solve(
    field, z0, times, graph, jumps, jumps_move, dt, first_step, schedule, solver, rtol, atol, adjoint, max_steps
) -> Solution:
    batched = graph is not None and z0.ndim == 3
    own_times = times.ndim == 2
    mask = None
    if graph is not None:
        graph = _prepare(field, graph, batched)
        mask = jnp.broadcast_to(graph.node_mask, z0.shape[: 1 + batched])
    jumps = None if jumps is None else jnp.asarray(jumps, z0.dtype)
    clock, knots, gap = None, times, gap_around(times)
    if own_times:
        # Where the clock has its knots makes no difference to any sample: they are not differentiated.
        knots = jax.lax.stop_gradient(make_clock(times))
        clock = Clock(knots, times)
        if jumps is None:
            gap = gap_around(knots)
        else:
            jumps = knots_of_breakpoints(jumps, times, knots)
        if times.shape[1] > 2:
            # The rates dt_b/ds change at every output.
            jumps = knots[1:-1] if jumps is None else jnp.concatenate([jumps, knots[1:-1]])
    right_times = times_are_right(times)
    args = (field, graph, clock)

    if knots.shape[0] == 1:
        outcome = _nothing_to_solve(z0, knots)
    elif schedule is not None:
        stages = explicit_stages(solver)
        assert stages is not None
        outcome = run_scan(
            _vector_field, z0, schedule, args, stages, gap=None if jumps is None else gap, remat=adjoint == "checkpoint"
        )
    else:
        norm = MaskedRMS(mask, batched)
        steps = Steps(solver, rtol, atol, norm, dt, first_step, jumps, gap, max_steps, jumps_move=jumps_move)
        outcome = run(_vector_field, z0, knots, args, steps, adjoint)

    status = jnp.where(all_finite(z0), outcome.status, Status.BAD_STATE.value)
    status = jnp.where(right_times, status, Status.BAD_TIMES.value)
    behind = jnp.where(knots[-1] >= knots[0], knots > outcome.reached, knots < outcome.reached)
    lost = (status != Status.SUCCESS) & behind
    states = jnp.where(expand(lost, outcome.states), jnp.nan, outcome.states)
    reached = outcome.reached if clock is None else clock(outcome.reached)[0]
    if batched:
        states = jnp.moveaxis(states, 0, 1)
        times = jnp.broadcast_to(times, states.shape[:2])
        reached = jnp.broadcast_to(reached, states.shape[:1])
    return Solution(times, states, status, reached, outcome.stats)


# `jit` for the sake of its cache: every stage calls the field, which is traced once. XLA inlines it all the same.
@eqx.filter_jit
def _vector_field(t, z, args):
    field, graph, clock = args
    if graph is None:
        return field(t, z, graph)
    batched = z.ndim == 3
    t, rate = (t, None) if clock is None else clock(t)
    if batched:
        own_times, own_graphs = clock is not None, graph.senders.ndim == 2
        field = eqx.filter_vmap(field, in_axes=(0 if own_times else None, 0, 0 if own_graphs else None))
    dz = field(t, z, graph)
    if rate is not None:
        dz = dz * expand(rate, z)
    # Absent nodes stay as they are, so that nothing they might become can reach the others.
    mask = jnp.broadcast_to(graph.node_mask, z.shape[: 1 + batched])
    return jnp.where(expand(mask, dz), dz, 0)


def _fixed_grid(times: np.ndarray, dt: float, jumps, dtype) -> Schedule:
    """The steps, on the host; a batch's in the common variable of its clock."""
    jumps = None if jumps is None else np.asarray(jumps, float)
    if times.ndim == 1:
        return make_schedule(times, dt, jumps, dtype)
    knots = make_clock(times, np)
    return make_schedule(knots, dt, None if jumps is None else knots_of_breakpoints(jumps, times, knots, np), dtype)


def _prepare(field, graph: Graph, batched: bool) -> Graph:
    prepare = functools.partial(prepare_graph, field)
    return eqx.filter_vmap(prepare)(graph) if batched and graph.senders.ndim == 2 else prepare(graph)


def _nothing_to_solve(z0, times) -> Outcome:
    counts: dict[str, Any] = {"num_steps": 0, "num_accepted_steps": 0, "num_rejected_steps": 0, "num_evaluations": 0}
    return Outcome(z0[None], jnp.asarray(Status.SUCCESS.value), times[0], counts)


def _lift_closure(field, z0, graph, batched):
    """A function that closed over traced arrays, as a module that holds them, for adjoints to differentiate."""
    cells = getattr(field, "__closure__", None) or ()
    captured = jax.tree.leaves([cell.cell_contents for cell in cells])
    if not any(isinstance(leaf, Tracer) for leaf in captured):
        return field
    one = (lambda x: x[0]) if batched else (lambda x: x)
    sample_graph = graph
    if batched and graph.senders.ndim == 2:
        sample_graph = jax.tree.map(lambda x: x[0], graph)
    return eqx.filter_closure_convert(field, jnp.zeros((), z0.dtype), one(z0), sample_graph)
