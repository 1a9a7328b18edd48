"""Models: predictions at times, batches, baselines, and failures that show."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import neuralgde as gde
from neuralgde import field as fields
from neuralgde import nn
from neuralgde._errors import InputError
from neuralgde.graph import Graph
from neuralgde.model import FlatField, NeuralGDE, Static, neural_ode, persistence
from neuralgde.train import take_seed
from problems import small_graph

KEY = jax.random.key(3)
NODES, SIZE = 6, 4
TIMES = np.array([0.0, 0.3, 1.0])
FIXED = gde.SolveConfig(solver="rk4", dt0=0.1)


def features(batch=()):
    return jax.random.normal(jax.random.key(9), (*batch, NODES, SIZE))


@eqx.filter_jit  # One program for all that they start with, in place of one for each shape.
def make_models():
    return {
        "gcde": NeuralGDE(None, fields.GCDE((SIZE, 5, SIZE), key=KEY), None, FIXED),
        "encoded": NeuralGDE(
            nn.GCN(SIZE, 3, key=KEY), fields.GCDE((3, 5, 3), key=KEY), nn.NodeMLP(3, 2, 4, 1, key=KEY), FIXED
        ),
        "function": NeuralGDE(lambda x, graph: 2 * x, lambda t, z, graph: -z, lambda z, graph: z[:, :1], FIXED),
        "second_order": NeuralGDE(
            fields.LearnedAugment(SIZE, SIZE, key=KEY),
            fields.SecondOrder(fields.GCDE((2 * SIZE, 5, SIZE), key=KEY)),
            lambda z, graph: z[:, :SIZE],
            FIXED,
        ),
        "static": Static(NODES, key=KEY),
        "static_adjacency": Static(NODES, adjacency=True, key=KEY),
        "neural_ode": neural_ode(NODES, config=FIXED, key=KEY),
        "neural_ode_adjacency": neural_ode(NODES, adjacency=True, config=FIXED, key=KEY),
        "persistence": persistence,
    }


MODELS = make_models()
every_model = pytest.mark.parametrize("name", MODELS)


@eqx.filter_jit
def predict(model, x, graph):
    return model(x, TIMES, graph)


def test_parts_are_put_together():
    model, graph, x = MODELS["encoded"], small_graph(), features()
    z0 = model.encoder(x, graph)
    states = gde.solve(model.field, z0, TIMES, graph, solver="rk4", dt0=0.1).states
    expected = jnp.stack([model.readout(z, graph) for z in states])
    np.testing.assert_allclose(model(x, TIMES, graph), expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(model.solve(x, TIMES, graph).states, states, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(
        MODELS["function"](x, TIMES, graph)[:, :, 0], 2 * np.exp(-TIMES)[:, None] * x[:, 0], rtol=1e-4, atol=1e-5
    )


@every_model
@pytest.mark.parametrize("own_graphs", [False, True])
def test_a_batch_is_its_samples(name, own_graphs):
    model, x = MODELS[name], features((2,))
    graph = small_graph()
    if own_graphs:
        graph = eqx.filter_vmap(lambda x: Graph.from_positions(x[:, :2], radius=2.0))(x)
    together = predict(model, x, graph)
    for i in range(2):
        alone = predict(model, x[i], take_seed(graph, i) if own_graphs else graph)
        assert together.shape == (2, *alone.shape) and alone.shape[:2] == (3, NODES)
        np.testing.assert_allclose(together[i], alone, rtol=1e-4, atol=1e-5)


def test_samples_have_times_of_their_own():
    model, graph, x = MODELS["encoded"], small_graph(), features((2,))
    times = np.array([[0.0, 0.3, 1.0], [0.0, 0.2, 0.5]])
    together = model(x, times, graph)
    for i in range(2):
        np.testing.assert_allclose(together[i], model(x[i], times[i], graph), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", ["encoded", "second_order", "static", "neural_ode_adjacency"])
def test_gradients_in_float64(name, x64):
    model = jax.tree.map(lambda a: np.asarray(a, float) if eqx.is_inexact_array(a) else a, MODELS[name])
    x, graph = jnp.asarray(np.asarray(features(), float)), small_graph()
    value, grads = eqx.filter_jit(eqx.filter_value_and_grad(lambda m: jnp.mean(m(x, TIMES, graph)[1:] ** 2)))(model)
    assert value.dtype == jnp.float64 and value > 0
    leaves = jax.tree.leaves(grads)
    assert leaves and all(leaf.dtype == jnp.float64 and np.any(leaf) for leaf in leaves)


def test_static_is_the_network_again_and_again():
    model, graph, x = MODELS["static"], small_graph(), features()
    widths = [layer.weight.shape for layer in model.network.mlp.layers]
    assert widths == [(8 * NODES, 4 * NODES), (8 * NODES, 8 * NODES), (4 * NODES, 8 * NODES)]
    w = [(np.asarray(layer.weight), np.asarray(layer.bias)) for layer in model.network.mlp.layers]

    def by_hand(x):
        h = np.tanh(w[0][0] @ np.ravel(x) + w[0][1])
        return (w[2][0] @ np.tanh(w[1][0] @ h + w[1][1]) + w[2][1]).reshape(NODES, SIZE)

    once = by_hand(x)
    np.testing.assert_allclose(
        model(x, [0.0, 0.1, 5.0], graph), np.stack([x, once, by_hand(once)]), rtol=1e-4, atol=1e-5
    )
    np.testing.assert_allclose(FlatField(NODES, key=KEY)(0.0, x, graph), once, rtol=1e-4, atol=1e-5)


def test_width_and_depth():
    def shapes(**options):
        model = eqx.filter_eval_shape(lambda: Static(3, 2, key=jax.random.key(0), **options))
        return [layer.weight.shape for layer in model.network.mlp.layers]

    assert shapes(width=5, layers=4) == [(15, 6), (15, 15), (15, 15), (6, 15)]
    assert shapes(adjacency=True)[0] == (24, 6 + 9)


@pytest.mark.parametrize("kind", ["static", "neural_ode"])
def test_only_with_the_adjacency_does_the_graph_count(kind):
    x, other = features(), small_graph(seed=1)
    plain, informed = MODELS[kind], MODELS[f"{kind}_adjacency"]
    np.testing.assert_array_equal(predict(plain, x, small_graph()), predict(plain, x, other))
    assert not np.allclose(predict(informed, x, small_graph())[1:], predict(informed, x, other)[1:], atol=1e-3)


def test_absent_nodes_do_not_reach_the_others():
    graph = small_graph().with_node_mask(np.arange(NODES) != 2)
    x = features()
    for name in ("static", "neural_ode", "neural_ode_adjacency"):
        a, b = (predict(MODELS[name], x.at[2].set(v), graph)[:, np.arange(NODES) != 2] for v in (0.0, 7.0))
        np.testing.assert_array_equal(a, b)


def test_persistence_stands_still():
    x = features()
    np.testing.assert_array_equal(persistence(x, TIMES, small_graph()), np.stack([x] * 3))


def test_a_failed_solve_gives_nan_and_a_status():
    model = NeuralGDE(None, lambda t, z, graph: z**2, None)
    x, graph = jnp.full((NODES, 1), 10.0), small_graph()
    predictions = model(x, TIMES, graph)
    assert jnp.all(jnp.isfinite(predictions[0])) and jnp.all(jnp.isnan(predictions[1:]))
    assert model.solve(x, TIMES, graph).status != gde.Status.SUCCESS
    assert model.solve(x / 100, TIMES, graph).status == gde.Status.SUCCESS


@pytest.mark.parametrize(
    ("message", "call"),
    [
        ("num_nodes: expected", lambda: Static(0, key=KEY)),
        ("layers: expected", lambda: neural_ode(3, layers=0, key=KEY)),
        ("z: expected shape \\(6, 4\\)", lambda: MODELS["static"](jnp.ones((5, 4)), TIMES, small_graph(num_nodes=5))),
        ("z: expected shape \\(6, 4\\)", lambda: MODELS["neural_ode"](jnp.ones((6, 3)), TIMES, small_graph())),
        ("x: expected shape", lambda: MODELS["gcde"](jnp.ones((1, 2, 6, 4)), TIMES, small_graph())),
    ],
)
def test_refuses(message, call):
    with pytest.raises(InputError, match=message):
        call()
