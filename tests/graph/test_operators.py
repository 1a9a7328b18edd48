"""Operators against formulas in numpy, on graphs with everything that graphs may have, in all layouts."""

import functools

import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings

from neuralgde import Graph, InputError

LAYOUTS = ("dense", "csr", "pairs")


def inverse(degree, power):
    out = np.zeros_like(degree)
    out[degree > 0] = degree[degree > 0] ** -power
    return out


def reference(name, senders, receivers, weights, present):
    """The matrix [receiver, sender], by the formula of each name."""
    n = len(present)
    m = np.zeros((n, n))
    looped = np.zeros(n, bool)
    for s, r, w in zip(senders, receivers, weights, strict=True):
        if present[s] and present[r]:
            m[r, s] += w
            looped[r] |= s == r
    bare = m - np.diag(np.diag(m))
    identity = np.diag(present.astype(float))
    if name == "adjacency":
        return m
    if name == "gcn":
        m = m + np.diag((present & ~looped).astype(float))
        d = np.diag(inverse(m.sum(1), 0.5))
        return d @ m @ d
    if name == "laplacian":
        return np.diag(bare.sum(1)) - bare
    if name == "random_walk":
        return np.diag(inverse(m.sum(1), 1)) @ m
    if name == "reverse_random_walk":
        return np.diag(inverse(m.sum(0), 1)) @ m.T
    d = np.diag(inverse(bare.sum(0 if name == "scaled_laplacian_out" else 1), 0.5))
    normalised = identity - d @ bare @ d
    return normalised if name == "normalised_laplacian" else normalised - identity


NAMES = (
    "adjacency",
    "gcn",
    "laplacian",
    "normalised_laplacian",
    "scaled_laplacian",
    "scaled_laplacian_out",
    "random_walk",
    "reverse_random_walk",
)
ALL = np.ones(6, bool)
# senders, receivers, weights, present nodes
GRAPHS = {
    # Self loop at 2, both directions between 0 and 1, node 5 isolated, node 4 only sends.
    "directed": ([0, 1, 1, 2, 3, 4, 2], [1, 0, 2, 2, 1, 3, 3], [0.5, 2.0, 1.0, 3.0, 0.7, 1.3, 0.2], ALL),
    "duplicates": ([0, 0, 2, 2, 3, 3, 1], [1, 1, 2, 2, 4, 4, 0], [0.5, 0.25, 1.0, 2.0, 3.0, 1.0, 1.0], ALL),
    "signs": ([0, 1, 2, 3, 4, 5, 0], [1, 2, 1, 4, 3, 4, 5], [-1.0, 0.0, 0.5, 2.0, -2.0, 0.0, 1.0], ALL),
    "absent nodes": (
        [0, 1, 1, 2, 3, 4, 2],
        [1, 0, 2, 2, 1, 3, 3],
        [0.5, 2.0, 1.0, 3.0, 0.7, 1.3, 0.2],
        np.array([True, True, False, True, True, False]),
    ),
    "no edges": ([], [], [], ALL),
    "one node": ([], [], [], np.ones(1, bool)),
    "one looped node": ([0], [0], [4.0], np.ones(1, bool)),
    "no nodes": ([], [], [], np.ones(0, bool)),
}  # fmt: skip


def build(case, layout):
    senders, receivers, weights, present = GRAPHS[case]
    if layout == "pairs":  # one slot a pair: duplicates are added up first
        totals: dict[tuple[int, int], float] = {}
        for s, r, w in zip(senders, receivers, weights, strict=True):
            totals[s, r] = totals.get((s, r), 0) + w
        senders, receivers, weights = [s for s, _ in totals], [r for _, r in totals], list(totals.values())
    return Graph.from_edges(senders, receivers, weights, len(present), layout=layout).with_node_mask(present)


@functools.cache
def matrices_of():
    """All operators of a graph as matrices, in one compiled program for each shape."""
    return jax.jit(lambda g: {name: g.operator(name).to_dense() for name in NAMES})


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("case", GRAPHS)
def test_formulas(case, layout):
    matrices = matrices_of()(build(case, layout))
    for name in NAMES:
        np.testing.assert_allclose(matrices[name], reference(name, *GRAPHS[case]), atol=1e-6, err_msg=name)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("case", ["directed", "duplicates", "absent nodes", "no edges"])
def test_products_in_every_layout(case, layout):
    g = build(case, layout)
    z = jax.random.normal(jax.random.key(0), (6, 3))
    products = jax.jit(lambda g, z: {name: g.operator(name) @ z for name in NAMES})(g, z)
    for name in NAMES:
        expected = reference(name, *GRAPHS[case]) @ np.asarray(z)
        np.testing.assert_allclose(products[name], expected, atol=1e-6, err_msg=name)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("shape", [(), (2,), (2, 3), (0,)])
