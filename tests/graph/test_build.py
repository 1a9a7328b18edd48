"""Builders, and copies of a graph with something changed."""

import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import networkx as nx
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from scipy import sparse

from memory import aligned
from neuralgde import Graph, InputError

LAYOUTS = ("dense", "csr", "pairs")
# Directed and weighted, with a self loop at 2, both directions between 1 and 2, and node 4 isolated.
SENDERS = [0, 1, 2, 2, 3]
RECEIVERS = [1, 2, 1, 2, 0]
WEIGHTS = [0.5, 2.0, 1.5, 3.0, 0.25]
ADJACENCY = np.zeros((5, 5))
ADJACENCY[SENDERS, RECEIVERS] = WEIGHTS


def graph_of(layout="dense", **kwargs):
    return Graph.from_edges(SENDERS, RECEIVERS, WEIGHTS, num_nodes=5, layout=layout, **kwargs)


def distances_of(n, seed=0):
    x = np.random.default_rng(seed).normal(size=(n, 2))
    return np.linalg.norm(x[:, None] - x[None], axis=-1)


def assert_same_graph(a, b):
    np.testing.assert_allclose(a.to_dense(), b.to_dense())
    np.testing.assert_array_equal(a.node_mask, b.node_mask)


# Edges


@pytest.mark.parametrize("layout", LAYOUTS)
def test_edges_become_entries_sender_to_receiver(layout):
    g = graph_of(layout)
    assert (g.num_nodes, g.layout) == (5, layout)
    np.testing.assert_allclose(g.to_dense(), ADJACENCY)


@pytest.mark.parametrize("layout", ["dense", "csr"])
def test_edges_keep_their_order(layout):
    features = np.arange(10.0).reshape(5, 2)
    g = graph_of(layout, edge_features=features)
    np.testing.assert_array_equal(g.senders, SENDERS)
    np.testing.assert_array_equal(g.receivers, RECEIVERS)
    np.testing.assert_allclose(g.weights, WEIGHTS)
    np.testing.assert_allclose(g.edge_features, features)
    assert g.num_edges == 5


def test_pairs_have_a_slot_for_each_pair_receiver_first():
    features = np.arange(10.0).reshape(5, 2)
    g = graph_of("pairs", edge_features=features)
    slots = np.array(RECEIVERS) * 5 + SENDERS
    assert g.num_edges == 25
    np.testing.assert_array_equal(np.flatnonzero(g.edge_mask), np.sort(slots))
    np.testing.assert_allclose(g.edge_features[slots], features)
    np.testing.assert_array_equal(g.senders[slots], SENDERS)
    np.testing.assert_array_equal(g.receivers[slots], RECEIVERS)


@pytest.mark.parametrize("kind", [list, tuple, np.asarray, jnp.asarray, pd.Series, lambda x: np.asarray(x, np.uint8)])
def test_indices_of_any_kind(kind):
    g = Graph.from_edges(kind(SENDERS), kind(RECEIVERS), num_nodes=5)
    np.testing.assert_allclose(g.to_dense(), ADJACENCY != 0)


def test_number_of_nodes_is_found():
    assert Graph.from_edges([0, 7], [3, 1]).num_nodes == 8
    assert Graph.from_edges([], []).num_nodes == 0


def test_duplicate_edges_stay_apart_and_add_up():
    g = Graph.from_edges([0, 0, 0], [1, 1, 1], [1.0, 2.0, 4.0], layout="csr")
    assert g.num_edges == 3
    np.testing.assert_allclose(g.to_dense(), [[0, 7], [0, 0]])


