"""`solve_sde`: the one door to the integrators of stochastic differential equations on graphs."""

import math
from collections.abc import Callable, Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, ArrayLike, PRNGKeyArray

from .._errors import InputError, unknown_name
from ..field import breakpoints_of, prepare_graph
from ..field._protocol import merge_breakpoints
from ..graph import Graph
from ._brownian import LENGTHS, BrownianPath
from ._checks import as_state, as_times, check_positive, times_are_right
from ._control import expand, gap_around, step_count
from ._failure import raise_or_return
from ._ode import _lift_closure
from ._sde_adjoints import integrate
from ._sde_engine import Steps
from ._sde_equation import Equation
from ._sde_methods import SDE_SOLVERS
from ._sde_noise import is_componentwise
from ._solution import Solution
from ._status import Status

COUNTS = ("num_steps", "num_accepted_steps", "num_rejected_steps", "num_evaluations")
ADJOINTS = ("checkpoint", "backsolve")
INTERPRETATIONS = ("stratonovich", "ito")
# Ito's correction for coupled noise takes a derivative per number of the state, at every evaluation.
LARGEST_ITO_STATE = 1024
# All states of a solve are kept for its gradient up to this size; beyond, every so many, and the rest is done again.
KEEP_ALL_BYTES = 2**26


def solve_sde(
    drift: Callable[..., Array],
    diffusion: Callable[..., Array],
    z0: ArrayLike,
    times: ArrayLike | Sequence[float],
    graph: Graph | None = None,
    *,
    key: PRNGKeyArray,
    solver: str = "euler_heun",
    interpretation: str = "stratonovich",
    rtol: float = 1e-3,
    atol: float = 1e-3,
    dt0: float | Array | None = None,
    first_step: float | Array | None = None,
    adjoint: str = "checkpoint",
    max_steps: int = 4096,
    throw: bool = True,
) -> Solution:
    """Solve dz = drift(t, z, graph) dt + diffusion(t, z, graph) ∘ dW from z0 at `times[0]`; the states at all `times`.

    Noise is diagonal: W has a component for each number in z, and the diffusion has the shape of z.

    **Arguments**

    - `drift`, `diffusion`: fields of this package, or any functions of (t, z, graph).
    - `z0`: the state at `times[0]`, (nodes, features); without a graph, any shape. A batch, (batch, nodes, features),
      has a path, steps and a status for each trajectory, as if each was solved alone with a key of
      `jax.random.split(key, batch)`. `times` and graph are those of all, or have a leading batch axis.
    - `times`: in either direction, |t| < 2^30; repeated times are fine.
    - `key`: names a Brownian path W(t) for all t. Solves with one key and one shape of state share it, whatever their
      solver, steps and times: one that goes on from where another ended goes on along its path.
    - `solver`: "euler_heun", "heun", "midpoint" or "milstein". Their strong order is 1 where the noise is
      componentwise, each number's diffusion a function of that number alone, and 1/2 where it is coupled, as over a
      graph. Milstein's method is for componentwise noise only, and refuses other noise. Without `dt0` the steps adapt
      to `rtol` and `atol`: a step is taken once and in two halves, and the difference is its error. With `dt0` they are
      fixed: each interval between times is cut into the fewest equal steps no longer than `dt0`.
    - `interpretation`: "ito" subtracts half of g_i dg_i/dz_i from the drift, which then is Stratonovich's.
    - `adjoint`: "checkpoint" differentiates the accepted steps; "backsolve" solves the adjoint equation backwards along
      the same path (Li et al. 2020), with memory that does not grow with the steps, for all solvers but "milstein".
    - `first_step`, `max_steps`, `throw`: as in `solve`. `stats` count for each trajectory; `num_evaluations` are those
      of drift and diffusion together.
    """
    z0 = as_state(z0)
    batched = graph is not None and z0.ndim == 3
    times, host_times = as_times(times, z0, batched)
    _check(z0, graph, solver, interpretation, adjoint, max_steps, dt0, first_step)
    if host_times is not None and np.abs(host_times).max() >= LENGTHS.sum():
        raise InputError(f"times: expected |t| < 2^30, got {np.abs(host_times).max()}. Take another unit of time.")
    method = SDE_SOLVERS[solver]
    drift, diffusion = (_lift_closure(field, z0, graph, batched) for field in (drift, diffusion))
    z0 = z0 if batched else z0[None]
    # Every trajectory has steps of its own.
    times = jnp.broadcast_to(times, (z0.shape[0], times.shape[-1]))
    componentwise = (method.componentwise or interpretation == "ito") and _is_componentwise(diffusion, z0, times, graph)
    _check_noise(method, solver, interpretation, componentwise, z0)

    jumps = merge_breakpoints(breakpoints_of(drift), breakpoints_of(diffusion))
    limit = max_steps
    if host_times is not None and isinstance(dt0, int | float) and not isinstance(jumps, Tracer):
        limit = _count_steps(np.atleast_2d(host_times), dt0, jumps)
    keep_every = 0
    if adjoint == "checkpoint":
        keep_every = 1 if z0.nbytes * limit <= KEEP_ALL_BYTES else math.ceil(math.sqrt(limit))

    def scalar(x):
        return None if x is None else jnp.asarray(x, z0.dtype)

    sol = _solve(
        Equation(drift, diffusion, graph, interpretation == "ito", componentwise), z0, times, key, jumps, scalar(dt0),
        scalar(first_step), solver, scalar(rtol), scalar(atol), limit, keep_every, batched,
    )  # fmt: skip
    return raise_or_return(sol, (drift, diffusion), max_steps) if throw else sol


