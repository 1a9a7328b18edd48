"""Hybrid models: forecasts from streams, options of GCDE-GRU, online use, heads, edges."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

import neuralgde as gde
from neuralgde import nn
from neuralgde._errors import InputError
from neuralgde.graph import Graph, GraphStream
from neuralgde.model import EdgeDecoder, EdgeRule, HybridGDE, edge_loss, gcgru, gru, likely_graph
from neuralgde.model._distributions import Gaussian, Quantiles, StudentT
from problems import small_graph
from streams import NODES, TIMES, make_stream, parts

KEY = jax.random.key(4)
HIDDEN = 5
GOOD = {"operator": ("self", "gcn", "learned"), "residual": True, "period": 3.0, "num_nodes": NODES, "embedding": 2}
# One program for all that a model starts with, in place of one for each shape.
new_gcde_gru = eqx.filter_jit(gde.gcde_gru)
MODELS = {
    "gcde_gru": new_gcde_gru(2, HIDDEN, key=KEY),
    "good": new_gcde_gru(2, HIDDEN, key=KEY, time_scale=0.5, hold_unobserved=False, **GOOD),
    "gcgru": eqx.filter_jit(gcgru)(2, HIDDEN, key=KEY, residual=True, period=3.0),
    "gru": eqx.filter_jit(gru)(NODES, 2, HIDDEN, key=KEY, period=3.0),
}
every_model = pytest.mark.parametrize("name", MODELS)
QUERIES = np.array([0.5, 0.8, 2.0, 2.9, 3.5])


@eqx.filter_jit
def predict(model, stream, queries):
    return model(stream, queries)


@every_model
def test_one_observation_at_a_time(name):
    model, stream = MODELS[name], make_stream()
    whole = model.solve(stream, QUERIES)
    forecasts = predict(model, stream, QUERIES)
    state = model.start(stream.graph_at(0), TIMES[0])
    for k, t in enumerate(TIMES):
        # To look ahead must not change what comes.
        state = model.advance(state, t)
        np.testing.assert_allclose(state.z, whole.before[k], atol=1e-5)
        x = jnp.where(stream.mask[k], stream.values[k], jnp.nan)
        state = model.observe(state, t, x, graph=stream.graph_at(k))
        np.testing.assert_allclose(state.z, whole.after[k], atol=1e-5)
        due = np.flatnonzero(whole.seen == k)
        if due.size:
            np.testing.assert_allclose(model.forecast(state, QUERIES[due]), forecasts[due], atol=1e-5)


def observations(stream):
    return [(t, np.asarray(stream.values[k]), np.asarray(stream.mask[k])) for k, t in enumerate(TIMES)]


def test_a_late_observation_is_refused_or_replayed():
    model, stream = MODELS["gcde_gru"], make_stream(changing=False)
    seen = observations(stream)

    def feed(order, keep, late):
        state = model.start(stream.graphs, 0.0, keep=keep)
        for k in order:
            t, x, mask = seen[k]
            state = model.observe(state, t, x, mask, late=late)
        return model.advance(state, 3.0)

    in_order = feed(range(4), 0, "refuse")
    for order in ([0, 1, 3, 2], [0, 3, 2, 1], [1, 2, 3, 0]):
        np.testing.assert_allclose(feed(order, 4, "replay").z, in_order.z, atol=1e-5)
        with pytest.raises(InputError, match="no older than the state"):
            feed(order, 4, "refuse")
    with pytest.raises(InputError, match="the oldest state that was kept"):
        feed([0, 2, 3, 1], 1, "replay")

    # Advanced past it, nothing seen since: it is put in its place all the same.
    state = model.advance(model.observe(model.start(stream.graphs, 0.0), *seen[0]), 3.0)
    with pytest.raises(InputError, match="at 3.0, got 0.9"):
        model.observe(state, *seen[1])
    late = model.observe(state, *seen[1], late="replay")
    on_time = model.observe(model.observe(model.start(stream.graphs, 0.0), *seen[0]), *seen[1])
    assert late.time == 3.0
    np.testing.assert_allclose(late.z, model.advance(on_time, 3.0).z, atol=1e-6)


@pytest.mark.parametrize("name", ["gcde_gru", "gcgru"])
def test_permutation_and_absent_nodes_change_no_forecast(name):
    model, stream = MODELS[name], make_stream()
    forecasts = predict(model, stream, QUERIES)
    order = np.random.default_rng(2).permutation(NODES)
    shuffled = GraphStream(
        TIMES, stream.values[:, order], [stream.graph_at(k).permute(order) for k in range(4)], stream.mask[:, order]
    )
    np.testing.assert_allclose(predict(model, shuffled, QUERIES), forecasts[:, order], atol=1e-5)
    wider = predict(model, stream.pad(6, num_nodes=NODES + 2), QUERIES)
    np.testing.assert_allclose(wider[:, :NODES], forecasts, atol=1e-5)


@every_model
def test_a_batch_is_its_streams(name):
    model = MODELS[name]
    streams = [make_stream(b, TIMES * (1 + 0.2 * b), changing=name == "good") for b in range(2)]
    queries = np.stack([QUERIES, QUERIES * 1.2])
    together = predict(model, GraphStream.stack(streams), queries)
    for b, stream in enumerate(streams):
        np.testing.assert_allclose(together[b], predict(model, stream, queries[b]), atol=1e-5)


def test_next_observations_are_forecast_for_nothing():
    model, stream = MODELS["good"], make_stream()
    np.testing.assert_allclose(model.forecast_next(stream), predict(model, stream, TIMES), atol=1e-5)


def test_the_memory_holds_the_last_value_and_its_age():
    x = np.full((4, NODES, 1), np.nan)
    x[0], x[2, 1] = 1.0, 5.0
    model = new_gcde_gru(1, HIDDEN, key=KEY, residual=True)
    silent = jax.tree.map(lambda a: jnp.zeros_like(a) if eqx.is_array(a) else a, model.readout.layer)
    still = eqx.tree_at(lambda m: m.readout.layer, model, silent)
    stream = GraphStream(TIMES, x, small_graph())
    sol = still.solve(stream, [3.0])
    np.testing.assert_allclose(sol.states[0, :, -2], [1, 5, 1, 1, 1, 1])
    np.testing.assert_allclose(sol.states[0, :, -1], np.where(np.arange(NODES) == 1, 1.0, 2.5), rtol=1e-6)
    # With a head that says nothing, the change from the last value is none.
    np.testing.assert_allclose(still(stream, [3.0])[0, :, 0], [1, 5, 1, 1, 1, 1])
    # Nodes of which nothing was seen did not jump.
    np.testing.assert_array_equal(sol.after[2, [0, 2, 3, 4, 5]], sol.before[2, [0, 2, 3, 4, 5]])
    assert not np.allclose(sol.after[2, 1, :HIDDEN], sol.before[2, 1, :HIDDEN])


def test_unobserved_nodes_hear_their_neighbours_by_option():
    model = new_gcde_gru(1, HIDDEN, key=KEY, hold_unobserved=False)
    values = np.full((1, 3, 1), np.nan)
    values[0, 0] = 1.0
    graph = Graph.from_edges([0, 1], [1, 0], num_nodes=3)
    a, b = (model.solve(GraphStream([0.0], v, graph)).after[0] for v in (values, 2 * values))
    assert not np.allclose(a[1], b[1]) and np.allclose(a[2], b[2])


def test_options_change_the_shapes_they_should():
    plain, good = MODELS["gcde_gru"], MODELS["good"]
    assert plain.jump.cell.w_xz.shape == (2 * 2 + 1, HIDDEN) and plain.flow.field.layers[0].weight.shape == (5, 5)
    assert good.jump.cell.w_xz.shape == (3 * (2 * 2 + 1 + 2 + 2), HIDDEN)
    assert good.flow.field.layers[0].weight.shape == (3 * 5, 5)
    assert [layer.weight.shape for layer in plain.readout.layer.mlp.layers] == [(5, 6), (2, 5)]
    assert MODELS["gru"].jump.cell.cell.weight_ih.shape[1] == NODES * 2 + 2 + 1 + 2
    assert gde.gcde_gru(1, key=KEY).flow.field.layers[0].weight.shape == (46, 46)


@every_model
def test_every_parameter_learns(name, x64):
    model = jax.tree.map(lambda a: np.asarray(a, float) if eqx.is_inexact_array(a) else a, MODELS[name])
    grads = eqx.filter_jit(eqx.filter_grad(lambda m, stream: jnp.mean(m(stream, QUERIES) ** 2)))(model, make_stream())
    leaves = jax.tree_util.tree_leaves_with_path(grads)
    for path, leaf in leaves:
        assert leaf.dtype == jnp.float64 and np.any(leaf), jax.tree_util.keystr(path)


def test_parts_of_your_own():
    flow, jump = parts()
    first = lambda graph: jnp.ones((graph.num_nodes, 3))  # noqa: E731
    model = HybridGDE(flow, jump, lambda z, graph: graph.operator("gcn") @ z[:, :1], initial=first)
    stream = make_stream()
    sol = gde.solve_hybrid(flow, jump, jnp.ones((NODES, 3)), stream, [2.1, 3.0])
    expected = [stream.graph_at(k).operator("gcn") @ z[:, :1] for k, z in zip((2, 3), sol.states, strict=True)]
    np.testing.assert_allclose(model(stream, [2.1, 3.0]), np.stack(expected), atol=1e-5)
    with pytest.raises(InputError, match="initial: the jump does not say"):
        HybridGDE(flow, jump, None)(stream, [3.0])


# Heads


@pytest.mark.parametrize("head", ["gaussian", "student_t", "quantiles"])
def test_distributions_come_from_any_head(head):
    model = new_gcde_gru(2, HIDDEN, key=KEY, head=head, residual=True)
    forecast = predict(model, make_stream(), QUERIES)
    assert forecast.mean.shape == (5, NODES, 2)
    low, middle, high = jax.jit(lambda forecast: [forecast.quantile(p) for p in (0.1, 0.5, 0.9)])(forecast)
    assert np.all(low < middle) and np.all(middle < high)
    assert eqx.filter_eval_shape(forecast.loss, np.zeros((5, NODES, 2), np.float32)).shape == (5, NODES, 2)


def test_distributions_are_scipys(x64):
    rng = np.random.default_rng(0)
    loc, scale, df, y = rng.standard_normal(7), rng.uniform(0.5, 2, 7), rng.uniform(2.1, 30, 7), rng.standard_normal(7)
    levels = (0.02, 0.5, 0.9)

    @jax.jit
    def ours(loc, scale, df, y):
        both = Gaussian(loc, scale), StudentT(df, loc, scale)
        return [(d.loss(y), d.mean, d.std, [d.quantile(p) for p in levels]) for d in both]

    theirs = scipy.stats.norm(loc, scale), scipy.stats.t(df, loc, scale)
    for (loss, mean, std, quantiles), expected in zip(ours(loc, scale, df, y), theirs, strict=True):
        np.testing.assert_allclose(loss, -expected.logpdf(y), rtol=1e-9)
        np.testing.assert_allclose(mean, expected.mean(), atol=1e-12)
        np.testing.assert_allclose(std, expected.std(), rtol=1e-9)
        np.testing.assert_allclose(quantiles, [expected.ppf(p) for p in levels], atol=1e-7)


def test_quantiles():
    q = Quantiles(jnp.asarray([[0.0, 1.0, 3.0]]), (0.1, 0.5, 0.9))
    quantile, mean, loss = jax.jit(lambda q, y: (q.quantile(0.3), q.mean, q.loss(y)))(q, jnp.asarray([2.0]))
    np.testing.assert_allclose(quantile, [0.5], rtol=1e-6)
    np.testing.assert_allclose(mean, [0.3 * 0 + 0.4 * 1 + 0.3 * 3], rtol=1e-6)
    np.testing.assert_allclose(loss, [np.mean([0.1 * 2, 0.5 * 1, 0.1 * 1])], rtol=1e-6)
    with pytest.raises(InputError, match="level: expected one from 0.1 to 0.9"):
        q.quantile(0.95)


# Edges


def test_edges_by_a_rule():
    rule = EdgeRule(lambda y: Graph.from_positions(y, radius=2.0))
    model = eqx.tree_at(lambda m: m.edges, MODELS["gcde_gru"], rule, is_leaf=lambda x: x is None)
    stream = make_stream()
    found, y = model.predict_edges(stream, [3.0, 3.5]), model(stream, [3.0, 3.5])
    for k in range(2):
        expected = Graph.from_positions(y[k], radius=2.0).to_dense()
        np.testing.assert_array_equal(jax.tree.map(lambda a, k=k: a[k], found).to_dense(), expected)
    with pytest.raises(InputError, match="edges: this model has none"):
        MODELS["gcde_gru"].predict_edges(stream, [3.0])


def test_edges_by_a_decoder_learn():
    decoder = EdgeDecoder(MODELS["gcde_gru"].jump.state_size, key=KEY)
    model = eqx.tree_at(lambda m: m.edges, MODELS["gcde_gru"], decoder, is_leaf=lambda x: x is None)
    stream, target = make_stream(), small_graph(seed=9)
    # Before it has learned anything, edges stay as they are.
    p, last = model.predict_edges(stream, [3.0])[0], stream.graph_at(3).to_dense() != 0
    others = ~np.eye(NODES, dtype=bool)
    np.testing.assert_array_equal((p > 0.5)[others], last[others])

    @eqx.filter_jit
    def step(model):
        def loss(model):
            return edge_loss(model.predict_edges(stream, [3.0])[0], target)

        value, grads = eqx.filter_value_and_grad(loss)(model)
        return value, eqx.apply_updates(model, jax.tree.map(lambda g: -0.3 * g, grads))

    losses = []
    for _ in range(300):
        value, model = step(model)
        losses.append(float(value))
    assert losses[-1] < 0.7 * losses[0]
    p = model.predict_edges(stream, [3.0])[0]
    assert p.shape == (NODES, NODES) and jnp.all(jnp.diag(p) == 0)
    truth = np.asarray(target.to_dense() != 0) & others
    assert np.mean((np.asarray(likely_graph(p).to_dense()) > 0) == truth) > 0.8


# Layers behind the options


def test_paths_stand_side_by_side():
    @eqx.filter_jit
    def ours_and_expected(graph):
        z, x = jax.random.normal(KEY, (NODES, 3)), jax.random.normal(KEY, (NODES, 2))
        both = lambda a: jnp.concatenate([a, graph.operator("gcn") @ a], axis=1)  # noqa: E731
        layer = nn.GCN(3, 4, operator=("self", "gcn"), key=KEY)
        cell = nn.GCGRU(2, 3, operator=("self", "gcn"), key=KEY)
        h = jax.nn.sigmoid(both(x) @ cell.w_xz + both(z) @ cell.w_hz)
        r = jax.nn.sigmoid(both(x) @ cell.w_xr + both(z) @ cell.w_hr)
        new = jnp.tanh(both(x) @ cell.w_xh + both(r * z) @ cell.w_hh)
        self_and_graph = z @ layer.weight[:3] + graph.operator("gcn") @ z @ layer.weight[3:]
        return (layer(z, graph), self_and_graph), (cell(x, z, graph), h * z + (1 - h) * new)

    for found, expected in ours_and_expected(small_graph()):
        np.testing.assert_allclose(found, expected, atol=1e-5)


def test_the_learned_adjacency_is_a_mean_over_present_nodes():
    adjacency = nn.LearnedAdjacency(NODES, 4, key=KEY)
    graph = adjacency(small_graph().with_node_mask(np.arange(NODES) != 2))
    a = np.asarray(graph.operator("learned").to_dense())
    others = np.arange(NODES) != 2
    np.testing.assert_allclose(a.sum(1), others, atol=1e-6)
    assert np.all(a[:, 2] == 0) and np.all(a[others][:, others] > 0)
    scores = np.maximum(np.asarray(adjacency.receivers @ adjacency.senders.T), 0)
    weights = np.where(others, np.exp(scores), 0)
    np.testing.assert_allclose(a[others], (weights / weights.sum(1, keepdims=True))[others], rtol=1e-5)
    with pytest.raises(InputError, match="built for 6 nodes"):
        adjacency(small_graph(num_nodes=5))


@pytest.mark.parametrize(
    ("message", "call"),
    [
        ("unknown head 'gauss'. Did you mean 'gaussian'", lambda: gde.gcde_gru(1, key=KEY, head="gauss")),
        ("levels: expected two or more", lambda: gde.gcde_gru(1, key=KEY, head="quantiles", levels=(0.5, 0.2))),
        ("num_nodes: a learned adjacency", lambda: gde.gcde_gru(1, key=KEY, operator=("gcn", "learned"))),
        ("num_nodes: vectors", lambda: gcgru(1, key=KEY, embedding=3)),
        ("operator: expected a name", lambda: gde.gcde_gru(1, key=KEY, operator=("gcn", "gcn"))),
        ("keep: expected", lambda: MODELS["gru"].start(small_graph(), 0.0, keep=-1)),
        ("t0: expected a finite", lambda: MODELS["gru"].start(small_graph(), np.nan)),
        (
            "unknown way with late observations 'drop'",
            lambda: MODELS["gru"].observe(
                MODELS["gru"].start(small_graph(), 0.0), 1.0, np.ones((NODES, 2)), late="drop"
            ),
        ),
        (
            "graph: expected the 6 nodes of the state",
            lambda: MODELS["gru"].observe(
                MODELS["gru"].start(small_graph(), 0.0), 1.0, np.ones((5, 2)), graph=small_graph(num_nodes=5)
            ),
        ),
    ],
)
def test_refuses(message, call):
    with pytest.raises(InputError, match=message):
        call()
