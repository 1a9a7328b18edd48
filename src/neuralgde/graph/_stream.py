"""GraphStream: what is seen of a graph at irregular times, (t_k, X_k, G_k)."""

import functools
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Bool, Float, Int

from .._arrays import row
from .._errors import InputError
from ._build import Numbers, count
from ._graph import Graph
from ._stack import alike, on_host, stacked, unstacked


class GraphStream(eqx.Module):
    """At each time t_k the values X_k of the nodes, and the graph G_k that holds from t_k until the next time.

    - `times` (T,): finite and strictly increasing.
    - `values` (T, nodes, features): NaN where nothing was observed.
    - `graphs`: one Graph for all times; or a list with one per time, which are padded to one shape and stacked (host
      code); or a Graph already stacked, with time before every other axis. A node is absent at a step where the
      `node_mask` of that step's graph says so.
    - `mask` (T, nodes) or (T, nodes, features): what was observed. It is stored per feature, False also for NaN and for
      absent nodes; values that were not observed are stored as 0.
    - `inputs` (T, channels) or (T, nodes, channels): covariates of the graph or of each node that are known in advance
      at all times of the stream, such as the time of day or a planned control.
    - `step_mask` (T,): False for steps that only pad.

    A batch of streams, from `stack`, has one more axis before all others and is meant for `vmap`.
    """

    times: Float[Array, "*batch times"]
    values: Float[Array, "*batch times nodes features"]
    graphs: Graph
    mask: Bool[Array, "*batch times nodes features"]
    inputs: Float[Array, "..."] | None
    step_mask: Bool[Array, "*batch times"]

    def __init__(
        self,
        times: Numbers,
        values: Numbers,
        graphs: Graph | Sequence[Graph],
        mask: Numbers | None = None,
        inputs: Numbers | None = None,
    ):
        t, x = _floats(times, "times"), _floats(values, "values")
        _check_times(t)
        if x.ndim != 3 or x.shape[0] != len(t):
            raise InputError(f"values: expected shape ({len(t)}, nodes, features), one row per time, got {x.shape}.")
        self.graphs = _along_time(graphs, len(t))
        if self.graphs.num_nodes != x.shape[1]:
            raise InputError(f"values: expected the graphs' {self.graphs.num_nodes} nodes, got {x.shape[1]}.")
        seen = _observed(x, mask, self.graphs.node_mask)
        self.times = jax.device_put(t)
        self.values = on_host(lambda xp, seen, x: xp.where(seen, x, 0), seen, x)
        self.mask = jax.device_put(seen)
        self.inputs = None if inputs is None else jax.device_put(_checked_inputs(inputs, x.shape))
        self.step_mask = jax.device_put(np.ones(len(t), bool))

    def __len__(self) -> int:
        """The number of steps, padding included."""
        return self.times.shape[-1]

    def __repr__(self) -> str:
        *batch, steps, nodes, features = self.values.shape
        shape = f"batch={tuple(batch)}, " if batch else ""
        return f"GraphStream({shape}steps={steps}, nodes={nodes}, features={features}, changing={self.changing})"

    @property
    def changing(self) -> bool:
        """Whether each step has a graph of its own."""
        return self.graphs.senders.ndim > self.times.ndim

    def graph_at(self, k: int | np.integer | Int[Array, ""]) -> Graph:
        """The graph of step k, which may be traced."""
        self._check_single("graph_at")
        if not isinstance(k, Tracer) and not -len(self) <= k < len(self):
            raise InputError(f"k: expected a step of a stream of {len(self)}, got {k}.")
        return row(self.graphs, k) if self.changing else self.graphs

    def __getitem__(self, steps: slice) -> "GraphStream":
        """Some of the steps, in order: `stream[2:10]`, `stream[::3]`."""
        self._check_single("a slice")
        if not isinstance(steps, slice) or (steps.step or 1) < 1 or not range(len(self))[steps]:
            raise InputError(f"steps: expected a slice forward that keeps some of {len(self)} steps, got {steps}.")
        return self._take(np.arange(len(self))[steps])

    def pad(self, length: int, num_edges: int | None = None, num_nodes: int | None = None) -> "GraphStream":
        """Steps, edges and nodes appended, and switched off by the masks: streams of one shape share a program.

        Padding steps repeat the last time, inputs and graph. Host code where edges or nodes are appended.
        """
        self._check_single("pad")
        if count(length, "length") < len(self):
            raise InputError(f"length: expected at least the {len(self)} steps that the stream has, got {length}.")
        padded = self
        if num_edges is not None or num_nodes is not None:
            padded = self._with_graphs([g.pad(num_nodes, num_edges) for g in self._graph_list()], self.changing)
        padded = padded._take(np.minimum(np.arange(length), len(self) - 1))
        real = np.arange(length) < len(self)
        return padded._replace(
            values=on_host(lambda xp, a: xp.where(real[:, None, None], a, 0), padded.values),
            mask=on_host(lambda xp, a: a & real[:, None, None], padded.mask),
            step_mask=on_host(lambda xp, a: a & real, padded.step_mask),
        )

    @staticmethod
    def stack(streams: "Sequence[GraphStream]") -> "GraphStream":
        """Many streams as one batch (host code), padded to the longest, with a new axis before all others.

        Streams may differ in length, nodes, edges and layout, and in whether their graph changes.
        """
        if not streams:
            raise InputError("streams: expected at least one stream, got none.")
        for b, stream in enumerate(streams):
            stream._check_single(f"streams[{b}]")
            for name in ("values", "inputs"):
                first, this = getattr(streams[0], name), getattr(stream, name)
                if _channels(first) != _channels(this):
                    raise InputError(
                        f"streams[{b}].{name}: expected {_channels(first)}, as in streams[0], got {_channels(this)}."
                    )
        changing = any(stream.changing for stream in streams)
        lists = [s._graph_list() * (len(s) if changing and not s.changing else 1) for s in streams]
        graphs = iter(alike([graph for own in lists for graph in own], "streams"))
        length = max(len(stream) for stream in streams)
        pairs = zip(streams, lists, strict=True)
        return stacked([s._with_graphs([next(graphs) for _ in own], changing).pad(length) for s, own in pairs])

    @staticmethod
    def batch(
        times: Numbers, values: Numbers, graph: Graph, mask: Numbers | None = None, inputs: Numbers | None = None
    ) -> "GraphStream":
        """Many streams of one length on one graph, which they share: every other array has a leading axis of them.

        All may be traced, and nothing is checked but shapes. Hybrid models multiply all streams by the graph at once.
        """

        def one(times: Any, values: Any, mask: Any, inputs: Any) -> "GraphStream":
            return eqx.tree_at(lambda s: s.graphs, GraphStream(times, values, graph, mask, inputs), None)

        given = [None if a is None else jnp.asarray(a) for a in (times, values, mask, inputs)]
        streams = jax.vmap(one, in_axes=[0 if a is not None else None for a in given])(*given)
        return eqx.tree_at(lambda s: s.graphs, streams, graph, is_leaf=lambda a: a is None)

    def _check_single(self, name: str) -> None:
        if self.times.ndim != 1:
            shape = self.times.shape[:-1]
            raise InputError(f"{name}: expected one stream, got a batch of shape {shape}. Use it inside `vmap`.")

    def _graph_list(self) -> list[Graph]:
        return unstacked(self.graphs) if self.changing else [self.graphs]

    def _with_graphs(self, graphs: list[Graph], changing: bool) -> "GraphStream":
        """The same stream with other graphs, which may have more nodes."""
        room = ((0, 0), (0, graphs[0].num_nodes - self.graphs.num_nodes), (0, 0))
        arrays = {"values": self.values, "mask": self.mask, "inputs": self.inputs}
        wider = {
            n: on_host(lambda xp, a: xp.pad(a, room), a) for n, a in arrays.items() if a is not None and a.ndim == 3
        }
        return self._replace(graphs=stacked(graphs) if changing else graphs[0], **wider)

    def _take(self, steps: np.ndarray) -> "GraphStream":
        names = ["times", "values", "mask", "step_mask"]
        names += ["inputs"] if self.inputs is not None else []
        names += ["graphs"] if self.changing else []
        rows = functools.partial(on_host, lambda xp, a: a[steps])
        return self._replace(**{name: jax.tree.map(rows, getattr(self, name)) for name in names})

    def _replace(self, **changes: Any) -> "GraphStream":
        return eqx.tree_at(lambda s: [getattr(s, name) for name in changes], self, list(changes.values()))