@eqx.filter_jit
def _solve(
    equation, z0, times, key, jumps, dt, first_step, solver, rtol, atol, max_steps, keep_every, batched
) -> Solution:
    batch = z0.shape[0]
    mask, gap = None, None
    if (graph := equation.graph) is not None:

        def prepare(graph):
            return prepare_graph(equation.diffusion, prepare_graph(equation.drift, graph))

        graph = eqx.filter_vmap(prepare)(graph) if graph.senders.ndim == 2 else prepare(graph)
        equation = eqx.tree_at(lambda e: e.graph, equation, graph)
        mask = jnp.broadcast_to(graph.node_mask, z0.shape[:2])
    knots, places = times, jnp.broadcast_to(jnp.arange(times.shape[1]), times.shape)
    if jumps is not None:
        gap = gap_around(times)
        knots, places = jax.vmap(_with_jumps, in_axes=(0, None))(times, jnp.asarray(jumps, z0.dtype))
    knots, paths = jax.lax.stop_gradient((knots, _paths(key, z0, batched)))
    right_times = jax.vmap(times_are_right)(times) & (jnp.max(jnp.abs(times), axis=1) < LENGTHS.sum())
    finite = jnp.all(jnp.isfinite(z0.reshape(batch, -1)), axis=1)
    status = jnp.where(finite, Status.SUCCESS.value, Status.BAD_STATE.value)
    status = jnp.where(right_times, status, Status.BAD_TIMES.value).astype(jnp.int32)

    if knots.shape[1] == 1:
        counts = jnp.zeros(batch, jnp.int32)
        states, reached, stats = z0[:, None], times[:, 0], {name: counts for name in COUNTS}
    else:
        steps = Steps(SDE_SOLVERS[solver], rtol, atol, dt, first_step, gap, mask, max_steps, keep_every)
        outcome = integrate((z0, equation), knots, paths, status, steps)
        states, status, reached, stats = outcome
        states = jax.vmap(lambda s, j: s[j])(states, places)

    forward = times[:, -1:] >= times[:, :1]
    behind = jnp.where(forward, times > reached[:, None], times < reached[:, None])
    lost = (status != Status.SUCCESS)[:, None] & behind
    states = jnp.where(expand(lost, states), jnp.nan, states)
    sol = Solution(times, states, status, reached, stats)
    return sol if batched else jax.tree.map(lambda x: x[0], sol)


def _paths(key: PRNGKeyArray, z0: Array, batched: bool) -> BrownianPath:
    keys = jax.random.split(key, z0.shape[0]) if batched else jnp.asarray(key)[None]
    return eqx.filter_vmap(lambda key: BrownianPath(key, z0.shape[1:], z0.dtype))(keys)


def _with_jumps(times: Array, jumps: Array) -> tuple[Array, Array]:
    """The times and the jumps between them, in the times' order, and where among these each time is."""
    direction = jnp.where(times[-1] >= times[0], 1, -1).astype(times.dtype)
    inside = jnp.clip(jumps, jnp.minimum(times[0], times[-1]), jnp.maximum(times[0], times[-1]))
    knots = jnp.sort(jnp.concatenate([times, inside]) * direction)
    return knots * direction, jnp.searchsorted(knots, times * direction)


def _count_steps(times: np.ndarray, dt0: float, jumps) -> int:
    """How many fixed steps the longest trajectory takes; a power of two, so that similar solves share a program."""
    counts = []
    for row in times:
        knots = np.sort(row)
        if jumps is not None:
            knots = np.sort(np.concatenate([knots, np.clip(np.asarray(jumps, float), knots[0], knots[-1])]))
        counts.append(step_count(np.diff(knots), dt0 * (1 - 1e-3), np).sum())
    return 2 ** math.ceil(math.log2(max(max(counts), 1) + 1))


def _is_componentwise(diffusion, z0, times, graph) -> bool:
    if graph is not None and graph.senders.ndim == 2:
        graph = jax.tree.map(lambda x: x[0], graph)
    return is_componentwise(diffusion, times[0, 0], z0[0], graph)


def _check(z0, graph, solver, interpretation, adjoint, max_steps, dt0, first_step) -> None:
    for kind, name, known in (
        ("solver", solver, SDE_SOLVERS),
        ("interpretation", interpretation, INTERPRETATIONS),
        ("adjoint", adjoint, ADJOINTS),
    ):
        if not isinstance(name, str) or name not in known:
            raise InputError(unknown_name(kind, name, known))
    if graph is not None and z0.shape[-2:-1] != (graph.num_nodes,):
        raise InputError(
            f"z0: expected shape ({graph.num_nodes}, features), one row per node of the graph, got {z0.shape}."
        )
    if adjoint == "backsolve" and SDE_SOLVERS[solver].componentwise:
        raise InputError(
            f"adjoint: the noise of the adjoint equation is not componentwise, so 'backsolve' cannot use {solver!r}. "
            "Take solver='heun', or adjoint='checkpoint'."
        )
    check_positive(dt0, first_step, max_steps)


def _check_noise(method, solver, interpretation, componentwise, z0) -> None:
    if componentwise:
        return
    why = "could not be shown to act on each number of z by itself"
    if method.componentwise:
        raise InputError(
            f"solver: {solver!r} needs componentwise noise, and this diffusion {why}: noise coupled over nodes or "
            "features has terms that it leaves out. Take 'heun' or 'midpoint', or write the diffusion elementwise in z."
        )
    if interpretation == "ito" and z0[0].size > LARGEST_ITO_STATE:
        raise InputError(
            f"interpretation: this diffusion {why}, and Ito's correction for coupled noise takes as many derivatives "
            f"as there are numbers in the state, {z0[0].size}, more than {LARGEST_ITO_STATE}. Give the Stratonovich "
            "drift, which is Ito's minus half of g_i dg_i/dz_i."
        )
