"""The run of a hybrid solve: a scan over the steps of the stream, then one flow to all times asked for."""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from ..field import prepare_graph
from ..graph import Graph, GraphStream
from ._control import all_finite
from ._hybrid_config import HybridSolution
from ._hybrid_flow import Dynamics, Flown, flow_over
from ._hybrid_span import over_states, per_sample, present, sample_axis
from ._status import Status


class Steps(NamedTuple):
    """A batch of streams, time first. Graphs that change are those of each time, one for all samples or for each."""

    times: Float[Array, "steps batch"]
    x: Float[Array, "steps batch nodes features"]
    mask: Bool[Array, "steps batch nodes features"]
    real: Bool[Array, "steps batch"]
    graphs: Graph | None

    def at(self, k: int) -> "Steps":
        return jax.tree.map(lambda a: a[k], self)


@eqx.filter_jit
def run_hybrid(dynamics: Dynamics, jump: Callable, z0: Array, stream: GraphStream, queries: Array, t0: Array | None):
    """The solution for one stream, or for a batch of them: z0, queries and t0 have its axis too."""
    single = stream.times.ndim == 1
    steps = _time_first(stream, z0.dtype)
    if single:
        # A batch of one, so that its graph is one that "all" share.
        z0, queries, t0 = z0[None], queries[None], None if t0 is None else t0[None]

    def prepare(graph: Graph) -> Graph:
        def one(graph: Graph) -> Graph:
            graph = prepare_graph(jump, graph)
            return graph if dynamics.flow is None else prepare_graph(dynamics.flow, graph)

        return one(graph) if graph.senders.ndim == 1 else eqx.filter_vmap(one)(graph)

    fixed = None if stream.changing else prepare(stream.graphs)
    t_first = steps.times[0] if t0 is None else t0
    before, after, flights, opening = _over_steps(dynamics, jump, prepare, fixed, z0, steps, t0)

    earlier = steps.real.T[:, None] & (steps.times.T[:, None] < queries[..., None])
    seen = jnp.max(jnp.where(earlier, jnp.arange(len(stream), dtype=jnp.int32), -1), axis=-1, initial=-1)
    rows = jnp.arange(queries.shape[0])[:, None]
    starts = jnp.concatenate([z0[:, None], after], axis=1)[rows, seen + 1]
    times = jnp.concatenate([t_first[None], steps.times])[seen + 1, rows]
    if queries.shape[1]:
        graph = _graphs_at(stream, seen, prepare) if fixed is None else _repeated(fixed, queries.shape[1])
        states, flown = _flow_apart(dynamics, starts, times, queries, graph, opening)
        flights = [*flights, flown]
    else:
        states = starts

    status = _status(flights, z0, (before, after, states))
    right = jnp.all(queries >= t_first[:, None]) & jnp.all(steps.times[0] >= t_first) & all_finite((queries, t_first))
    status = jnp.where(right, status, Status.BAD_TIMES.value)
    states = jnp.where(status == Status.BAD_TIMES, jnp.nan, states)
    finite = jnp.all(jnp.isfinite(before) & jnp.isfinite(after), axis=(-2, -1)).T | ~steps.real
    fine = jnp.cumprod(finite, axis=0).astype(bool) & steps.real
    reached = jnp.max(jnp.where(fine, steps.times, t_first), axis=0)
    arrays = (queries, states, before, after, seen, reached)
    queries, states, before, after, seen, reached = (a[0] for a in arrays) if single else arrays
    return HybridSolution(queries, states, before, after, seen, status, reached, _stats(flights))


