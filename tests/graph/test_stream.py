"""GraphStream: irregular times, missing values, graphs that change, padding, batches."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from memory import aligned
from neuralgde import Graph, GraphStream, InputError

T, N, F = 4, 3, 2
TIMES = np.array([0.0, 0.5, 0.7, 2.0])
VALUES = np.arange(1.0, T * N * F + 1).reshape(T, N, F)
RING = Graph.from_edges([0, 1, 2], [1, 2, 0])
# One graph per time, with other edges, weights and numbers of edges each time; node 2 is absent at time 1.
CHANGING = [
    RING,
    Graph.from_edges([0, 1], [1, 0], [2.0, 3.0], num_nodes=N).with_node_mask(np.array([True, True, False])),
    Graph.from_edges([], [], num_nodes=N),
    Graph.from_edges([0, 0, 1, 2], [1, 2, 2, 2], [1.0, 2.0, 3.0, 4.0]),
]


def adjacencies(stream):
    return np.stack([stream.graph_at(k).to_dense() for k in range(len(stream))])


DENSE = np.stack([g.to_dense() for g in CHANGING])


# Built


def test_one_graph_is_stored_once_and_served_at_all_times():
    stream = GraphStream(TIMES, VALUES, RING)
    assert len(stream) == T
    assert not stream.changing
    assert stream.graph_at(0) is RING and stream.graph_at(3) is RING
    np.testing.assert_allclose(stream.times, TIMES)
    np.testing.assert_array_equal(stream.values, VALUES)
    assert stream.mask.shape == (T, N, F) and stream.mask.all()
    assert stream.step_mask.shape == (T,) and stream.step_mask.all()
    assert stream.inputs is None


def test_graphs_of_each_time_are_padded_and_stacked():
    stream = GraphStream(TIMES, VALUES, CHANGING)
    assert stream.changing
    assert stream.graphs.senders.shape == (T, 4)
    np.testing.assert_allclose(adjacencies(stream), DENSE)
    np.testing.assert_array_equal(stream.graphs.edge_mask.sum(1), [3, 2, 0, 4])
    np.testing.assert_array_equal(stream.graphs.node_mask[1], [True, True, False])


def test_graphs_with_fewer_nodes_get_absent_ones():
    small = Graph.from_edges([0], [1])
    stream = GraphStream(TIMES, VALUES, [RING, small, RING, small])
    np.testing.assert_array_equal(stream.graph_at(1).node_mask, [True, True, False])
    np.testing.assert_array_equal(stream.mask[:, 2, 0], [True, False, True, False])


def test_already_stacked_graphs():
    x = jax.random.normal(jax.random.key(0), (T, N, F))
    graphs = jax.vmap(Graph.from_positions, (0, None))(x, 2.0)
    stream = GraphStream(TIMES, x, graphs)
    assert stream.changing
    for k in range(T):
        np.testing.assert_array_equal(stream.graph_at(k).to_dense(), Graph.from_positions(x[k], 2.0).to_dense())


LAYOUTS = {
    "csr stays": (("csr", "csr", "csr", "csr"), "csr"),
    "pairs stay": (("pairs", "pairs", "pairs", "pairs"), "pairs"),
    "mixed are chosen by size": (("csr", "dense", "pairs", "csr"), "dense"),
}


@pytest.mark.parametrize("case", LAYOUTS)
def test_one_layout_for_all(case):
    layouts, expected = LAYOUTS[case]
    graphs = [g.with_layout(layout) for g, layout in zip(CHANGING, layouts, strict=True)]
    stream = GraphStream(TIMES, VALUES, graphs)
    assert stream.graphs.layout == expected
    assert stream.graphs.num_edges == (9 if expected == "pairs" else 4)
    np.testing.assert_allclose(adjacencies(stream), DENSE)


def test_edge_features_and_carried_operators_are_stacked():
    graphs = [Graph.from_edges([0], [1], edge_features=[[k]], num_nodes=N).prepare("gcn") for k in range(T)]
    stream = GraphStream(TIMES, VALUES, graphs)
    assert stream.graph_at(2).edge_features == 2
    np.testing.assert_allclose(stream.graph_at(2).prepared["gcn"].to_dense(), graphs[2].operator("gcn").to_dense())


def test_lists_and_whole_numbers_are_taken():
    stream = GraphStream([0, 1], [[[1]], [[2]]], Graph.from_edges([], [], num_nodes=1), inputs=[[3], [4]])
    assert stream.times.dtype == stream.values.dtype == stream.inputs.dtype == jnp.float32


def test_dtypes(x64):
    stream = GraphStream(TIMES, VALUES.astype(np.float32), RING)
    assert stream.times.dtype == jnp.float64
    assert stream.values.dtype == jnp.float32


def test_repr_is_short():
    stream = GraphStream(TIMES, VALUES, RING)
    assert repr(stream) == "GraphStream(steps=4, nodes=3, features=2, changing=False)"
    assert "batch=(2,)" in repr(GraphStream.stack([stream, stream]))


# What was observed


def test_missing_values_are_masked_and_zero():
    x = VALUES.copy()
    x[1, 2, 0] = x[3, 0] = np.nan
    stream = GraphStream(TIMES, x, RING)
    np.testing.assert_array_equal(stream.mask, ~np.isnan(x))
    np.testing.assert_array_equal(stream.values, np.nan_to_num(x))


@pytest.mark.parametrize("shape", [(T, N), (T, N, F)])
def test_given_masks(shape):
    mask = np.ones(shape, bool)
    mask[1, 2] = False
    x = VALUES.copy()
    x[1, 2, 1] = np.inf  # what is masked may be anything
    stream = GraphStream(TIMES, x, RING, mask=mask)
    expected = np.ones((T, N, F), bool)
    expected[1, 2] = False
    np.testing.assert_array_equal(stream.mask, expected)
    np.testing.assert_array_equal(stream.values, np.where(expected, VALUES, 0))


@pytest.mark.parametrize("mask", [None, np.ones((T, N), bool)], ids=["no mask", "mask"])
def test_absent_nodes_are_not_observed(mask):
    x = VALUES.copy()
    x[1, 2] = np.nan
    for values in (x, VALUES):
        stream = GraphStream(TIMES, values, CHANGING, mask=mask)
        np.testing.assert_array_equal(stream.mask[1, :, 0], [True, True, False])
        assert stream.mask.sum() == (T * N - 1) * F
        assert not stream.values[1, 2].any()


@pytest.mark.parametrize("shape", [(T, 2), (T, N, 2)])
def test_known_inputs(shape):
    inputs = np.random.default_rng(0).normal(size=shape)
    np.testing.assert_allclose(GraphStream(TIMES, VALUES, RING, inputs=inputs).inputs, inputs, rtol=1e-6)


# Steps


@pytest.mark.parametrize("k", [0, 3, -1, np.int64(2)])
def test_graph_at_a_step(k):
    np.testing.assert_allclose(GraphStream(TIMES, VALUES, CHANGING).graph_at(k).to_dense(), DENSE[k])


@pytest.mark.parametrize("layout", ["dense", "csr", "pairs"])
def test_graph_at_a_traced_step(layout):
    stream = GraphStream(TIMES, VALUES, [g.with_layout(layout) for g in CHANGING])
    z = jnp.arange(6.0).reshape(3, 2)

    @jax.jit
    def messages(stream, z):
        return jax.lax.map(lambda k: stream.graph_at(k).operator("adjacency") @ z, jnp.arange(len(stream)))

    expected = np.einsum("ksr,sf->krf", DENSE, z)
    np.testing.assert_allclose(messages(stream, z), expected, rtol=1e-6)
    one = GraphStream(TIMES, VALUES, RING.with_layout(layout))
    np.testing.assert_allclose(messages(one, z), np.einsum("sr,sf->rf", RING.to_dense(), z)[None].repeat(T, 0))


@pytest.mark.parametrize("steps", [slice(1, 3), slice(None, None, 2), slice(-2, None), slice(0, 100)], ids=str)
@pytest.mark.parametrize("graphs", [RING, CHANGING], ids=["one", "changing"])
def test_slices(steps, graphs):
    stream = GraphStream(TIMES, VALUES, graphs, inputs=TIMES[:, None])
    part = stream[steps]
    assert len(part) == len(TIMES[steps])
    np.testing.assert_allclose(part.times, TIMES[steps])
    np.testing.assert_array_equal(part.values, stream.values[steps])
    np.testing.assert_array_equal(part.mask, stream.mask[steps])
    np.testing.assert_allclose(part.inputs[:, 0], TIMES[steps])
    np.testing.assert_allclose(adjacencies(part), adjacencies(stream)[steps])


# Padding


@pytest.mark.parametrize("graphs", [RING, CHANGING], ids=["one", "changing"])
def test_padding_steps(graphs):
    x = VALUES.copy()
    x[0, 0] = np.nan
    stream = GraphStream(TIMES, x, graphs, inputs=TIMES[:, None])
    padded = stream.pad(6)
    assert len(padded) == 6
    np.testing.assert_allclose(padded.times, [*TIMES, 2.0, 2.0])
    np.testing.assert_array_equal(padded.step_mask, np.arange(6) < T)
    np.testing.assert_array_equal(padded.mask[:T], stream.mask)
    np.testing.assert_array_equal(padded.values[:T], stream.values)
    assert not padded.mask[T:].any() and not padded.values[T:].any()
    np.testing.assert_allclose(padded.inputs[:, 0], [*TIMES, 2.0, 2.0])
    np.testing.assert_allclose(adjacencies(padded), adjacencies(stream)[[0, 1, 2, 3, 3, 3]])
    again = padded.pad(7)
    np.testing.assert_array_equal(again.step_mask, np.arange(7) < T)
    assert eqx.tree_equal(padded[:T], stream)


@pytest.mark.parametrize("graphs", [RING, CHANGING], ids=["one", "changing"])
def test_padding_nodes_and_edges(graphs):
    stream = GraphStream(TIMES, VALUES, graphs, inputs=VALUES)
    padded = stream.pad(T, num_edges=6, num_nodes=5)
    assert padded.graphs.num_edges == 6 and padded.graphs.num_nodes == 5
    assert padded.values.shape == padded.mask.shape == padded.inputs.shape == (T, 5, F)
    assert not padded.mask[:, N:].any() and padded.step_mask.all()
    assert not padded.graphs.node_mask[..., N:].any()
    np.testing.assert_array_equal(padded.values[:, :N], stream.values)
    np.testing.assert_allclose(adjacencies(padded)[:, :N, :N], adjacencies(stream))


def test_padding_keeps_inputs_of_the_graph():
    stream = GraphStream(TIMES, VALUES, RING, inputs=TIMES[:, None])
    np.testing.assert_array_equal(stream.pad(T, num_nodes=5).inputs, stream.inputs)


def test_padding_pairs():
    stream = GraphStream(TIMES, VALUES, [g.with_layout("pairs") for g in CHANGING]).pad(5, num_nodes=4)
    assert stream.graphs.senders.shape == (5, 16)
    np.testing.assert_allclose(adjacencies(stream)[:T, :N, :N], DENSE)


# Batches


def short():
    """Two steps, two nodes, one graph."""
    return GraphStream([1.0, 1.5], VALUES[:2, :2], Graph.from_edges([0], [1], [7.0]), inputs=np.ones((2, 1)))


def long(layout="dense"):
    graphs = [g.with_layout(layout) for g in CHANGING]
    return GraphStream(TIMES, VALUES, graphs, inputs=TIMES[:, None])


def test_streams_that_differ_in_everything_are_stacked():
    batch = GraphStream.stack([short(), long("csr"), GraphStream(TIMES, VALUES, RING, inputs=TIMES[:, None])])
    assert {a.shape[0] for a in jax.tree.leaves(batch)} == {3}
    assert batch.changing and len(batch) == T
    assert batch.values.shape == (3, T, N, F)
    np.testing.assert_array_equal(batch.step_mask[0], [True, True, False, False])
    assert batch.mask[0].sum() == 2 * 2 * F and batch.mask[1].sum() == (T * N - 1) * F
    dense = jax.jit(jax.vmap(lambda s: jax.lax.map(lambda k: s.graph_at(k).to_dense(), jnp.arange(T))))(batch)
    np.testing.assert_allclose(dense[0, :, :2, :2], short().graph_at(0).to_dense()[None].repeat(T, 0))
    np.testing.assert_allclose(dense[1], DENSE)
    np.testing.assert_allclose(dense[2], RING.to_dense()[None].repeat(T, 0))


def test_one_graph_each_stays_one_graph_each():
    batch = GraphStream.stack([short(), GraphStream(TIMES, VALUES, RING, inputs=TIMES[:, None])])
    assert not batch.changing
    assert batch.graphs.senders.shape == (2, 3)
    dense = jax.vmap(lambda s: s.graph_at(1).to_dense())(batch)
    np.testing.assert_allclose(dense[1], RING.to_dense())


def test_a_batch_and_each_of_its_streams_share_one_program():
    streams = [short(), long()]
    batch = GraphStream.stack(streams)
    traces = []

    @jax.jit
    def total(stream):
        traces.append(1)
        moved = jax.vmap(lambda g, x: g.operator("gcn") @ x)(stream.graphs, stream.values)
        return jnp.sum(jnp.where(stream.mask, moved, 0) ** 2)

    singles = [total(jax.tree.map(lambda a, b=b: a[b], batch)) for b in range(2)]
    assert len(traces) == 1
    np.testing.assert_allclose(jax.vmap(total)(batch), singles, rtol=1e-6)
    # Padding changed nothing.
    expected = 0.0
    for x, g in zip(long().values, CHANGING, strict=True):
        expected += np.sum(np.where(g.node_mask[:, None], g.operator("gcn") @ x, 0) ** 2)
    np.testing.assert_allclose(singles[1], expected, rtol=1e-5)


def test_streams_of_equal_shapes_keep_carried_operators():
    g = RING.prepare("gcn")
    batch = GraphStream.stack([GraphStream(TIMES, VALUES, g)] * 2)
    assert batch.graphs.prepared["gcn"].to_dense().shape == (2, N, N)


@pytest.mark.parametrize("layout", ["csr", "pairs"])
def test_new_sizes_compile_nothing(layout, caplog):
    def build(n):
        graphs = [Graph.from_edges(range(m), range(1, m + 1), num_nodes=n, layout=layout) for m in range(1, n)]
        stream = GraphStream(range(n - 1), np.ones((n - 1, n, 1)), graphs, inputs=np.ones((n - 1, 1)))
        return GraphStream.stack([stream, stream[1:].pad(n + 2, num_nodes=n + 3)])

    with jax.log_compiles(True):
        jax.jit(lambda x: x + 1)(jnp.ones(31))
        assert "Compiling" in caplog.text  # otherwise the next look would see nothing either
        caplog.clear()
        batch = build(17)
    assert "Compiling" not in caplog.text
    assert batch.values.shape == (2, 19, 20, 1)


def test_arrays_that_were_given_may_change_afterwards():
    given = {
        "times": aligned(TIMES, np.float32),
        "values": aligned(VALUES, np.float32),
        "mask": aligned(np.ones((T, N, F)), bool),
        "inputs": aligned(VALUES, np.float32),
    }
    stream = GraphStream(graphs=RING, **given)
    for a in given.values():
        a[:] = 0
    np.testing.assert_allclose(stream.times, TIMES.astype(np.float32))
    np.testing.assert_array_equal(stream.values, VALUES)
    np.testing.assert_array_equal(stream.inputs, VALUES)
    assert stream.mask.all()


# Through transformations


def test_built_under_jit_and_vmap_without_checks_of_values():
    xs = np.stack([VALUES, VALUES])
    xs[1, 0, 0] = np.nan
    mask = np.ones((T, N), bool)

    @jax.jit
    def build(times, xs, mask):
        return jax.vmap(lambda x: GraphStream(times, x, RING, mask=mask))(xs)

    batch = build(TIMES, xs, mask)
    np.testing.assert_array_equal(batch.mask, ~np.isnan(xs))
    assert np.isfinite(batch.values).all()
    assert len(batch) == T


def test_absent_nodes_are_not_observed_under_jit():
    stream = GraphStream(TIMES, VALUES, CHANGING)
    traced = jax.jit(GraphStream)(TIMES, VALUES, stream.graphs)
    assert eqx.tree_equal(traced, stream)


def test_values_have_gradients():
    def loss(x):
        stream = GraphStream(TIMES, x, RING).pad(6)
        return jnp.sum(stream.values**2)

    x = VALUES.astype(np.float32)
    x[0, 0, 0] = np.nan
    np.testing.assert_allclose(jax.grad(loss)(jnp.asarray(x)), 2 * np.nan_to_num(x))


def test_graphs_made_under_jit():
    @jax.jit
    def weights(x):
        graphs = [Graph.from_positions(x[k], 2.0) for k in range(T)]
        return GraphStream(TIMES, x, graphs).graph_at(1).to_dense()

    x = jax.random.normal(jax.random.key(0), (T, N, F))
    np.testing.assert_array_equal(weights(x), Graph.from_positions(x[1], 2.0).to_dense())


def test_carried_through_a_scan():
    stream = GraphStream(TIMES, VALUES, CHANGING)

    def step(z, observation):
        x, mask, graph = observation
        return graph.operator("adjacency") @ jnp.where(mask, x, z), None

    z, _ = jax.lax.scan(step, jnp.zeros((N, F)), (stream.values, stream.mask, stream.graphs))
    np.testing.assert_allclose(z, DENSE[-1].T @ VALUES[-1])


# Refused


def built(times=TIMES, values=VALUES, graphs=RING, **kwargs):
    return lambda: GraphStream(times, values, graphs, **kwargs)


def changed(a, index, value):
    a = a.copy()
    a[index] = value
    return a


STACKED = jax.tree.map(lambda a: jnp.stack([a] * 3), RING)
BATCH = GraphStream.stack([GraphStream(TIMES, VALUES, RING)])
WITH_FEATURES = Graph.from_edges([0], [1], num_nodes=N, edge_features=[[1.0]])

REFUSED = {
    "repeated time": ("times[2] = 0.5 after 0.5", built(changed(TIMES, 2, 0.5))),
    "falling time": ("times[3] = -1.0 after 0.7", built(changed(TIMES, 3, -1))),
    "nan time": ("times[1] is nan", built(changed(TIMES, 1, np.nan))),
    "infinite time": ("times[3] is inf", built(changed(TIMES, 3, np.inf))),
    "dates": ("times: expected real numbers, got dtype datetime64", built(np.arange("2020-01-01", 4, dtype="M8[D]"))),
    "no times": ("times: expected one or more", built([], VALUES[:0])),
    "2-d times": ("times: expected one or more", built(TIMES[:, None])),
    "equal in float32": ("the same in float32: subtract the first", built(1.7e9 + TIMES)),
    "values' length": ("values: expected shape (4, nodes, features)", built(values=VALUES[:3])),
    "values' rank": ("values: expected shape (4, nodes, features)", built(values=VALUES[..., 0])),
    "values' nodes": ("values: expected the graphs' 3 nodes, got 2", built(values=VALUES[:, :2])),
    "nodes of no graph": ("values: expected the graphs' 3 nodes", built(values=np.ones((T, 4, F)), graphs=CHANGING)),
    "values of text": ("values: expected real", built(values=np.full((T, N, F), "a"))),
    "infinite value": ("values[2, 1, 0] is inf", built(values=changed(VALUES, (2, 1, 0), np.inf))),
    "nan though observed": (
        "values[2, 1, 0] is nan: expected a finite number where observed. Set the mask",
        built(values=changed(VALUES, (2, 1, 0), np.nan), mask=np.ones((T, N), bool)),
    ),
    "mask's shape": ("mask: expected shape (4, 3) or (4, 3, 2), got (4,)", built(mask=np.ones(T, bool))),
    "mask of numbers": ("mask: expected booleans", built(mask=np.ones((T, N)))),
    "inputs' length": ("inputs: expected shape (4, channels) or (4, 3, channels)", built(inputs=np.ones((3, 1)))),
    "inputs' nodes": ("inputs: expected shape", built(inputs=np.ones((T, 2, 1)))),
    "inputs' rank": ("inputs: expected shape", built(inputs=TIMES)),
    "nan input": ("inputs[1, 0] is nan", built(inputs=changed(TIMES[:, None], (1, 0), np.nan))),
    "too few graphs": ("graphs: expected one Graph, or a list of 4", built(graphs=CHANGING[:3])),
    "too few stacked": ("graphs: expected one graph, or 4 stacked", built(graphs=STACKED)),
    "a batch as one graph": ("graphs[0]: expected one Graph", built(graphs=[STACKED] * T)),
    "edge features of some": ("graphs: expected the same edge features", built(graphs=[*[RING] * 3, WITH_FEATURES])),
    "step too large": ("k: expected a step of a stream of 4, got 4", lambda: built()().graph_at(4)),
    "step too small": ("k: expected a step", lambda: built()().graph_at(-5)),
    "slice of nothing": ("steps: expected a slice", lambda: built()()[4:]),
    "slice backwards": ("steps: expected a slice", lambda: built()()[::-1]),
    "shorter": ("length: expected at least the 4 steps", lambda: built()().pad(3)),
    "negative length": ("length: expected a whole number", lambda: built()().pad(-1)),
    "fewer nodes": ("num_nodes: expected at least", lambda: built()().pad(4, num_nodes=2)),
    "fewer edges": ("num_edges: expected at least", lambda: built()().pad(4, num_edges=2)),
    "nothing stacked": ("streams: expected at least one", lambda: GraphStream.stack([])),
    "stacked features": (
        "streams[1].values: expected (T, nodes, channels) with 2",
        lambda: GraphStream.stack([built()(), built(values=VALUES[..., :1])()]),
    ),
    "stacked inputs": (
        "streams[1].inputs: expected none, as in streams[0], got (T, channels) with 1",
        lambda: GraphStream.stack([built()(), built(inputs=TIMES[:, None])()]),
    ),
    "a batch stacked": ("streams[0]: expected one stream, got a batch of shape", lambda: GraphStream.stack([BATCH])),
    "a batch padded": ("pad: expected one stream", lambda: BATCH.pad(5)),
    "a batch sliced": ("a slice: expected one stream", lambda: BATCH[:2]),
    "a graph of a batch": ("graph_at: expected one stream", lambda: BATCH.graph_at(0)),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case):
    part, build = REFUSED[case]
    with pytest.raises(InputError) as error:
        build()
    assert part in str(error.value)


def test_large_times_are_fine_in_float64(x64):
    np.testing.assert_array_equal(GraphStream(1.7e9 + TIMES, VALUES, RING).times, 1.7e9 + TIMES)
