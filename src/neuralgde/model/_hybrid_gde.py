"""Hybrid neural graph differential equations: flow between observations, jump at each, read out at any time."""

from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Bool, Float, Int

from .._arrays import on_device, row
from .._errors import InputError
from .._types import Time
from ..field import Field, prepare_graph
from ..graph import Graph, GraphStream
from ..integrate import Event, HybridConfig, HybridSolution, solve_hybrid
from . import _online
from ._online import HybridState


class HybridGDE(eqx.Module):
    """y_t = readout(z_t), where dz/dt = flow(t, z) on the last graph seen and z+ = jump(t, z, x, mask) at observations.

    - `flow`: a vector field; None lets the state stand still between observations.
    - `jump(t, z, x, mask, graph)`: as in `solve_hybrid`.
    - `readout(z, graph)`: what is forecast of the nodes: an array or a distribution. None gives the state.
    - `initial(graph)`: the state before anything is seen; by default zeros, as many a node as `jump.state_size` says.
    - `adjacency(graph)`: the graph that flow, jump and readout see, such as one with a `nn.LearnedAdjacency`.
    - `edges(z, y, graph)`: what `predict_edges` predicts: `EdgeRule`, `EdgeDecoder` or any such function.
    - `event`: a jump that the state triggers.

    A forecast for the time of an observation does not know it. Streams may come in batches, as in `solve_hybrid`.
    Where a solve fails the forecasts are NaN; `solve` gives the cause.
    """

    flow: Field | None
    jump: Callable[..., Array]
    readout: Callable[[Array, Graph], Any] | None
    initial: Callable[[Graph], Array] | None = None
    adjacency: Callable[[Graph], Graph] | None = None
    edges: Callable[[Array, Any, Graph], Any] | None = None
    event: Event | None = None
    config: HybridConfig = eqx.field(static=True, default=HybridConfig())

    # Whole streams

    def __call__(
        self, stream: GraphStream, query_times: ArrayLike | Sequence[float], t0: ArrayLike | None = None
    ) -> Any:
        """The forecasts at `query_times`, (*batch, queries, nodes, out), each from all observations before it."""
        sol = self.solve(stream, query_times, t0)
        return self._read_all(stream, sol.states, sol.seen)

    def forecast_next(self, stream: GraphStream, t0: ArrayLike | None = None) -> Any:
        """The forecasts of every observation of the stream from those before it, (*batch, steps, nodes, out).

        They are read from the states before the jumps, and cost nothing more.
        """
        sol = self.solve(stream, (), t0)
        known = on_device(np.broadcast_to(np.arange(len(stream), dtype=np.int32) - 1, stream.times.shape))
        return self._read_all(stream, sol.before, known)

    def predict_edges(
        self, stream: GraphStream, query_times: ArrayLike | Sequence[float], t0: ArrayLike | None = None
    ) -> Any:
        """What `edges` predicts at `query_times`: graphs, or probabilities of all pairs."""
        if self.edges is None:
            raise InputError("edges: this model has none. Build it with edges=EdgeDecoder(…) or edges=EdgeRule(…).")
        sol = self.solve(stream, query_times, t0)
        return self._edges_all(stream, sol.states, sol.seen)

    def solve(
        self, stream: GraphStream, query_times: ArrayLike | Sequence[float] = (), t0: ArrayLike | None = None
    ) -> HybridSolution:
        """The states before the readout, on both sides of every jump, with a status that compares to `Status`."""
        z0 = self.initial_state(_one_graph(stream.graphs))
        options = self.config.kwargs()
        return solve_hybrid(
            self.flow, self._jump(), z0, stream, query_times, t0=t0, event=self.event, throw=False, **options
        )

    def initial_state(self, graph: Graph) -> Float[Array, "nodes state"]:
        """The state of every node before anything is seen."""
        if self.initial is not None:
            return self.initial(graph)
        size = getattr(self.jump, "state_size", None)
        if size is None:
            raise InputError(
                "initial: the jump does not say its state_size. Give the first state: initial=lambda graph: jnp.zeros("
                "(graph.num_nodes, …))."
            )
        leaves = [a for a in jax.tree.leaves((self.flow, self.jump)) if eqx.is_inexact_array(a)]
        return jnp.zeros((graph.num_nodes, size), leaves[0].dtype if leaves else None)

    # One observation at a time (host code)

    def start(self, graph: Graph, t0: float, *, keep: int = 0) -> HybridState:
        """The state at t0, before anything is seen. The last `keep` observations can be replayed."""
        return _online.start(self, graph, t0, keep)

    def observe(
        self,
        state: HybridState,
        t: float,
        x: ArrayLike,
        mask: ArrayLike | None = None,
        graph: Graph | None = None,
        inputs: ArrayLike | None = None,
        *,
        late: str = "refuse",
    ) -> HybridState:
        """The state after an observation x, (nodes, features), NaN where nothing was seen.

        `graph` is the one that holds from t on, by default the last one. An observation older than the state is
        refused; with `late="replay"` it is put in its place, and what came after it is replayed.
        """
        return _online.observe(self, state, _online.Observation(float(t), x, mask, graph, inputs), late)

    def advance(self, state: HybridState, t: float) -> HybridState:
        """The state at a later time."""
        return _online.advance(self, state, t)

    def forecast(self, state: HybridState, times: ArrayLike | Sequence[float]) -> Any:
        """The forecasts at `times`, (times, nodes, out), none before the last observation; the state stays as it is."""
        return _online.forecast(self, state, times)

    # Parts

    def _jump(self) -> Callable[..., Array]:
        return self.jump if self.adjacency is None else _OnAdjacency(self.jump, self.adjacency)

    def _read(self, z: Array, graph: Graph) -> Any:
        return z if self.readout is None else self.readout(z, graph)

    # Compiled for those who call the model outside of `jit`: one program, and not one for every operation.

    @eqx.filter_jit
    def _read_all(self, stream: GraphStream, states: Array, seen: Int[Array, "*batch queries"]) -> Any:
        return self._over(stream, states, seen, self._read)

    @eqx.filter_jit
    def _edges_all(self, stream: GraphStream, states: Array, seen: Int[Array, "*batch queries"]) -> Any:
        edges = self.edges
        assert edges is not None
        return self._over(stream, states, seen, lambda z, graph: edges(z, self._read(z, graph), graph))

    def _over(self, stream: GraphStream, states: Array, seen: Int[Array, "*batch queries"], f: Callable) -> Any:
        """f(z, graph) for each state, on the graph that held there."""

        def prepare(graph: Graph) -> Graph:
            graph = graph if self.adjacency is None else self.adjacency(graph)
            return graph if self.readout is None else prepare_graph(self.readout, graph)

        def one(states, graphs: Graph, seen):
            if not stream.changing:
                return eqx.filter_vmap(f, in_axes=(0, None))(states, prepare(graphs))
            at = jax.tree.map(lambda a: a[jnp.maximum(seen, 0)], graphs)
            return eqx.filter_vmap(lambda z, graph: f(z, prepare(graph)))(states, at)

        if stream.times.ndim == 1:
            return one(states, stream.graphs, seen)
        shared = stream.graphs.senders.ndim == 1
        return eqx.filter_vmap(one, in_axes=(0, None if shared else 0, 0))(states, stream.graphs, seen)


class _OnAdjacency(eqx.Module):
    """A jump, and before anything else the change of the graph that all parts see."""

    jump: Callable[..., Array]
    adjacency: Callable[[Graph], Graph]

    def prepare(self, graph: Graph) -> Graph:
        return prepare_graph(self.jump, self.adjacency(graph))

    def __call__(self, t: Time, z: Array, x: Array, mask: Bool[Array, "..."], graph: Graph) -> Array:
        return self.jump(t, z, x, mask, graph)


def _one_graph(graphs: Graph) -> Graph:
    batch_axes = graphs.senders.ndim - 1
    return row(graphs, (0,) * batch_axes) if batch_axes else graphs