@pytest.mark.parametrize("layout", LAYOUTS)
def test_undirected_adds_the_opposite_of_all_but_loops(layout):
    features = np.arange(3.0)[:, None]
    g = Graph.from_edges([0, 1, 2], [1, 2, 2], [2.0, 3.0, 5.0], edge_features=features, undirected=True, layout=layout)
    np.testing.assert_allclose(g.to_dense(), [[0, 2, 0], [2, 0, 3], [0, 3, 5]])
    by_edge = {
        (int(s), int(r)): float(f[0])
        for s, r, f, on in zip(g.senders, g.receivers, g.edge_features, g.edge_mask, strict=True)
        if on
    }
    assert by_edge == {(0, 1): 0, (1, 0): 0, (1, 2): 1, (2, 1): 1, (2, 2): 2}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_weights_may_be_traced(layout):
    def total(w):
        g = Graph.from_edges(SENDERS, RECEIVERS, w, num_nodes=5, layout=layout)
        return jnp.sum(g.to_dense() ** 2)

    np.testing.assert_allclose(jax.jit(jax.grad(total))(jnp.array(WEIGHTS)), 2 * np.array(WEIGHTS))


def test_arrays_that_were_given_may_change_afterwards(x64):
    senders, receivers = aligned(SENDERS, np.int32), aligned(RECEIVERS, np.int32)
    weights, features = aligned(WEIGHTS, float), aligned(np.ones((5, 1)), float)
    g = Graph.from_edges(senders, receivers, weights, 5, features)
    h = g.with_weights(weights)
    for a in (senders, receivers, weights, features):
        a[:] = 0
    np.testing.assert_array_equal(g.to_dense(), ADJACENCY)
    np.testing.assert_array_equal(h.weights, WEIGHTS)
    assert g.edge_features.all()


@pytest.mark.parametrize(("n", "m", "layout"), [(128, 0, "dense"), (500, 10, "csr"), (500, 50_000, "dense")])
def test_layout_is_chosen_by_size(n, m, layout):
    ends = np.arange(m) % n
    assert Graph.from_edges(ends, ends, num_nodes=n).layout == layout


def test_more_nodes_than_a_dense_matrix_is_worth_are_csr():
    assert Graph.from_edges([0], [1], num_nodes=10_000).layout == "csr"


# Matrices


@pytest.mark.parametrize(
    "kind",
    [np.asarray, jnp.asarray, sparse.csr_array, sparse.coo_array, sparse.csc_matrix, sparse.lil_array],
)
def test_adjacency_comes_back(kind):
    g = Graph.from_adjacency(kind(ADJACENCY))
    assert g.num_edges == 5
    np.testing.assert_allclose(g.to_dense(), ADJACENCY)


@pytest.mark.parametrize("dtype", [bool, np.int8, np.uint16, np.float32])
def test_adjacency_of_any_real_dtype(dtype):
    np.testing.assert_allclose(Graph.from_adjacency((ADJACENCY != 0).astype(dtype)).to_dense(), ADJACENCY != 0)


def test_sparse_duplicates_add_up_and_stored_zeros_are_no_edges():
    ends = ([0, 0, 1, 2], [1, 1, 2, 0])
    a = sparse.coo_array(([1.0, 2.0, 0.0, 4.0], ends), shape=(3, 3))
    g = Graph.from_adjacency(a)
    assert g.num_edges == 2
    np.testing.assert_allclose(g.to_dense(), [[0, 3, 0], [0, 0, 0], [4, 0, 0]])
    assert a.nnz == 4  # what was given is left as it was


def test_empty_adjacency():
    assert Graph.from_adjacency(np.zeros((0, 0))).num_nodes == 0
    assert Graph.from_adjacency(np.zeros((3, 3))).num_edges == 0


# Distances


@settings(max_examples=20)
@given(n=st.integers(0, 7), percentile=st.floats(0, 100), seed=st.integers(0, 5), grid=st.booleans())
def test_distances_within_a_percentile(n, percentile, seed, grid):
    d = distances_of(n, seed)
    d = np.round(d) if grid else d  # many equal distances
    off = [d[i, j] for i in range(n) for j in range(n) if i != j]
    expected = np.zeros((n, n))
    for i in range(n):
        for j in range(n):
            # The share of distances below one's own is at most the percentile, in numpy's count of n - 1 gaps.
            expected[i, j] = i != j and np.sum(np.array(off) < d[i, j]) <= percentile / 100 * (len(off) - 1)
    g = Graph.from_distances(d, percentile)
    joined = np.zeros((n, n))
    joined[g.senders, g.receivers] = g.weights
    np.testing.assert_array_equal(joined, expected)