def test_products_with_any_trailing_shape(layout, shape):
    z = jax.random.normal(jax.random.key(0), (6, *shape))
    out = build("directed", layout).operator("gcn") @ z
    assert out.shape == z.shape
    np.testing.assert_allclose(out, np.tensordot(reference("gcn", *GRAPHS["directed"]), z, 1), atol=1e-6)


@settings(max_examples=15)
@given(
    ends=st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=9, max_size=9),
    present=st.lists(st.booleans(), min_size=6, max_size=6),
    seed=st.integers(0, 3),
)
def test_random_graphs(ends, present, seed):
    # One number of edges, so that one program serves all examples; weights of 0 stand for fewer.
    senders, receivers = np.array(ends).T
    weights = np.round(np.random.default_rng(seed).uniform(0, 2, 9), 1)
    present = np.array(present)
    for layout in ("dense", "csr"):
        g = Graph.from_edges(senders, receivers, weights, 6, layout=layout).with_node_mask(present)
        for name, matrix in matrices_of()(g).items():
            expected = reference(name, senders, receivers, weights, present)
            np.testing.assert_allclose(matrix, expected, atol=1e-5, err_msg=f"{layout} {name}")


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("case", ["directed", "absent nodes"])
def test_padded_equals_unpadded(case, layout):
    g = build(case, layout)
    padded = g.pad(num_nodes=9) if layout == "pairs" else g.pad(num_nodes=9, num_edges=12)
    assert padded.num_edges > g.num_edges
    for name, matrix in matrices_of()(padded).items():
        np.testing.assert_allclose(matrix[:6, :6], matrices_of()(g)[name], atol=1e-6, err_msg=name)
        assert not matrix[6:].any() and not matrix[:, 6:].any()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_edges_off_equal_edges_left_out(layout):
    senders, receivers, weights, present = GRAPHS["directed"]
    g = build("directed", layout)
    # Edge 2 -> 2 is off, so that node 2 gets the loop of a node that has none.
    off = jnp.asarray((np.asarray(g.senders) == 2) & (np.asarray(g.receivers) == 2))
    without = [e for e in range(7) if (senders[e], receivers[e]) != (2, 2)]
    kept = [[column[e] for e in without] for column in (senders, receivers, weights)]
    matrices = matrices_of()(g.with_edge_mask(g.edge_mask & ~off))
    for name in NAMES:
        np.testing.assert_allclose(matrices[name], reference(name, *kept, present), atol=1e-6, err_msg=name)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_prepared_operators_are_carried_and_equal(layout):
    g = build("directed", layout)
    carried = g.prepare("gcn", "random_walk")
    assert sorted(carried.prepared) == ["gcn", "random_walk"]
    assert carried.operator("gcn") is carried.prepared["gcn"]
    assert carried.prepare("gcn") is carried
    assert sorted(carried.prepare("laplacian", "gcn").prepared) == ["gcn", "laplacian", "random_walk"]
    z = jnp.arange(12.0).reshape(6, 2)
    np.testing.assert_allclose(carried.operator("gcn") @ z, g.operator("gcn") @ z, atol=1e-6)
    # Through jit as an argument, without another normalisation inside.
    program = jax.make_jaxpr(lambda g, z: g.operator("gcn") @ z)(carried, z)
    assert "pow" not in str(program) and "rsqrt" not in str(program)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_permuted_nodes_permute_operators(layout):
    order = np.array([4, 2, 0, 5, 1, 3])
    g = build("absent nodes", layout)
    permuted = matrices_of()(g.permute(order))
    for name, matrix in matrices_of()(g).items():
        np.testing.assert_allclose(permuted[name], matrix[np.ix_(order, order)], atol=1e-6, err_msg=name)


def undirected():
    rng = np.random.default_rng(0)
    a = np.triu(rng.uniform(0, 1, (8, 8)) * (rng.uniform(size=(8, 8)) < 0.5), 1)
    return Graph.from_adjacency(a + a.T)


def test_spectrum_of_an_undirected_graph():
    g = undirected()
    values = {name: np.linalg.eigvalsh(g.operator(name).to_dense()) for name in NAMES[1:5]}
    assert values["laplacian"].min() > -1e-5
    assert -1e-5 < values["normalised_laplacian"].min() < 1e-5 and values["normalised_laplacian"].max() < 2
    np.testing.assert_allclose(values["scaled_laplacian"], values["normalised_laplacian"] - 1, atol=1e-5)
    np.testing.assert_allclose(values["gcn"].max(), 1, atol=1e-5)
    np.testing.assert_allclose(g.operator("laplacian") @ jnp.ones(8), 0, atol=1e-5)