def _over_steps(dynamics: Dynamics, jump, prepare, fixed: Graph | None, z0: Array, steps: Steps, t0: Array | None):
    """The states on both sides of every jump, (batch, steps, nodes, features), how each flow went, and its opening."""

    def graph_of(step: Steps) -> Graph:
        graph = prepare(step.graphs) if fixed is None else fixed
        assert graph is not None  # streams have one graph or one per step
        return graph

    first_graph = graph_of(steps.at(0))
    axis = sample_axis(first_graph)
    rest = before = jnp.moveaxis(z0, 0, axis)

    def jumped(z, step: Steps, graph: Graph):
        after = per_sample(jump, graph, 0, axis, 0, 0)(step.times, z, step.x, step.mask, graph)
        after = jnp.where(over_states(step.real, graph), after, z)
        return jnp.where(present(graph), after, rest)

    def body(carry, this_and_next):
        before, guess = carry
        step, next_times = this_and_next
        graph = graph_of(step)
        after = jumped(before, step, graph)
        flown = flow_over(dynamics, after, step.times, next_times, graph, guess)
        return (flown.z, flown.opening), (before, after, flown._replace(z=None, opening=None))

    flights, opening = [], jnp.zeros((), steps.times.dtype)
    if t0 is not None:
        lead_in = flow_over(dynamics, rest, t0, steps.times[0], first_graph, opening)
        before, opening = lead_in.z, lead_in.opening
        flights.append(lead_in._replace(z=None))
    length = steps.times.shape[0]
    but_last = jax.tree.map(lambda a: a[:-1], steps)
    carry = before, opening
    (before, opening), (befores, afters, flown) = jax.lax.scan(body, carry, (but_last, steps.times[1:]))
    flights.append(flown)
    last = steps.at(length - 1)
    after = jumped(before, last, graph_of(last))
    befores, afters = jnp.concatenate([befores, before[None]]), jnp.concatenate([afters, after[None]])
    return jnp.moveaxis(befores, 1 + axis, 0), jnp.moveaxis(afters, 1 + axis, 0), flights, opening


def _flow_apart(
    dynamics: Dynamics, starts: Array, times: Array, queries: Array, graph: Graph, guess: Array
) -> tuple[Array, Flown]:
    """Every query of every sample as a sample of its own."""
    axis = sample_axis(graph)
    z = jnp.moveaxis(starts.reshape(-1, *starts.shape[2:]), 0, axis)
    flown = flow_over(dynamics, z, times.reshape(-1), queries.reshape(-1), graph, guess)
    return jnp.moveaxis(flown.z, axis, 0).reshape(starts.shape), flown._replace(z=None)


def _graphs_at(stream: GraphStream, seen: Int[Array, "batch queries"], prepare: Callable) -> Graph:
    """The graph that holds at each query of each sample."""
    step = jnp.maximum(seen, 0)
    own = stream.graphs.senders.ndim == 3
    index = (jnp.arange(step.shape[0])[:, None], step) if own else (step,)
    return prepare(jax.tree.map(lambda a: a[index].reshape(step.size, *a.shape[1 + own :]), stream.graphs))


def _repeated(graph: Graph, count: int) -> Graph:
    return graph if graph.senders.ndim == 1 else jax.tree.map(lambda a: jnp.repeat(a, count, axis=0), graph)


def _time_first(stream: GraphStream, dtype) -> Steps:
    """The steps of a stream; inputs follow the values as features that are always seen."""
    single = stream.times.ndim == 1

    def first(a: Array) -> Array:
        return a[:, None] if single else jnp.moveaxis(a, 1, 0)

    x, mask = first(stream.values.astype(dtype)), first(stream.mask)
    if stream.inputs is not None:
        u = first(stream.inputs.astype(dtype))
        u = u if u.ndim == 4 else u[:, :, None]
        u = jnp.broadcast_to(u, (*x.shape[:3], u.shape[-1]))
        x, mask = jnp.concatenate([x, u], axis=-1), jnp.concatenate([mask, jnp.ones(u.shape, bool)], axis=-1)
    graphs = stream.graphs if stream.changing else None
    if graphs is not None and not single:
        graphs = jax.tree.map(lambda a: jnp.moveaxis(a, 1, 0), graphs)
    return Steps(first(stream.times.astype(dtype)), x, mask, first(stream.step_mask), graphs)


def _status(flights: list[Flown], z0: Array, states: tuple[Array, ...]) -> Array:
    # The first that failed is the cause: those after it start from what is no state.
    fine = jnp.full(1, Status.SUCCESS.value)
    every = jnp.concatenate([fine, *(jnp.ravel(f.status).astype(fine.dtype) for f in flights)])
    status = every[jnp.argmax(every != Status.SUCCESS)]
    status = jnp.where((status == Status.SUCCESS) & ~all_finite(states), Status.NOT_FINITE.value, status)
    return jnp.where(all_finite(z0), status, Status.BAD_STATE.value)


def _stats(flights: list[Flown]) -> dict[str, Any]:
    def total(name: str):
        counts = [getattr(f, name) for f in flights]
        return None if None in counts else sum((jnp.sum(c, dtype=jnp.int32) for c in counts), jnp.zeros((), jnp.int32))

    return {name: total(name) for name in ("num_steps", "num_evaluations", "num_events")}