def test_percentile_40_is_numpys():
    d = distances_of(8)
    off = d[~np.eye(8, dtype=bool)]
    expected = (d <= np.percentile(off, 40)) & ~np.eye(8, dtype=bool)
    np.testing.assert_array_equal(Graph.from_distances(d).to_dense(), expected)


def test_distances_that_differ_by_rounding_give_both_directions_or_none():
    d = distances_of(6)
    d = d * (1 + 1e-12 * np.triu(np.ones((6, 6))))
    a = np.asarray(Graph.from_distances(d, 50).to_dense())
    assert a.any()
    np.testing.assert_array_equal(a, a.T)


UNREACHABLE = np.array([[0, 1, 2, np.inf], [1, 0, 1.5, np.inf], [2, 1.5, 0, np.inf], [np.inf] * 3 + [0]])


@pytest.mark.parametrize(
    "build",
    [
        lambda d: Graph.from_distances(d, 100),
        lambda d: Graph.from_gaussian_kernel(d, threshold=0),
        lambda d: Graph.from_nearest(d, 3),
    ],
)
def test_infinite_distances_are_never_joined(build):
    joined = np.asarray(build(UNREACHABLE).to_dense()) > 0
    np.testing.assert_array_equal(joined, np.isfinite(UNREACHABLE) & ~np.eye(4, dtype=bool))


@pytest.mark.parametrize("sigma", [None, 0.7])
def test_gaussian_kernel(sigma):
    d = distances_of(6)
    off = ~np.eye(6, dtype=bool)
    scale = d[off].std() if sigma is None else sigma
    expected = np.exp(-((d / scale) ** 2)) * off
    expected[expected < 0.3] = 0
    assert 0 < np.count_nonzero(expected) < off.sum()
    g = Graph.from_gaussian_kernel(d, sigma, threshold=0.3)
    np.testing.assert_allclose(g.to_dense(), expected, rtol=1e-6)


@pytest.mark.parametrize("undirected", [False, True])
def test_nearest(undirected):
    d = distances_of(7)
    hears_from = np.zeros((7, 7))
    for i in range(7):
        others = sorted((j for j in range(7) if j != i), key=lambda j: d[i, j])
        hears_from[i, others[:2]] = 1
    expected = np.maximum(hears_from, hears_from.T) if undirected else hears_from.T
    np.testing.assert_array_equal(Graph.from_nearest(d, 2, undirected=undirected).to_dense(), expected)


def test_builders_leave_distances_as_they_were():
    d = distances_of(5)
    before = d.copy()
    Graph.from_nearest(d, 2)
    Graph.from_gaussian_kernel(d)
    np.testing.assert_array_equal(d, before)


# Positions

X = jax.random.normal(jax.random.key(0), (6, 2))


def joined_at(x, radius):
    return (2 * np.linalg.norm(x[:, None] - x[None], axis=-1) <= radius) & ~np.eye(len(x), dtype=bool)


def test_positions_within_half_the_radius():
    expected = joined_at(np.asarray(X), 2.0)
    assert 0 < expected.sum() < 30
    for radius in (2, 2.0, jnp.float32(2)):
        g = Graph.from_positions(X, radius)
        assert g.layout == "pairs"
        np.testing.assert_array_equal(g.to_dense(), expected)


def test_the_radius_itself_counts():
    x = jnp.array([[0.0], [1.0], [2.5]])
    np.testing.assert_array_equal(Graph.from_positions(x, radius=2.0).to_dense(), joined_at(np.asarray(x), 2.0))
    assert Graph.from_positions(x, radius=2.0).to_dense()[0, 1] == 1


def test_positions_under_jit_and_vmap():
    xs = jnp.stack([X, 0.3 * X, 3 * X])
    graphs = jax.jit(jax.vmap(Graph.from_positions, (0, None)))(xs, 2.0)
    dense = jax.vmap(Graph.to_dense)(graphs)
    for a, x in zip(dense, np.asarray(xs), strict=True):
        np.testing.assert_array_equal(a, joined_at(x, 2.0))
    assert len({int(a.sum()) for a in dense}) == 3


