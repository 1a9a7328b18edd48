"""Continuous graph flow: densities that are known."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg
import scipy.stats

import neuralgde as gde

RATE = 0.7
STEPS = gde.SolveConfig(solver="rk4", dt0=0.1)


def ring():
    return gde.Graph.from_edges(range(4), [1, 2, 3, 0], undirected=True)


class Linear(eqx.Module):
    """dz/dt = rate (gcn operator) z: x is normal, with covariance exp(2 rate A) for a symmetric A."""

    rate: jax.Array

    def __call__(self, t, z, graph):
        return self.rate * (graph.operator("gcn") @ z)


def law():
    a = np.asarray(ring().operator("gcn").to_dense(), float)
    a = (a + a.T) / 2
    return scipy.stats.multivariate_normal(np.zeros(4), scipy.linalg.expm(2 * RATE * a))


@pytest.fixture(scope="module")
def flow():
    return gde.GraphFlow(Linear(jnp.asarray(RATE)), STEPS)


def test_exact_density(flow):
    x = np.random.default_rng(0).normal(size=(3, 5, 4, 1)).astype(np.float32)
    found = eqx.filter_jit(lambda f, x, g: f.log_likelihood(x, g))(flow, jnp.asarray(x), ring())
    np.testing.assert_allclose(found, law().logpdf(x[..., 0]), rtol=1e-4, atol=1e-4)


def test_hutchinsons_trace_is_unbiased(flow):
    x = jnp.array([[0.3], [-1.0], [0.5], [2.0]])
    score = eqx.filter_jit(lambda f, key, n: f.log_likelihood(x, ring(), trace="hutchinson", key=key, probes=n))
    many = score(flow, jax.random.key(0), 4000)
    np.testing.assert_allclose(many, law().logpdf(x[:, 0]), atol=0.05)
    few = np.array([score(flow, key, 1) for key in jax.random.split(jax.random.key(1), 8)])
    assert few.std() > 0.01


def test_samples_have_the_covariance(flow):
    x = np.asarray(flow.sample(ring(), 1, key=jax.random.key(0), samples=20_000))[..., 0]
    np.testing.assert_allclose(np.cov(x.T), law().cov, atol=0.15)


def test_absent_nodes_take_no_part(flow):
    graph = ring().with_node_mask(np.array([True, True, True, False]))
    x = jnp.array([[0.3], [-1.0], [0.5], [2.0]])
    a = np.asarray(graph.operator("gcn").to_dense())[:3, :3]
    expected = scipy.stats.multivariate_normal(np.zeros(3), scipy.linalg.expm(2 * RATE * a)).logpdf(x[:3, 0])
    np.testing.assert_allclose(flow.log_likelihood(x, graph), expected, rtol=1e-4)
    assert (flow.sample(graph, 1, key=jax.random.key(0), samples=3)[:, 3] == 0).all()


def test_learns_the_rate_from_samples():
    data = jnp.asarray(law().rvs(2000, random_state=0).astype(np.float32))[..., None]
    flow = gde.GraphFlow(Linear(jnp.zeros(())), STEPS)

    @eqx.filter_jit
    def step(flow, data, graph):
        loss, gradient = eqx.filter_value_and_grad(lambda f: -jnp.mean(f.log_likelihood(data, graph)))(flow)
        return eqx.apply_updates(flow, jax.tree.map(lambda g: -0.1 * g, gradient)), loss

    for _ in range(40):
        flow, loss = step(flow, data, ring())
    np.testing.assert_allclose(flow.field.rate, RATE, atol=0.05)
    np.testing.assert_allclose(loss, law().entropy(), atol=0.08)


def test_refuses(flow):
    with pytest.raises(gde.InputError, match="trace 'exakt'"):
        flow.log_likelihood(jnp.zeros((4, 1)), ring(), trace="exakt")
    with pytest.raises(gde.InputError, match="Give a key"):
        flow.log_likelihood(jnp.zeros((4, 1)), ring(), trace="hutchinson")
