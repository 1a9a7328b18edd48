"""What every field keeps to: order of nodes, layouts, padding, masks, gradients. One program evaluates them all."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from neuralgde import field as fields
from neuralgde.graph import Graph

T, NODES, SIZE = 0.3, 6, 4
TIMES = np.array([0.0, 0.25, 0.5, 1.0])
CHANNELS = np.array([[0.1, 2.0], [0.4, -1.0], [-0.3, 0.5], [0.2, 0.1]])


class _OnState(eqx.Module):
    """A map of states, called as a field."""

    layer: eqx.Module

    def prepare(self, graph):
        return self.layer.prepare(graph)

    def __call__(self, t, z, graph):
        return self.layer(z, graph)


def varying(basis, degree):
    def make(key):
        inner = fields.GCDE((SIZE, 5, SIZE), key=key)
        return fields.DepthVarying(inner, basis, degree, (0.0, 1.0), scale=0.5, key=key)

    return make


FIELDS = {
    "gcde": lambda key: fields.GCDE((SIZE, 5, 5, SIZE), key=key),
    "gcde_laplacian": lambda key: fields.GCDE((SIZE, SIZE), operator="laplacian", key=key),
    "gade": lambda key: fields.GADE((SIZE, 3, SIZE), heads=2, key=key),
    "gade_final": lambda key: fields.GADE((SIZE, 3), key=key, final_activation=jnp.tanh),
    "gmde": lambda key: fields.GMDE((SIZE, 5, SIZE), key=key),
    "gmde_sum_only": lambda key: fields.GMDE((SIZE, 5, SIZE), self_term=False, key=key),
    "second_order": lambda key: fields.SecondOrder(fields.GMDE((SIZE, 5, SIZE // 2), key=key)),
    "fourier": varying("fourier", 4),
    "chebyshev": varying("chebyshev", 3),
    "piecewise": varying("piecewise", 4),
    "piecewise_linear": varying("piecewise_linear", 4),
    "with_time": lambda key: fields.WithTime(fields.GCDE((SIZE + 1, SIZE), key=key)),
    "with_inputs": lambda key: fields.WithInputs(fields.GCDE((SIZE + 2, SIZE), key=key), (TIMES, CHANNELS)),
    "continuous_gnn": lambda key: fields.ContinuousGNN(),
    "continuous_gnn_mixing": lambda key: fields.ContinuousGNN(SIZE // 2, key=key),
    "hamiltonian": lambda key: fields.HamiltonianField(fields.GMDE((SIZE, 5, 1), key=key)),
    "hamiltonian_gcn": lambda key: fields.HamiltonianField(fields.GCDE((SIZE, 5, 1), key=key)),
    "residual": lambda key: _OnState(
        fields.ResidualGNN(tuple(fields.GCDE((SIZE, 3, SIZE), key=k) for k in jax.random.split(key)))
    ),
    "zero_augment": lambda key: _OnState(fields.ZeroAugment(2)),
    "learned_augment": lambda key: _OnState(fields.LearnedAugment(SIZE, 2, key=key)),
    "learned_augment_graph": lambda key: _OnState(fields.LearnedAugment(SIZE, 2, operator="gcn", key=key)),
}
every_field = pytest.mark.parametrize("name", FIELDS)


@eqx.filter_jit
def make_fields():
    # They know nothing of each other, so one key serves them all, and what they draw alike is compiled once.
    return {name: make(jax.random.key(0)) for name, make in FIELDS.items()}


def make_graph(layout="dense"):
    # Directed and weighted, with a self loop (2), opposite edges (0, 3), a source (4), a sink (1), a lone node (5).
    return Graph.from_edges(
        np.array([0, 3, 2, 2, 0, 4, 4]),
        np.array([3, 0, 2, 1, 1, 2, 0]),
        np.array([0.5, 2.0, 1.5, 0.7, 1.0, 3.0, 0.2]),
        NODES,
        layout=layout,
    )


def make_state():
    return jax.random.normal(jax.random.key(1), (NODES, SIZE))


@eqx.filter_jit
def evaluate(fields_, z, graph):
    return {name: field(T, z, graph) for name, field in fields_.items()}


@pytest.fixture(scope="module")
def dense():
    return evaluate(make_fields(), make_state(), make_graph())


@every_field
def test_no_field_is_constant(dense, name):
    assert np.all(np.isfinite(dense[name]))
    assert np.ptp(dense[name], axis=0).max() > 1e-3


@pytest.fixture(scope="module")
def permuted():
    order = np.array([3, 0, 5, 1, 4, 2])
    return order, evaluate(make_fields(), make_state()[order], make_graph().permute(order))


@every_field
def test_permuting_nodes_permutes_the_field(dense, permuted, name):
    order, out = permuted
    np.testing.assert_allclose(out[name], dense[name][order], atol=1e-5)
    assert np.abs(out[name] - dense[name]).max() > 1e-3


@pytest.fixture(scope="module", params=["csr", "pairs"])
def in_layout(request):
    return evaluate(make_fields(), make_state(), make_graph(request.param))


@every_field
def test_layouts_agree(dense, in_layout, name):
    np.testing.assert_allclose(in_layout[name], dense[name], atol=1e-6)


@pytest.fixture(scope="module", params=["csr", "pairs"])
def padded(request):
    graph = make_graph(request.param)
    graph = graph.pad(NODES + 2, None if request.param == "pairs" else graph.num_edges + 3)
    # What absent nodes hold must not matter.
    z = jnp.concatenate([make_state(), jnp.full((2, SIZE), 7.0)])
    return evaluate(make_fields(), z, graph)


@every_field
def test_padding_changes_nothing(dense, padded, name):
    np.testing.assert_allclose(padded[name][:NODES], dense[name], atol=1e-6)


@pytest.fixture(scope="module")
def prepared():
    every, graph = make_fields(), make_graph()
    graphs = {name: fields.prepare_graph(field, graph) for name, field in every.items()}
    shared = graph
    for field in every.values():
        shared = fields.prepare_graph(field, shared)
    return graphs, evaluate(every, make_state(), shared)


@every_field
def test_a_prepared_graph_changes_nothing(dense, prepared, name):
    np.testing.assert_allclose(prepared[1][name], dense[name], atol=1e-6)


@pytest.mark.parametrize(
    ("name", "carried"),
    [
        ("gcde", ["gcn"]),
        ("gcde_laplacian", ["laplacian"]),
        ("gade", []),
        ("gmde", []),
        ("second_order", []),
        ("fourier", ["gcn"]),
        ("with_time", ["gcn"]),
        ("with_inputs", ["gcn"]),
        ("continuous_gnn", ["scaled_laplacian"]),
        ("hamiltonian_gcn", ["gcn"]),
        ("residual", ["gcn"]),
        ("zero_augment", []),
        ("learned_augment", []),
        ("learned_augment_graph", ["gcn"]),
    ],
)
def test_prepare_reaches_what_is_inside(prepared, name, carried):
    assert list(prepared[0][name].prepared) == carried


@eqx.filter_jit
@eqx.filter_value_and_grad(has_aux=True)
def losses(moving, still, graph):
    """The sum of one loss per field, so that one backward pass serves them all; and the losses themselves."""
    at = eqx.combine(moving, still)
    each = {name: jnp.mean(jnp.sin(field(T, z, graph))) for name, (field, z) in at.items()}
    return sum(each.values()), each


@pytest.fixture(scope="module")
def slopes():
    """Along one random direction in parameters and state: by gradient, and by central differences."""
    each = {name: (field, make_state()) for name, field in make_fields().items()}
    moving, still = eqx.partition(each, eqx.is_inexact_array)
    # By NumPy: JAX would compile every sum below for every shape.
    moving = jax.tree.map(lambda leaf: np.asarray(leaf, float), moving)
    rng = np.random.default_rng(0)
    towards = jax.tree.map(lambda leaf: rng.normal(size=leaf.shape), moving)
    h = 1e-5
    with jax.enable_x64(True):
        graph = make_graph("csr")
        _, gradient = losses(moving, still, graph)
        (_, ahead), _ = losses(jax.tree.map(lambda a, b: a + h * b, moving, towards), still, graph)
        (_, behind), _ = losses(jax.tree.map(lambda a, b: a - h * b, moving, towards), still, graph)
    products = jax.tree.map(lambda a, b: np.sum(np.asarray(a) * b), gradient, towards)
    by_gradient = {name: sum(jax.tree.leaves(products[name])) for name in FIELDS}
    return by_gradient, {name: (float(ahead[name]) - float(behind[name])) / (2 * h) for name in FIELDS}


@every_field
def test_gradients_agree_with_finite_differences(slopes, name):
    by_gradient, by_differences = slopes
    assert abs(by_differences[name]) > 1e-6
    np.testing.assert_allclose(by_gradient[name], by_differences[name], rtol=1e-5, atol=1e-9)


def test_seeds_are_an_axis(getkey):
    """Fields made under `vmap` give what fields made one by one do."""
    keys = jax.random.split(getkey(), 2)

    def make(key):
        return fields.DepthVarying(fields.SecondOrder(fields.GMDE((4, 5, 2), key=key)), degree=3, scale=0.1, key=key)

    @eqx.filter_jit
    def both(keys, z, graph):
        together = eqx.filter_vmap(lambda field: field(T, z, graph))(eqx.filter_vmap(make)(keys))
        return together, jnp.stack([make(keys[i])(T, z, graph) for i in range(2)])

    np.testing.assert_allclose(*both(keys, make_state(), make_graph()), atol=1e-6)