def test_positions_have_gradients_where_points_coincide():
    x = X.at[1].set(X[0])

    def energy(x):
        g = Graph.from_positions(x, 3.0)
        squares = jnp.sum((g.at_senders(x) - g.at_receivers(x)) ** 2, -1)
        return jnp.sum(jnp.where(g.active_edges, squares, 0))

    a = joined_at(np.asarray(x), 3.0).astype(float)
    expected = 4 * (a.sum(1, keepdims=True) * x - a @ x)
    np.testing.assert_allclose(jax.jit(jax.grad(energy))(x), expected, atol=1e-5)


@pytest.mark.parametrize("n", [0, 1])
def test_few_positions(n):
    g = Graph.from_positions(jnp.zeros((n, 3)), 1.0)
    assert (g.num_nodes, g.num_edges) == (n, n * n)
    assert not g.to_dense().any()


def test_whole_numbers_as_positions():
    np.testing.assert_array_equal(Graph.from_positions(np.array([[0], [1], [9]]), 2).to_dense()[0], [0, 1, 0])


# networkx


@pytest.mark.parametrize("kind", [nx.Graph, nx.DiGraph, nx.MultiGraph, nx.MultiDiGraph])
def test_networkx(kind):
    n = kind()
    n.add_nodes_from("cab")
    n.add_edge("a", "b", weight=2.0)
    n.add_edge("b", "b", weight=3.0)
    n.add_edge("c", "a")
    if n.is_multigraph():
        n.add_edge("a", "b", weight=5.0)
    g = Graph.from_networkx(n)
    assert g.num_edges == (n.number_of_edges() if n.is_directed() else 2 * n.number_of_edges() - 1)
    np.testing.assert_allclose(g.to_dense(), nx.to_numpy_array(n))


def test_networkx_by_another_attribute_and_empty():
    n = nx.DiGraph()
    n.add_edge(0, 1, weight=2.0, flow=7.0)
    assert Graph.from_networkx(n, weight="flow").to_dense()[0, 1] == 7
    assert Graph.from_networkx(nx.Graph()).num_nodes == 0
    assert Graph.from_networkx(nx.empty_graph(3)).to_dense().shape == (3, 3)


# Changed copies


@pytest.mark.parametrize("layout", LAYOUTS)
def test_permuted_nodes(layout):
    order = [3, 0, 4, 1, 2]
    masked = graph_of(layout).with_node_mask(np.array([True, True, True, False, True]))
    g = masked.permute(order)
    assert g.layout == layout
    np.testing.assert_allclose(g.to_dense(), masked.to_dense()[np.ix_(order, order)])
    np.testing.assert_array_equal(g.node_mask, masked.node_mask[np.array(order)])
    assert_same_graph(g.permute(np.argsort(order)), masked)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("other", LAYOUTS)
def test_other_layouts_hold_the_same_graph(layout, other):
    g = graph_of(layout, edge_features=np.arange(5.0)[:, None]).with_node_mask(np.arange(5) != 3)
    h = g.with_layout(other)
    assert h.layout == other
    assert_same_graph(h, g)
    np.testing.assert_allclose(
        h.scatter_pairs(jnp.where(h.edge_mask, h.edge_features[:, 0], 0)),
        g.scatter_pairs(jnp.where(g.edge_mask, g.edge_features[:, 0], 0)),
    )


def test_pairs_drop_edges_that_are_off_when_they_become_edges():
    assert graph_of("pairs").with_layout("csr").num_edges == 5


@pytest.mark.parametrize("layout", ["dense", "csr"])
def test_padding_is_off(layout):
    g = graph_of(layout, edge_features=np.ones((5, 2)))
    h = g.pad(num_nodes=7, num_edges=9)
    assert (h.num_nodes, h.num_edges, h.layout) == (7, 9, layout)
    assert h.edge_features.shape == (9, 2)
    np.testing.assert_array_equal(h.active_edges, np.arange(9) < 5)
    np.testing.assert_array_equal(h.node_mask, np.arange(7) < 5)
    np.testing.assert_allclose(h.to_dense(), np.pad(ADJACENCY, (0, 2)))