def _floats(x: Any, name: str) -> Any:
    if isinstance(x, Tracer):
        return x
    x = np.array(x)  # a copy: the device may read it where it is
    if x.dtype.kind not in "biuf":
        raise InputError(f"{name}: expected real numbers, got dtype {x.dtype}.")
    return x if x.dtype.kind == "f" else x.astype(float)


def _check_times(t: Any) -> None:
    if t.ndim != 1 or len(t) == 0:
        raise InputError(f"times: expected one or more numbers in a row, got an array of shape {t.shape}.")
    if isinstance(t, Tracer):
        return
    if bad := np.flatnonzero(~np.isfinite(t))[:1].tolist():
        raise InputError(f"times[{bad[0]}] is {t[bad[0]]}: expected finite numbers.")
    dtype = jax.dtypes.canonicalize_dtype(t.dtype)
    if bad := np.flatnonzero(np.diff(t.astype(dtype)) <= 0)[:1].tolist():
        before, after = t[bad[0]], t[bad[0] + 1]
        fix = "Sort them and drop repeats."
        if before < after:
            fix = f"They are the same in {dtype}: subtract the first time from all, or switch on jax_enable_x64."
        raise InputError(f"times[{bad[0] + 1}] = {after} after {before}: expected strictly increasing times. {fix}")


