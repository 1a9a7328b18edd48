"""Builders: graphs from edges, matrices, distances, positions and other libraries. All but one are host code."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse
from jax.core import Tracer
from jaxtyping import Array, ArrayLike, Num

from .._errors import InputError, unknown_name
from ._layout import Layout, choose_layout
from ._structure import sort_edges

if TYPE_CHECKING:
    from ._graph import Graph


@runtime_checkable
class SupportsArray(Protocol):
    """Columns of a table, tensors of another library: all that numpy can read."""

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray: ...


Numbers: TypeAlias = ArrayLike | Sequence[Any] | SupportsArray
# Nodes and edges are counted in int32, which halves what a sparse product reads.
MOST = 2**31 - 1


def from_edges(
    senders: Numbers,
    receivers: Numbers,
    weights: Numbers | None = None,
    num_nodes: int | None = None,
    edge_features: Numbers | None = None,
    *,
    undirected: bool = False,
    layout: Layout | None = None,
) -> "Graph":
    """A graph from two lists of node indices, directed as given: `senders[e] -> receivers[e]`.

    Weights are 1 unless given. `num_nodes` defaults to the largest index plus one: give it when the last nodes may be
    isolated. `undirected=True` adds the opposite of every edge that is not a self loop.
    """
    s = _indices(senders, "senders")
    r = _indices(receivers, "receivers")
    if len(s) != len(r):
        raise InputError(f"senders and receivers: expected the same length, got {len(s)} and {len(r)}.")
    if num_nodes is None:
        num_nodes = int(max(s.max(initial=-1), r.max(initial=-1))) + 1
    num_nodes = count(num_nodes, "num_nodes")
    for name, ends in (("senders", s), ("receivers", r)):
        if bad := np.flatnonzero((ends < 0) | (ends >= num_nodes))[:1].tolist():
            raise InputError(
                f"{name}[{bad[0]}] = {ends[bad[0]]} is out of range: expected 0 or more and less than "
                f"num_nodes={num_nodes}. Number the nodes from 0, or raise num_nodes."
            )
    w = edge_values(np.ones(len(s)) if weights is None else weights, "weights", (len(s),))
    features = None
    if edge_features is not None:
        features = edge_values(edge_features, "edge_features", (len(s), None))
    if undirected:
        twice = np.concatenate([np.arange(len(s)), np.flatnonzero(s != r)])
        s, r = np.concatenate([s, r[s != r]]), np.concatenate([r, s[s != r]])
        w = w[twice]
        features = None if features is None else features[twice]
    return assemble(s, r, w, features, np.ones(len(s), bool), np.ones(num_nodes, bool), layout)


def from_adjacency(a: Any, *, layout: Layout | None = None) -> "Graph":
    """A graph from a square matrix, dense or scipy.sparse: `a[i, j] != 0` is the edge i -> j with that weight."""
    if not scipy.sparse.issparse(a):
        a = host(a, "a")
    _square(a, "a")
    coo = scipy.sparse.coo_array(a)
    coo.sum_duplicates()
    if bad := np.flatnonzero(~np.isfinite(coo.data))[:1].tolist():
        i, j = (int(c[bad[0]]) for c in coo.coords)
        raise InputError(f"a[{i}, {j}] is {coo.data[bad[0]]}: expected finite numbers. Put 0 where there is no edge.")
    keep = coo.data != 0
    senders, receivers = (c[keep] for c in coo.coords)
    return from_edges(senders, receivers, coo.data[keep], a.shape[0], layout=layout)


def from_distances(distances: Numbers, percentile: float | int = 40, *, layout: Layout | None = None) -> "Graph":
    """An undirected graph that joins nodes no further apart than this percentile of all off-diagonal distances.

    Here and below an infinite distance means that two nodes are never joined.
    """
    d = _distances(distances)
    if not 0 <= percentile <= 100:
        raise InputError(f"percentile: expected a number from 0 to 100, got {percentile}.")
    off_diagonal = ~np.eye(len(d), dtype=bool)
    # No distance lies between two that follow each other, so the lower one cuts where an interpolated one would.
    threshold = np.percentile(d[off_diagonal], percentile, method="lower") if len(d) > 1 else 0.0
    return from_adjacency(((d <= threshold) & np.isfinite(d) & off_diagonal).astype(float), layout=layout)


def from_gaussian_kernel(
    distances: Numbers,
    sigma: float | int | None = None,
    threshold: float | int = 0.1,
    *,
    layout: Layout | None = None,
) -> "Graph":
    """An undirected graph with weights exp(-d^2 / sigma^2), kept where they reach `threshold`.

    `sigma` defaults to the standard deviation of the finite off-diagonal distances.
    """
    d = _distances(distances)
    off_diagonal = ~np.eye(len(d), dtype=bool)
    if not 0 <= threshold <= 1:
        raise InputError(f"threshold: expected a number from 0 to 1, got {threshold}.")
    if sigma is None:
        finite = d[off_diagonal & np.isfinite(d)]
        sigma = float(finite.std()) if len(finite) else 1.0
    if not (np.isfinite(sigma) and sigma > 0):
        raise InputError(f"sigma: expected a positive number, got {sigma}. Equal distances need it given.")
    w = np.exp(-((d / sigma) ** 2)) * off_diagonal
    return from_adjacency(np.where(w >= threshold, w, 0.0), layout=layout)


def from_nearest(distances: Numbers, k: int, *, undirected: bool = True, layout: Layout | None = None) -> "Graph":
    """Each node receives from its k nearest others; `undirected` (the default) adds the opposite directions."""
    d = _distances(distances)
    k = count(k, "k")
    if k >= max(len(d), 1):
        raise InputError(f"k: expected fewer than the number of nodes, {len(d)}, got {k}.")
    np.fill_diagonal(d, np.inf)
    nearest = np.argsort(d, axis=1, kind="stable")[:, :k]
    a = np.zeros(d.shape)
    np.put_along_axis(a, nearest, np.isfinite(np.take_along_axis(d, nearest, axis=1)), axis=1)
    # Row i of `a` names those that i hears from; as an adjacency, edges run the other way.
    return from_adjacency(np.maximum(a, a.T) if undirected else a.T, layout=layout)


def from_positions(x: Num[ArrayLike, "nodes dims"], radius: ArrayLike) -> "Graph":
    """An undirected graph of positions: i and j are joined where 2 * ||x_i - x_j|| <= radius. Works under `jit`."""
    if not isinstance(radius, Tracer) and not (np.ndim(radius) == 0 and np.asarray(radius) >= 0):
        raise InputError(f"radius: expected a number, 0 or more, got {radius}.")
    if not isinstance(x, Tracer) and (bad := np.argwhere(np.isnan(x))[:1].tolist()):
        raise InputError(f"x[{', '.join(map(str, bad[0]))}] is nan: expected numbers.")
    x = jnp.asarray(x)
    x = x if jnp.issubdtype(x.dtype, jnp.floating) else x.astype(float)
    if x.ndim != 2:
        raise InputError(f"x: expected positions of shape (nodes, dims), got shape {x.shape}.")
    _fits(x.shape[0] ** 2, "nodes x nodes")
    return _join_near(x, jnp.asarray(radius, x.dtype))


@eqx.filter_jit
def _join_near(x: Array, radius: Array) -> "Graph":
    """Every pair of nodes, with an edge where they are near, in one program."""
    from ._graph import Graph

    n = x.shape[0]
    # Compared as squares: no root, whose gradient at distance zero is not finite.
    squared = jnp.sum((x[:, None] - x[None, :]) ** 2, axis=-1)
    near = (4 * squared <= radius**2) & ~jnp.eye(n, dtype=bool)
    slots = jnp.arange(n * n, dtype=jnp.int32)
    return Graph(
        slots % max(n, 1),
        slots // max(n, 1),
        jnp.ones(n * n, x.dtype),
        None,
        near.reshape(-1),
        jnp.ones(n, bool),
        None,
        {},
        n,
        "pairs",
    )


def from_networkx(graph: Any, *, weight: str = "weight", layout: Layout | None = None) -> "Graph":
    """A graph from networkx, nodes in its own order; undirected graphs carry both directions.

    `weight` names the attribute of edges to read; an edge without it weighs 1. Parallel edges stay apart.
    """
    if not (hasattr(graph, "nodes") and hasattr(graph, "is_directed")):
        raise InputError(f"graph: expected a networkx graph, got {type(graph).__name__}.")
    index = {node: i for i, node in enumerate(graph.nodes)}
    edges = [(index[u], index[v], data.get(weight, 1.0)) for u, v, data in graph.edges(data=True)]
    senders, receivers, weights = zip(*edges, strict=True) if edges else ((), (), ())
    return from_edges(
        np.array(senders, int), np.array(receivers, int), np.array(weights), len(index),
        undirected=not graph.is_directed(), layout=layout,
    )  # fmt: skip


def from_pyg(data: Any, *, layout: Layout | None = None) -> "Graph":
    """A graph from torch_geometric data: `edge_index`, `num_nodes`, and `edge_weight` or `edge_attr` where present.

    One number an edge in `edge_attr` is its weight; more are edge features.
    """
    edge_index = np.asarray(data.edge_index)
    weights = getattr(data, "edge_weight", None)
    features = getattr(data, "edge_attr", None)
    if weights is None and features is not None and (features.ndim == 1 or features.shape[1] == 1):
        weights, features = features.reshape(-1), None
    return from_edges(
        edge_index[0], edge_index[1],
        None if weights is None else np.asarray(weights),
        data.num_nodes,
        None if features is None else np.asarray(features),
        layout=layout,
    )  # fmt: skip


def assemble(
    senders, receivers, weights, edge_features, edge_mask, node_mask, layout: Layout | None, *, sliced: bool = True
) -> "Graph":
    """A graph from checked arrays: the layout chosen, the edges sorted unless every pair has a slot of its own."""
    from ._graph import Graph

    n = len(node_mask)
    layout = choose_layout(n, len(senders)) if layout is None else layout
    if layout not in ("dense", "csr", "pairs"):
        raise InputError(unknown_name("layout", layout, ("dense", "csr", "pairs")))
    _fits(n * n if layout == "pairs" else len(senders), "edges")
    if layout == "csr":
        _fits(len(senders) + n, "edges and nodes")
    structure = None
    if layout == "pairs":
        senders, receivers, weights, edge_features, edge_mask = _pair_slots(
            senders, receivers, weights, edge_features, edge_mask, n
        )
    else:
        structure = sort_edges(
            np.asarray(senders), np.asarray(receivers), n, loops=layout == "csr", sliced=sliced and layout == "csr"
        )
    return Graph(
        # Not jnp.asarray, which compiles a program for each new number of edges.
        jax.device_put(np.asarray(senders, np.int32)),
        jax.device_put(np.asarray(receivers, np.int32)),
        jax.device_put(weights),
        jax.device_put(edge_features),
        jax.device_put(edge_mask),
        jax.device_put(node_mask),
        structure,
        {},
        n,
        layout,
    )


def check_single(graph: "Graph", action: str) -> None:
    if graph.senders.ndim != 1:
        shape = graph.senders.shape[:-1]
        raise InputError(
            f"graph: expected one graph to {action}, got a batch of shape {shape}. Stack after it, or use vmap."
        )


def rebuild(graph: "Graph", layout: Layout, *, sliced: bool = True, **changes: Any) -> "Graph":
    """A graph again from its own arrays, some of them changed; slots that pairs do not use are dropped.

    Compressed rows that were made without slices, to share a program with others, stay without.
    """
    if graph.layout == "csr" and graph.structure is not None:
        sliced = sliced and any(s is not None for s in graph.structure.slicings)
    names = ("senders", "receivers", "weights", "edge_features", "edge_mask", "node_mask")
    arrays = {name: changes.get(name, getattr(graph, name)) for name in names}
    arrays = {name: None if value is None else host(value, name) for name, value in arrays.items()}
    if graph.layout == "pairs" and layout != "pairs":
        on = host(graph.edge_mask, "edge_mask")
        arrays.update({name: x[on] for name, x in arrays.items() if x is not None and name != "node_mask"})
    return assemble(**arrays, layout=layout, sliced=sliced)


def relayout(graph: "Graph", layout: Layout) -> "Graph":
    check_single(graph, "store in another layout")
    return rebuild(graph, layout)


def pad(graph: "Graph", num_nodes: int | None, num_edges: int | None) -> "Graph":
    """Switched-off nodes and edges at the end. Padding edges run between node 0 and itself with weight 0."""
    check_single(graph, "pad")
    extra_nodes = _extra(num_nodes, graph.num_nodes, "num_nodes")
    if graph.layout == "pairs" and num_edges is not None:
        raise InputError("num_edges: a graph of layout 'pairs' has a slot for every pair already; leave it out.")
    extra_edges = _extra(num_edges, graph.num_edges, "num_edges")
    if extra_edges and not graph.num_nodes + extra_nodes:
        raise InputError(f"num_edges: a graph without nodes has no edges, got {num_edges}. Give num_nodes too.")

    def extended(x, extra):
        x = host(x, "graph")
        return np.concatenate([x, np.zeros((extra, *x.shape[1:]), x.dtype)])

    names = ("senders", "receivers", "weights", "edge_mask")
    changes = {name: extended(getattr(graph, name), extra_edges) for name in names}
    if graph.edge_features is not None:
        changes["edge_features"] = extended(graph.edge_features, extra_edges)
    # Slices would be cut otherwise in every graph, and padding is there to let graphs share a program.
    return rebuild(graph, graph.layout, sliced=False, node_mask=extended(graph.node_mask, extra_nodes), **changes)


def _pair_slots(senders, receivers, weights, edge_features, edge_mask, n):
    slot = np.asarray(receivers, np.int64) * n + np.asarray(senders, np.int64)
    on = np.asarray(edge_mask)
    used, count = np.unique(slot[on], return_counts=True)
    if (count > 1).any():
        twice = int(used[count > 1][0])
        raise InputError(
            f"senders, receivers: layout 'pairs' has one slot for each pair of nodes, but the edge {twice % n} -> "
            f"{twice // n} comes more than once. Add up duplicates first, or use another layout."
        )

    # The edge that fills each slot, -1 for none. One that is off leaves its values too, for whoever switches it on.
    edge = np.full(n * n, -1)
    edge[slot[~on]] = np.flatnonzero(~on)
    edge[slot[on]] = np.flatnonzero(on)

    def spread(x, fill):
        xp = jnp if isinstance(x, Tracer) else np
        return xp.concatenate([x, xp.full((1, *x.shape[1:]), fill, x.dtype)])[edge]

    slots = np.arange(n * n)
    features = None if edge_features is None else spread(edge_features, 0)
    return slots % max(n, 1), slots // max(n, 1), spread(weights, 1), features, spread(on, False)


def host(x: Any, name: str) -> np.ndarray:
    if isinstance(x, Tracer):
        raise InputError(
            f"{name}: this builder is host code and cannot take a traced array. Build the graph outside `jit` and pass "
            "it as an argument, or use Graph.from_positions."
        )
    return np.asarray(x)


def _indices(x: Numbers, name: str) -> np.ndarray:
    x = host(x, name)
    if x.ndim != 1:
        raise InputError(f"{name}: expected a list of node indices, got an array of shape {x.shape}.")
    _fits(len(x), name)
    if x.size and x.dtype.kind not in "iu":
        raise InputError(f"{name}: expected whole numbers, got dtype {x.dtype}. Convert with .astype(int).")
    return x.astype(np.int64)


def count(x: Any, name: str) -> int:
    if isinstance(x, bool) or not isinstance(x, int | np.integer) or x < 0:
        raise InputError(f"{name}: expected a whole number, 0 or more, got {x!r}.")
    _fits(int(x), name)
    return int(x)


def _fits(count: int, name: str) -> None:
    if count > MOST:
        raise InputError(f"{name}: expected at most {MOST}, the largest number of int32, got {count}.")


def _extra(wanted: int | None, have: int, name: str) -> int:
    wanted = have if wanted is None else count(wanted, name)
    if wanted < have:
        raise InputError(f"{name}: expected at least the {have} that the graph has, got {wanted}.")
    return wanted - have


def edge_values(x: Any, name: str, shape: tuple[int | None, ...]) -> Any:
    """Checked numbers on edges, as host floats; those that are traced, to be differentiated, as they are."""
    values: Any = x if isinstance(x, Tracer) else np.asarray(x)
    expected = (
        "(" + ", ".join("channels" if n is None else str(n) for n in shape) + ("," if len(shape) == 1 else "") + ")"
    )
    if values.ndim != len(shape) or any(n not in (None, m) for n, m in zip(shape, values.shape, strict=True)):
        raise InputError(f"{name}: expected shape {expected}, one row per edge, got {values.shape}.")
    if isinstance(x, Tracer):
        return values
    if values.dtype.kind not in "biuf":
        raise InputError(f"{name}: expected real numbers, got dtype {values.dtype}.")
    if bad := np.argwhere(~np.isfinite(values))[:1].tolist():
        where = ", ".join(map(str, bad[0]))
        raise InputError(
            f"{name}[{where}] is {values[tuple(bad[0])]}: expected finite numbers. Drop or fill that edge."
        )
    return values.astype(float)


def _square(x: Any, name: str) -> None:
    if x.ndim != 2 or x.shape[0] != x.shape[1]:
        raise InputError(f"{name}: expected a square matrix, got shape {x.shape}.")
    if x.dtype.kind not in "biuf":
        raise InputError(f"{name}: expected real numbers, got dtype {x.dtype}.")


def _distances(x: Numbers) -> np.ndarray:
    """Checked distances, made symmetric to the last bit so that both directions of an edge pass or fail together."""
    d = host(x, "distances")
    _square(d, "distances")
    d = d.astype(float)
    if bad := np.argwhere(~(d >= 0))[:1].tolist():
        i, j = bad[0]
        raise InputError(f"distances[{i}, {j}] is {d[i, j]}: expected numbers, 0 or more.")
    if bad := np.argwhere(~np.isclose(d, d.T))[:1].tolist():
        i, j = bad[0]
        raise InputError(
            f"distances[{i}, {j}] = {d[i, j]} but distances[{j}, {i}] = {d[j, i]}: expected a symmetric matrix. "
            "For directed graphs use Graph.from_adjacency."
        )
    return np.minimum(d, d.T)