def test_padding_of_pairs_is_off_and_keeps_what_is_off():
    g = graph_of("pairs").with_weights(np.arange(25.0))
    h = g.pad(num_nodes=7)
    assert (h.num_nodes, h.num_edges, h.layout) == (7, 49, "pairs")
    np.testing.assert_allclose(h.to_dense(), np.pad(g.to_dense(), (0, 2)))
    np.testing.assert_allclose(h.weights.reshape(7, 7)[:5, :5], g.weights.reshape(5, 5))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_padding_of_nothing(layout):
    g = Graph.from_edges([], [], layout=layout).pad(num_nodes=2)
    assert g.to_dense().shape == (2, 2)
    assert not g.node_mask.any()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_absent_nodes_take_their_edges_along(layout):
    g = graph_of(layout).with_node_mask(np.array([True, False, True, True, True]))
    expected = ADJACENCY.copy()
    expected[1] = expected[:, 1] = 0
    np.testing.assert_allclose(g.to_dense(), expected)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_edges_can_be_switched_off_under_jit(layout):
    g = graph_of(layout)
    keep = jnp.asarray(g.weights > 1)
    off = jax.jit(lambda g, m: g.with_edge_mask(m & g.edge_mask).to_dense())(g, keep)
    np.testing.assert_allclose(off, np.where(ADJACENCY > 1, ADJACENCY, 0))


def test_pairs_can_be_switched_on_and_weigh_one_unless_given():
    g = graph_of("pairs").with_edge_mask(np.ones(25, bool))
    np.testing.assert_allclose(g.to_dense(), np.where(ADJACENCY == 0, 1, ADJACENCY))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_other_weights_drop_carried_operators(layout):
    g = graph_of(layout).prepare("adjacency")
    h = g.with_weights(2 * g.weights)
    assert not h.prepared
    np.testing.assert_allclose(h.operator("adjacency").to_dense(), 2 * g.operator("adjacency").to_dense())
    assert not g.with_node_mask(g.node_mask).prepared
    assert not g.with_edge_mask(g.edge_mask).prepared


def test_float64_weights(x64):
    g = graph_of()
    assert g.weights.dtype == jnp.float64
    assert g.with_weights(np.array([0.1] * 5)).weights[0] == 0.1


def test_repr_is_short():
    g = graph_of().prepare("gcn")
    assert repr(g) == "Graph(num_nodes=5, num_edges=5, layout='dense', prepared=['gcn'])"
    batch = jax.tree.map(lambda a: a[None], g)
    assert "batch=(1,)" in repr(batch)


# Values on edges


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("shape", [(), (2,), (2, 3)])
def test_values_to_edges_and_back(layout, shape):
    g = graph_of(layout)
    z = jax.random.normal(jax.random.key(1), (5, *shape))
    m = jax.random.normal(jax.random.key(2), (g.num_edges, *shape))
    np.testing.assert_allclose(g.at_senders(z), np.asarray(z)[g.senders])
    np.testing.assert_allclose(g.at_receivers(z), np.asarray(z)[g.receivers])
    into, out_of = np.zeros((2, 5, *shape))
    largest = np.full((5, *shape), -np.inf)
    np.add.at(into, np.asarray(g.receivers), np.asarray(m))
    np.add.at(out_of, np.asarray(g.senders), np.asarray(m))
    np.maximum.at(largest, np.asarray(g.receivers), np.asarray(m))
    np.testing.assert_allclose(g.sum_to_receivers(m), into, atol=1e-6)
    np.testing.assert_allclose(g.sum_to_senders(m), out_of, atol=1e-6)
    np.testing.assert_allclose(g.max_to_receivers(m), largest)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", [bool, np.int32])
