"""Sparse products in slices: the same values and derivatives as those of a dense matrix, and where slices are made."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from neuralgde import Graph, GraphStream
from neuralgde.graph import _layout
from neuralgde.graph._layout import choose_widths
from products import dense, nonlinear

NODES = 12


@pytest.fixture
def small_slices(monkeypatch):
    """Slices for graphs of any size, at most five wide."""
    monkeypatch.setattr(_layout, "SLICED_NODES", 1)
    monkeypatch.setattr(_layout, "WIDEST_SLICE", 5)


def edges(seed=0, hub=6):
    """Rows without entries, of one to four, and longer ones; node 0 sends and receives nothing."""
    rng = np.random.default_rng(seed)
    lengths = [0, 0, 1, 1, 2, 2, 3, 4, 4, 4, hub, 1]
    receivers = np.repeat(np.arange(NODES), lengths)
    senders = np.concatenate([1 + rng.choice(NODES - 1, k, replace=False) for k in lengths])
    order = rng.permutation(len(senders))
    return senders[order], receivers[order]


def structure(**options):
    senders, receivers = edges(**options)
    return Graph.from_edges(senders, receivers, num_nodes=NODES, layout="csr").structure


def in_slices(w, z, s):
    return s.operator(w) @ z


@pytest.mark.parametrize("hub", [6, 2], ids=["long rows", "none"])
def test_values_and_derivatives(x64, small_slices, hub):
    s = structure(hub=hub)
    w = jax.random.normal(jax.random.key(0), s.by_receiver.shape)
    z = jax.random.normal(jax.random.key(1), (NODES, 2))
    own, transposed = s.slicings
    assert own.columns[0].shape == (2, 0) and len(own.columns) > 1 and transposed is not None
    assert (own.long[0].size > 0) == (hub > 5)

    @jax.jit
    def everything(w, z):
        found = []
        for product in (in_slices, dense):
            f = nonlinear(product)
            found.append(
                (
                    product(w, z, s),
                    jax.jvp(lambda w, z, p=product: p(w, z, s), (w, z), (jnp.cos(w), jnp.sin(z))),
                    jax.grad(f, (0, 1))(w, z, s),
                    jax.hessian(f, (0, 1))(w, z, s),
                    jax.jacrev(jax.grad(f, 1))(w, z, s),
                    jax.vmap(lambda z, p=product: p(w, z, s), 2, 1)(jnp.stack([z, z**2, jnp.cos(z)], 2)),
                )
            )
        return found

    sliced, expected = everything(w, z)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-11), sliced, expected)
    twice = jax.jit(lambda w, z: s.operator(w).T.T @ z)
    np.testing.assert_allclose(twice(w, z), expected[0], atol=1e-12)


def test_a_batch_of_matrices(small_slices):
    s = structure()
    w = jax.random.normal(jax.random.key(0), (3, *s.by_receiver.shape))
    z = jax.random.normal(jax.random.key(1), (3, NODES, 2))

    def gradients(product):
        return jax.vmap(jax.grad(nonlinear(product), (0, 1)), (0, 0, None))(w, z, s)

    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, atol=1e-4),
        *map(jax.jit(gradients, static_argnums=0), (in_slices, dense)),
    )


def test_what_is_not_finite_reaches_receivers_alone(small_slices):
    senders, receivers = edges()
    op = Graph.from_edges(senders, receivers, num_nodes=NODES, layout="csr").operator("adjacency")
    assert op.matrix.slices is not None
    for lost in range(NODES):
        out = op @ jnp.ones((NODES, 1)).at[lost].set(jnp.nan)
        reached = np.isin(np.arange(NODES), receivers[senders == lost])
        np.testing.assert_array_equal(np.isnan(out[:, 0]), reached)


def graphs_alike_but_for_their_edges():
    """Three of equal size, whose slices are not."""
    graphs = [Graph.from_edges(*edges(seed), num_nodes=NODES, layout="csr") for seed in range(3)]
    columns = [jax.tree.map(jnp.shape, g.structure.slicings[1].columns) for g in graphs]
    assert len({tuple(c) for c in columns}) > 1
    return graphs


def test_padded_graphs_share_a_program(small_slices):
    programs = []

    @jax.jit
    def product(graph, z):
        programs.append(graph)
        return graph.operator("gcn") @ z

    z = jax.random.normal(jax.random.key(1), (NODES, 2))
    for graph in graphs_alike_but_for_their_edges():
        padded = graph.pad()
        np.testing.assert_allclose(product(padded, z), graph.operator("gcn") @ z, atol=1e-6)
        for again in (padded.permute(np.arange(NODES)), padded.with_layout("csr")):
            assert jax.tree.structure(again) == jax.tree.structure(padded)
    assert len(programs) == 1


def test_streams_keep_weights_and_operators(small_slices):
    """They drop slices and nothing else: no graph is built again, so that its weights may be traced."""
    graphs = graphs_alike_but_for_their_edges()
    mine = [g.with_operator("mine", k * jnp.eye(NODES)).prepare("gcn") for k, g in enumerate(graphs)]
    z = jax.random.normal(jax.random.key(1), (NODES, 2))

    @jax.jit
    def products(scale):
        scaled = [g.with_weights(scale * g.weights) for g in graphs]
        streams = [GraphStream(np.arange(3.0), np.zeros((3, NODES, 1)), g) for g in (mine, scaled)]
        names = ("mine", "gcn"), ("adjacency",)
        return [
            jax.vmap(lambda g, name=name: g.operator(name) @ z)(stream.graphs)
            for stream, group in zip(streams, names, strict=True)
            for name in group
        ]

    own, gcn, adjacency = products(jnp.asarray(2.0))
    for k, graph in enumerate(graphs):
        np.testing.assert_allclose(own[k], k * z)
        np.testing.assert_allclose(gcn[k], graph.operator("gcn") @ z, atol=1e-6)
        np.testing.assert_allclose(adjacency[k], 2 * (graph.operator("adjacency") @ z), atol=1e-5)


def test_a_stream_of_one_graph_with_other_weights_keeps_its_slices(small_slices):
    graph = Graph.from_edges(*edges(), num_nodes=NODES, layout="csr")
    graphs = [graph.with_weights((1.0 + k) * graph.weights) for k in range(3)]
    stream = GraphStream(np.arange(3.0), np.zeros((3, NODES, 1)), graphs)
    z = jax.random.normal(jax.random.key(1), (NODES, 2))
    assert stream.graphs.structure.slicings[0] is not None

    def step(total, k):
        op = stream.graph_at(k).operator("laplacian")
        return total + op @ z, op @ z

    total, each = jax.jit(lambda: jax.lax.scan(step, jnp.zeros_like(z), jnp.arange(3)))()
    expected = graph.with_layout("dense").operator("laplacian") @ z
    np.testing.assert_allclose(total, 6 * expected, atol=1e-4)
    np.testing.assert_allclose(each, jnp.stack([k * expected for k in (1, 2, 3)]), atol=1e-5)
    batched = jax.vmap(lambda g: g.operator("laplacian") @ z)(stream.graphs)
    np.testing.assert_allclose(batched, each, atol=1e-5)


@pytest.mark.parametrize(("dtype", "gap"), [(jnp.bfloat16, 0.1), (jnp.float64, 1e-5)])
def test_dtype_of_the_states_rules(x64, small_slices, dtype, gap):
    # Without long rows, for which JAX would warn that its kernel has no bfloat16.
    graph = Graph.from_edges(*edges(hub=2), np.ones(24, np.float32), num_nodes=NODES, layout="csr")
    op = graph.operator("gcn")
    assert op.matrix.slices is not None
    z = jax.random.normal(jax.random.key(1), (NODES, 3), dtype)
    out = jax.checkpoint(lambda z: op @ z)(z)
    assert out.dtype == dtype and (op @ z[:, :0]).shape == (NODES, 0)
    np.testing.assert_allclose(out.astype(float), op.to_dense() @ z.astype(float), atol=gap)


def test_learned_weights_have_no_copies_among_their_derivatives(small_slices):
    graph = Graph.from_edges(*edges(), num_nodes=NODES, layout="csr")

    def copies(w):
        return jax.tree.leaves(graph.with_weights(w).operator("gcn").matrix.slices.values)

    tangents = jax.jvp(copies, (graph.weights,), (graph.weights,))[1]
    assert tangents and not any(np.any(t) for t in tangents)


@pytest.mark.parametrize("name", ["gcn", "laplacian", "random_walk", "reverse_random_walk"])
def test_operators_of_a_large_graph(name):
    """No threshold is moved here: 5,000 nodes have slices, and half of the rows are empty before loops are added."""
    n = 5000
    rng = np.random.default_rng(0)
    senders, receivers, weights = rng.integers(0, n, 20_000), rng.integers(0, n // 2, 20_000), rng.random(20_000)
    graph = Graph.from_edges(senders, receivers, weights, num_nodes=n)
    op = graph.operator(name)
    assert op.matrix.slices is not None and op.matrix.slices_t is not None
    z = jnp.asarray(rng.standard_normal((n, 3)), jnp.float32)
    dense = op.to_dense()
    np.testing.assert_allclose(op @ z, dense @ z, atol=1e-5)
    np.testing.assert_allclose(jax.vjp(lambda z: op @ z, z)[1](z)[0], dense.T @ z, atol=1e-5)


def test_slices_are_what_is_multiplied():
    n = _layout.SLICED_NODES
    ring = Graph.from_edges(np.arange(n), (np.arange(n) + 1) % n, num_nodes=n, layout="csr")
    program = jax.jit(lambda op, z: jnp.tanh(op @ z)).lower(ring.operator("gcn"), jnp.ones((n, 2))).as_text()
    assert "csr" not in program and "gather" in program


@pytest.mark.parametrize(
    ("lengths", "widths"),
    [
        ([3] * 10, [3]),
        ([2, 3] * 10, [3]),
        ([1] * 10 + [9], [1, 9]),
        ([1] * 30 + [5] * 10 + [20] * 3, [1, 5, 20]),
        ([0] * 5 + [2] * 10, [0, 2]),
        ([1] * 50 + [40], [1]),
        ([1] * 10 + [40], []),
        ([0] * 10, []),
        ([3] * 9, []),
    ],
    ids=["one", "little padding", "two", "three", "empty rows", "a hub", "mostly a hub", "no entries", "few nodes"],
)
def test_widths(monkeypatch, lengths, widths):
    monkeypatch.setattr(_layout, "SLICED_NODES", 10)
    assert choose_widths(np.array(lengths)) == widths


def test_operators_share_the_arrays_of_their_graph():
    n = _layout.SLICED_NODES
    graph = Graph.from_edges(np.arange(n), (np.arange(n) + 1) % n, num_nodes=n, layout="csr")
    matrix, structure = graph.operator("gcn").matrix, graph.structure.with_loops
    assert matrix.pattern.indices is structure.adjacency.indices
    assert matrix.slices.columns is structure.slicings[0].columns
