"""`solve_hybrid`: the state flows between the observations of a stream and jumps at each of them."""

from collections.abc import Callable, Sequence
from typing import Any

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, ArrayLike

from .._errors import InputError
from ..graph import GraphStream
from ._checks import as_state
from ._failure import raise_or_return
from ._hybrid_config import HybridConfig, HybridSolution
from ._hybrid_event import Event
from ._hybrid_flow import Dynamics
from ._hybrid_run import run_hybrid
from ._ode import _lift_closure
from ._solvers import explicit_stages


def solve_hybrid(
    flow: Callable[..., Array] | None,
    jump: Callable[..., Array],
    z0: ArrayLike,
    stream: GraphStream,
    times: ArrayLike | Sequence[float] = (),
    *,
    t0: ArrayLike | None = None,
    event: Event | None = None,
    solver: str | diffrax.AbstractSolver = "heun",
    num_steps: int | None = 2,
    rtol: float = 1e-4,
    atol: float = 1e-6,
    first_step: float | None = None,
    adjoint: str | None = None,
    max_steps: int = 4096,
    throw: bool = True,
) -> HybridSolution:
    """Solve dz/dt = flow(t, z, G_k) over [t_k, t_k+1] with z+ = jump(t_k, z, x_k, mask_k, G_k) at the times t_k.

    **Arguments**

    - `flow`: a vector field, as in `solve`; None lets the state stand still.
    - `jump(t, z, x, mask, graph)`: the state after an observation. What was not observed is 0 in x and False in the
      mask, both (nodes, features); inputs of the stream, which are always known, follow as further features.
    - `z0`: the state at `t0`, (nodes, features), or (batch, nodes, features) for a batch of streams. Absent nodes hold
      their row of it, and a node that joins starts from there.
    - `stream`: one stream or a batch of them, each with its own times and its own graphs, or all on one graph: then all
      are multiplied by it at once. Padding steps do nothing, so that streams of different length share a program.
    - `times`: where states are wanted, (times,) or (batch, times), in any order. They do not change the solution: each
      is a flow of its own from the jump before it. At t_k itself it is the state before the jump.
    - `t0`: when the state is z0, by default the time of the first observation. What comes before that observation flows
      on its graph.
    - `event`: a jump that the state triggers, with fixed steps alone.
    - `solver`, `num_steps`: an interval is cut into so many equal steps. None adapts them to `rtol` and `atol`, from
      `first_step` on, a share of the interval; a batch shares its steps.
    - `adjoint`: "direct" stores what every step needs, the default for fixed steps; "checkpoint" stores less and
      computes it again, the default for adaptive ones; "backsolve" solves the adjoint equation backwards over every
      interval, with jumps of its own in between: its memory does not grow with the number of steps in an interval.
    - `max_steps`: how many adaptive steps an interval may take.
    - `throw`: as in `solve`.
    """
    config = HybridConfig(solver, num_steps, rtol, atol, first_step, adjoint, max_steps).checked()
    z0 = as_state(z0)
    batch = stream.times.shape[:-1]
    nodes = stream.graphs.num_nodes
    if len(batch) > 1:
        raise InputError(f"stream: expected one stream or one axis of them, got a batch of shape {batch}. Use `vmap`.")
    if z0.shape[-2:-1] != (nodes,) or z0.shape[:-2] not in ((), batch):
        expected = f"({nodes}, features)" + (f" or ({batch[0]}, {nodes}, features)" if batch else "")
        raise InputError(f"z0: expected shape {expected}, a row for each node of the stream's graphs, got {z0.shape}.")
    if event is not None and (config.num_steps is None or config.adjoint == "backsolve"):
        raise InputError(
            "event: it is looked for between fixed steps. Give num_steps=…, and take adjoint 'direct' or 'checkpoint'."
        )
    assert isinstance(config.solver, diffrax.AbstractSolver)  # by HybridConfig.checked
    if event is not None and explicit_stages(config.solver) is None:
        raise InputError(
            f"event: it is looked for between the steps of an explicit method, and {type(config.solver).__name__} is "
            "none. Take a solver such as 'heun' or 'rk4'."
        )
    queries = _per_stream(times, "times", batch, 1).astype(z0.dtype)
    start = None if t0 is None else _per_stream(t0, "t0", batch, 0).astype(z0.dtype)
    _check_order(queries, start, stream)
    if getattr(flow, "__closure__", None):
        one_graph = jax.tree.map(lambda a: a[(0,) * (stream.graphs.senders.ndim - 1)], stream.graphs)
        flow = _lift_closure(flow, z0[0] if z0.ndim == 3 else z0, one_graph, False)
    sol = run_hybrid(
        Dynamics(flow, event, config),
        jump,
        jnp.broadcast_to(z0, (*batch, *z0.shape[-2:])),
        stream,
        jnp.asarray(queries),
        None if start is None else jnp.asarray(start),
    )
    return raise_or_return(sol, flow, max_steps) if throw else sol


def _per_stream(values: Any, name: str, batch: tuple[int, ...], axes: int) -> Any:
    """Times for one stream, or for each of a batch, on the host where they are known there."""
    traced = isinstance(values, Tracer)
    values = values if traced else np.asarray(values, float)
    if values.ndim < axes or values.shape[: values.ndim - axes] not in ((), batch):
        one, many = ("(times,)", "({}, times)") if axes else ("()", "({},)")
        expected = " or ".join([one, *(many.format(size) for size in batch)])
        raise InputError(f"{name}: expected shape {expected}, got {values.shape}.")
    return (jnp if traced else np).broadcast_to(values, (*batch, *values.shape[values.ndim - axes :]))


def _check_order(queries: Any, start: Any, stream: GraphStream) -> None:
    """What can be told on the host."""
    if any(isinstance(a, Tracer) for a in (queries, start, stream.times)):
        return
    first = np.asarray(stream.times)[..., 0].astype(queries.dtype)
    begin = first if start is None else start
    if bad := np.argwhere(~(begin <= first))[:1].tolist():
        at = tuple(bad[0])
        raise InputError(f"t0: expected no later than the first observation, at {first[at]}, got {begin[at]}.")
    if bad := np.argwhere(~((queries >= begin[..., None]) & np.isfinite(queries)))[:1].tolist():
        at = tuple(bad[0])
        expected = f"expected finite times, none before t0 = {begin[at[:-1]]}"
        raise InputError(f"times{bad[0]} is {queries[at]}: {expected}. Give an earlier t0.")