def test_flags_and_counts_to_edges(layout, dtype):
    g = graph_of(layout)
    flags = jnp.asarray(np.arange(10).reshape(5, 2) % 3, dtype)
    np.testing.assert_array_equal(g.at_senders(flags), np.asarray(flags)[g.senders])
    assert g.at_receivers(flags).dtype == dtype


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("n", [0, 3])
def test_values_on_a_graph_without_edges(layout, n):
    g = Graph.from_edges([], [], num_nodes=n, layout=layout)
    m = jnp.full((g.num_edges, 2), -jnp.inf)
    assert g.at_senders(jnp.ones((n, 2))).shape == (g.num_edges, 2)
    assert g.sum_to_receivers(jnp.zeros((g.num_edges, 2))).shape == (n, 2)
    np.testing.assert_array_equal(g.max_to_receivers(m), np.full((n, 2), -np.inf))


# Refused


def traced(build):
    return lambda: jax.jit(build)(jnp.ones((3, 3)))


ASYMMETRIC = np.array([[0.0, 1.0], [2.0, 0.0]])
HUGE = np.broadcast_to(np.int8(0), (2**31,))
BATCH = jax.tree.map(lambda a: jnp.stack([a, a]), graph_of())

REFUSED = {
    "sender too large": ("senders[1] = 9", lambda: Graph.from_edges([0, 9], [1, 1], num_nodes=5)),
    "receiver negative": ("receivers[0] = -1", lambda: Graph.from_edges([0], [-1])),
    "no nodes": ("senders[0] = 0", lambda: Graph.from_edges([0], [0], num_nodes=0)),
    "lengths": ("senders and receivers", lambda: Graph.from_edges([0, 1], [1])),
    "float indices": ("senders: expected whole", lambda: Graph.from_edges([0.0], [1])),
    "bool indices": ("receivers: expected whole", lambda: Graph.from_edges([0], [True])),
    "2-d indices": ("senders: expected a list", lambda: Graph.from_edges(np.zeros((2, 1), int), [0, 0])),
    "negative count": ("num_nodes: expected a whole", lambda: Graph.from_edges([], [], num_nodes=-1)),
    "too many nodes": ("num_nodes: expected at most", lambda: Graph.from_edges([], [], num_nodes=2**31)),
    "too many edges": ("senders: expected at most", lambda: Graph.from_edges(HUGE, HUGE)),
    "too many pairs": ("edges: expected at most", lambda: Graph.from_edges([], [], num_nodes=50_000, layout="pairs")),
    "weights' length": ("weights: expected shape (2,)", lambda: Graph.from_edges([0, 1], [1, 0], [1.0])),
    "weights' rank": ("weights: expected shape (1,)", lambda: Graph.from_edges([0], [1], [[1.0]])),
    "nan weight": ("weights[1] is nan", lambda: Graph.from_edges([0, 1], [1, 0], [1.0, np.nan])),
    "infinite weight": ("weights[0] is inf", lambda: Graph.from_edges([0], [1], [np.inf])),
    "weights of text": ("weights: expected real", lambda: Graph.from_edges([0], [1], ["a"])),
    "features' length": (
        "edge_features: expected shape (1, channels)",
        lambda: Graph.from_edges([0], [1], edge_features=np.ones((2, 3))),
    ),
    "nan feature": ("edge_features[0, 1] is nan", lambda: Graph.from_edges([0], [1], edge_features=[[1, np.nan]])),
    "duplicates in pairs": ("the edge 0 -> 1 comes", lambda: Graph.from_edges([0, 0], [1, 1], layout="pairs")),
    "duplicates to pairs": (
        "the edge 1 -> 0 comes",
        lambda: Graph.from_edges([1, 1], [0, 0]).with_layout("pairs"),
    ),
    "traced senders": ("senders: this builder", traced(lambda x: Graph.from_edges(x[0], [0, 1, 2]))),
    "traced adjacency": ("a: this builder", traced(Graph.from_adjacency)),
    "traced distances": ("distances: this builder", traced(Graph.from_distances)),
    "traced graph": ("graph: this builder", lambda: jax.jit(lambda g: g.pad(num_nodes=9))(graph_of())),
    "traced order": ("order: this builder", lambda: jax.jit(lambda order: graph_of().permute(order))(jnp.arange(5))),
    "adjacency not square": ("a: expected a square", lambda: Graph.from_adjacency(np.ones((2, 3)))),
    "adjacency of one row": ("a: expected a square", lambda: Graph.from_adjacency(np.ones(3))),
    "sparse not square": ("a: expected a square", lambda: Graph.from_adjacency(sparse.csr_array((2, 3)))),
    "nan adjacency": ("a[0, 1] is nan", lambda: Graph.from_adjacency([[0, np.nan], [0, 0]])),
    "complex adjacency": ("a: expected real", lambda: Graph.from_adjacency(1j * np.ones((2, 2)))),
    "complex sparse": ("a: expected real", lambda: Graph.from_adjacency(sparse.eye_array(2) * 1j)),
    "asymmetric distances": ("distances[0, 1] = 1.0 but distances[1, 0]", lambda: Graph.from_distances(ASYMMETRIC)),
    "negative distance": ("distances[0, 1] is -1.0", lambda: Graph.from_nearest(np.eye(2) - 1, 1)),
    "nan distance": ("distances[0, 0] is nan", lambda: Graph.from_gaussian_kernel([[np.nan]])),
    "distances not square": ("distances: expected a square", lambda: Graph.from_distances(np.ones((2, 3)))),
    "percentile": ("percentile: expected", lambda: Graph.from_distances(distances_of(3), 101)),
    "sigma": ("sigma: expected a positive", lambda: Graph.from_gaussian_kernel(distances_of(3), 0.0)),
    "equal distances": ("sigma: expected a positive", lambda: Graph.from_gaussian_kernel(1 - np.eye(3))),
    "threshold": ("threshold: expected", lambda: Graph.from_gaussian_kernel(distances_of(3), threshold=-0.1)),
    "too many neighbours": ("k: expected fewer", lambda: Graph.from_nearest(distances_of(3), 3)),
    "negative neighbours": ("k: expected a whole", lambda: Graph.from_nearest(distances_of(3), -1)),
    "negative radius": ("radius: expected", lambda: Graph.from_positions(X, -1.0)),
    "nan radius": ("radius: expected", lambda: Graph.from_positions(X, np.nan)),
    "nan position": ("x[2, 1] is nan", lambda: Graph.from_positions(X.at[2, 1].set(jnp.nan), 1.0)),
    "no networkx graph": ("graph: expected a networkx", lambda: Graph.from_networkx([(0, 1)])),
    "networkx weight": ("weights: expected real", lambda: Graph.from_networkx(nx.Graph([(0, 1, {"weight": "a"})]))),
    "unknown operator": ("Did you mean 'random_walk'?", lambda: graph_of().operator("random_walks")),
    "fewer nodes": ("num_nodes: expected at least", lambda: graph_of().pad(num_nodes=4)),
    "fewer edges": ("num_edges: expected at least", lambda: graph_of().pad(num_edges=4)),
    "edges for pairs": ("num_edges: a graph of layout 'pairs'", lambda: graph_of("pairs").pad(num_edges=30)),
    "edges for no nodes": ("num_edges: a graph without", lambda: Graph.from_edges([], []).pad(num_edges=1)),
    "other weights' length": ("weights: expected shape (5,)", lambda: graph_of().with_weights(np.ones(4))),
    "other weights nan": ("weights[0] is nan", lambda: graph_of().with_weights(np.full(5, np.nan))),
    "node mask's length": ("node_mask: expected shape (5,)", lambda: graph_of().with_node_mask(np.ones(4, bool))),
    "edge mask's length": ("edge_mask: expected shape (5,)", lambda: graph_of().with_edge_mask(np.ones(4, bool))),
    "order twice": ("order: expected each of 0..4 once", lambda: graph_of().permute([0, 0, 1, 2, 3])),
    "batch padded": ("graph: expected one graph to pad", lambda: BATCH.pad(num_nodes=9)),
    "batch permuted": ("graph: expected one graph to permute", lambda: BATCH.permute(range(5))),
    "batch in another layout": ("graph: expected one graph to store", lambda: BATCH.with_layout("csr")),
    "batch normalised": ("graph: expected one graph to normalise", lambda: BATCH.operator("gcn")),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case):
    part, build = REFUSED[case]
    with pytest.raises(InputError) as error:
        build()
    assert part in str(error.value)