@pytest.mark.parametrize("name", ["random_walk", "adjacency"])
def test_unweighted_operators_count_each_edge_once(name):
    senders, receivers, weights, present = GRAPHS["directed"]
    found = build("directed", "csr").operator(f"unweighted_{name}").to_dense()
    expected = reference(name, senders, receivers, np.ones_like(weights), present)
    np.testing.assert_allclose(found, expected, atol=1e-6)
    assert not np.allclose(found, reference(name, senders, receivers, weights, present))


@pytest.mark.parametrize(("name", "ends"), [("random_walk", 1), ("reverse_random_walk", 0)])
def test_walks_sum_to_one_where_there_is_somewhere_to_go(name, ends):
    sums = build("directed", "csr").operator(name) @ jnp.ones(6)
    np.testing.assert_allclose(sums, np.isin(np.arange(6), GRAPHS["directed"][ends]), atol=1e-6)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_messages_flow_along_edges(layout):
    g = Graph.from_edges([0], [1], num_nodes=3, layout=layout)
    np.testing.assert_array_equal(g.operator("adjacency") @ jnp.array([5.0, 7.0, 9.0]), [0, 5, 0])


def test_gradients_of_weights_agree_between_layouts_and_stay_finite(x64):
    z = jax.random.normal(jax.random.key(0), (6, 2))

    def loss(w, g, name):
        # `w` is per edge of the edge list; pairs take them to their slots.
        if g.layout == "pairs":
            slots = jnp.asarray(GRAPHS["directed"][1]) * 6 + jnp.asarray(GRAPHS["directed"][0])
            w = g.weights.at[slots].set(w)
        return jnp.sum(jnp.sin(g.with_weights(w).operator(name) @ z))

    grads = jax.jit(lambda w, g: {name: jax.grad(loss)(w, g, name) for name in NAMES})
    # A weight of zero leaves node 0 without degree, where a power has no finite derivative.
    w = jnp.array(GRAPHS["directed"][2]).at[1].set(0.0)
    expected = grads(w, build("directed", "dense"))
    for layout in ("csr", "pairs"):
        for name, grad in grads(w, build("directed", layout)).items():
            assert np.isfinite(grad).all()
            np.testing.assert_allclose(grad, expected[name], atol=1e-12, err_msg=f"{layout} {name}")


@pytest.mark.parametrize("layout", LAYOUTS)
def test_float64_states_get_float64_products(layout, x64):
    g = build("directed", layout)
    z = jax.random.normal(jax.random.key(0), (6, 2))
    assert z.dtype == jnp.float64
    np.testing.assert_allclose(g.operator("gcn") @ z, reference("gcn", *GRAPHS["directed"]) @ z, atol=1e-14)
    assert (g.operator("gcn") @ z.astype(jnp.float32)).dtype == jnp.float32


@pytest.mark.parametrize("layout", LAYOUTS)
def test_batches_of_graphs(layout):
    cases = ("directed", "signs", "absent nodes")
    graphs = [build(case, layout) for case in cases]
    batch = jax.tree.map(lambda *a: jnp.stack(a), *graphs)
    z = jax.random.normal(jax.random.key(0), (3, 6, 2))
    names = ("gcn", "reverse_random_walk")
    carried = jax.jit(jax.vmap(lambda g: g.prepare(*names)))(batch)
    out = jax.jit(jax.vmap(lambda g, z: {name: g.operator(name) @ z for name in names}))(carried, z)
    for name in names:
        for case, x, y in zip(cases, z, out[name], strict=True):
            np.testing.assert_allclose(y, reference(name, *GRAPHS[case]) @ np.asarray(x), atol=1e-6)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    ("z", "part"),
    [(jnp.ones((2, 6)), "z: expected shape (6, ...)"), (jnp.ones((6, 2), int), "z: expected floats")],
    ids=["shape", "dtype"],
)
def test_wrong_states_are_refused(layout, z, part):
    op = build("directed", layout).operator("gcn")
    with pytest.raises(InputError) as error:
        op @ z
    assert part in str(error.value)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("sizes", [(2, 5), (5, 2), (1, 5)])
@pytest.mark.parametrize("nodes", [4, 40])
def test_linear_is_the_product_with_a_weight_in_either_order(layout, sizes, nodes):
    op = Graph.from_edges([0, 1, 2], [1, 2, 0], num_nodes=nodes, layout=layout).operator("gcn")
    rng = np.random.default_rng(0)
    z, weight = rng.integers(-3, 4, (nodes, sizes[0])), rng.standard_normal(sizes)
    expected = np.asarray(op.to_dense()) @ z @ weight
    np.testing.assert_allclose(op.linear(jnp.asarray(z, float), jnp.asarray(weight, float)), expected, atol=1e-5)