def _along_time(graphs: Graph | Sequence[Graph], length: int) -> Graph:
    """The one graph of a stream, or the graphs of all its times stacked."""
    if isinstance(graphs, Graph):
        shape = graphs.senders.shape[:-1]
        if shape and (len(shape) > 1 or {a.shape[0] for a in jax.tree.leaves(graphs)} != {length}):
            raise InputError(f"graphs: expected one graph, or {length} stacked, one per time, got a batch of {shape}.")
        return graphs
    if not isinstance(graphs, Sequence) or len(graphs) != length:
        got = len(graphs) if isinstance(graphs, Sequence) else type(graphs).__name__
        raise InputError(f"graphs: expected one Graph, or a list of {length}, one per time, got {got}.")
    for k, graph in enumerate(graphs):
        if not isinstance(graph, Graph) or graph.senders.ndim != 1:
            got = graph if isinstance(graph, Graph) else type(graph).__name__
            raise InputError(f"graphs[{k}]: expected one Graph, got {got}.")
    return stacked(alike(graphs, "graphs"))


def _observed(x: Any, mask: Any, node_mask: Array) -> Any:
    """Where there is a value: not NaN, not masked, not of an absent node."""
    if mask is not None:
        mask = mask if isinstance(mask, Tracer) else np.asarray(mask)
        if mask.shape not in (x.shape, x.shape[:2]):
            raise InputError(f"mask: expected shape {x.shape[:2]} or {x.shape}, got {mask.shape}.")
        if mask.dtype != bool:
            raise InputError(f"mask: expected booleans, got dtype {mask.dtype}. Convert with .astype(bool).")
        mask = mask if mask.ndim == 3 else mask[..., None]
    if any(isinstance(a, Tracer) for a in (x, mask, node_mask)):
        seen = ~jnp.isnan(x) & node_mask[..., None]
        return seen if mask is None else seen & mask
    seen = np.asarray(node_mask)[..., None] & (~np.isnan(x) if mask is None else mask)
    if bad := np.argwhere(seen & ~np.isfinite(x))[:1].tolist():
        where = ", ".join(map(str, bad[0]))
        fix = "Put NaN for what is missing." if mask is None else "Set the mask to False there."
        raise InputError(f"values[{where}] is {x[tuple(bad[0])]}: expected a finite number where observed. {fix}")
    return np.broadcast_to(seen, x.shape)


def _checked_inputs(inputs: Any, shape: tuple[int, ...]) -> Any:
    u = _floats(inputs, "inputs")
    if u.ndim not in (2, 3) or u.shape[:-1] != shape[: u.ndim - 1]:
        t, n, _ = shape
        raise InputError(f"inputs: expected shape ({t}, channels) or ({t}, {n}, channels), got {u.shape}.")
    if not isinstance(u, Tracer) and (bad := np.argwhere(~np.isfinite(u))[:1].tolist()):
        where = ", ".join(map(str, bad[0]))
        raise InputError(f"inputs[{where}] is {u[tuple(bad[0])]}: expected finite numbers, known at every time.")
    return u


def _channels(x: Array | None) -> str:
    return "none" if x is None else f"{'(T, channels)' if x.ndim == 2 else '(T, nodes, channels)'} with {x.shape[-1]}"
