"""The linear continuous GNN: its field, its bounds, its closed form against SciPy."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.integrate
import scipy.linalg

from neuralgde import InputError
from neuralgde.field import ContinuousGNN
from neuralgde.graph import Graph

MODELS = {
    "plain": lambda: ContinuousGNN(alpha=0.7),
    "mixing": lambda: ContinuousGNN(2, alpha=0.7, key=jax.random.key(0)),
}
models = pytest.mark.parametrize("model", MODELS)


def make_graph(layout="dense", *, directed=False):
    return Graph.from_edges(
        np.array([0, 1, 2, 0]), np.array([1, 2, 3, 2]), np.array([1.0, 2.0, 0.5, 1.0]),
        5, undirected=not directed, layout=layout,
    )  # fmt: skip


def matrices(model, graph):
    """A - I and W - I, by the paper's formulas."""
    a = np.asarray(graph.to_dense(), np.float64).T
    degree = a.sum(1)
    scale = np.where(degree > 0, np.where(degree > 0, degree, 1) ** -0.5, 0)
    n = len(a)
    left = float(model.alpha) / 2 * (np.eye(n) + scale[:, None] * a * scale) - np.eye(n)
    right = np.zeros((2, 2)) if model.weight is None else np.asarray(model.weight) - np.eye(2)
    return left, right


@models
def test_the_field_is_the_papers(x64, model):
    model, graph = MODELS[model](), make_graph()
    h, e = np.random.default_rng(1).normal(size=(2, 5, 2))
    left, right = matrices(model, graph)
    dz = np.asarray(eqx.filter_jit(model)(0.0, jnp.asarray(np.concatenate([h, e], axis=1)), graph))
    np.testing.assert_allclose(dz[:, :2], left @ h + h @ right + e, atol=1e-12)
    np.testing.assert_array_equal(dz[:, 2:], 0)


@models
@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("layout", ["dense", "csr"])
def test_closed_form_against_scipy(x64, model, directed, layout):
    """By SciPy's integrator on the formulas, and by one matrix exponential over nodes and features together."""
    model, graph, t = MODELS[model](), make_graph(layout, directed=directed), 1.7
    h, e = np.random.default_rng(1).normal(size=(2, 5, 2))
    left, right = matrices(model, graph)
    z = np.asarray(eqx.filter_jit(model.closed_form)(jnp.asarray(np.concatenate([h, e], axis=1)), t, graph))
    np.testing.assert_array_equal(z[:, 2:], e)

    def rhs(t, flat):
        at = flat.reshape(5, 2)
        return (left @ at + at @ right + e).reshape(-1)

    sol = scipy.integrate.solve_ivp(rhs, (0, t), h.reshape(-1), method="DOP853", rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(z[:, :2], sol.y[:, -1].reshape(5, 2), atol=1e-9)

    joint = np.kron(left, np.eye(2)) + np.kron(np.eye(5), right.T)
    rest = -np.linalg.solve(joint, e.reshape(-1))
    exact = scipy.linalg.expm(joint * t) @ (h.reshape(-1) - rest) + rest
    np.testing.assert_allclose(z[:, :2].reshape(-1), exact, atol=1e-9)


@models
def test_the_closed_form_solves_the_field(x64, model):
    """Its derivative in t is the field at every t, and at t = 0 it is the start."""

    @eqx.filter_jit
    def run(model, t, graph):
        z0 = model.start(jax.random.normal(jax.random.key(1), (5, 2)))
        z, dz = jax.jvp(lambda t: model.closed_form(z0, t, graph), (t,), (jnp.ones_like(t),))
        return z0, z, dz, model(t, z, graph)

    model, graph = MODELS[model](), make_graph()
    for t in (0.0, 0.4, 3.0):
        z0, z, dz, field = map(np.asarray, run(model, jnp.asarray(t), graph))
        np.testing.assert_array_equal(z0[:, :2], z0[:, 2:])
        np.testing.assert_allclose(dz, field, atol=1e-10)
        if t == 0:
            np.testing.assert_allclose(z, z0, atol=1e-12)


def test_gradients_of_the_closed_form_are_finite_where_rates_are_equal(x64):
    @eqx.filter_jit
    @eqx.filter_grad
    def grad(model, x, graph):
        return jnp.sum(model.closed_form(model.start(x), 1.0, graph) ** 2)

    model = eqx.tree_at(lambda m: m.mixing.logits, MODELS["mixing"](), jnp.zeros(2))
    gradient = grad(model, jax.random.normal(jax.random.key(1), (5, 2)), make_graph())
    assert all(np.all(np.isfinite(g)) for g in jax.tree.leaves(gradient))
    assert np.abs(gradient.mixing.logits).min() > 1e-3


@pytest.mark.parametrize("factor", [0.0, 1.0, 100.0])
def test_eigenvalues_stay_between_0_and_1(x64, factor):
    model = MODELS["mixing"]()
    model = eqx.tree_at(lambda m: m.mixing.free, model, factor * model.mixing.free)
    u = model.mixing.rotation
    np.testing.assert_allclose(u @ u.T, np.eye(2), atol=1e-12)
    eigenvalues = np.linalg.eigvalsh(model.weight)
    assert np.all((eigenvalues > 0) & (eigenvalues < 1))


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: ContinuousGNN(alpha=1.0), "alpha: .* got 1.0"),
        (lambda: ContinuousGNN(0, key=jax.random.key(0)), "size: .* got 0"),
        (lambda: ContinuousGNN(2), "give both"),
        (lambda: ContinuousGNN(key=jax.random.key(0)), "give both"),
        (lambda: MODELS["plain"]()(0.0, jnp.ones((5, 3)), make_graph()), "source e.*got 3"),
        (lambda: MODELS["mixing"]()(0.0, jnp.ones((5, 6)), make_graph()), "of 2 features each.*got 6"),
    ],
)
def test_what_cannot_be_is_refused(make, says):
    with pytest.raises(InputError, match=says):
        make()
