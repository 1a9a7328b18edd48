"""Brownian paths: the law of their increments, and that a key fixes them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

import neuralgde as gde
from neuralgde.integrate._brownian import BrownianPath


def path(times, key=0, size=400):
    times = jnp.asarray(times)
    return np.asarray(jax.jit(lambda k, t: jax.vmap(BrownianPath(k, (size,), t.dtype))(t))(jax.random.key(key), times))


def irregular(dtype):
    """Times on both sides of zero, close together and far apart, across the borders of the construction's cells."""
    rng = np.random.default_rng(0)
    near = np.concatenate(
        [-np.geomspace(1e-8, 900, 40), [0.0], np.geomspace(1e-8, 900, 40), 1 + np.geomspace(1e-5, 1, 9)]
    )
    return np.unique(np.concatenate([near, rng.uniform(-3, 5, 80)]).astype(dtype))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("key", [0, 1])
def test_increments_are_normal_and_independent(dtype, key):
    with jax.enable_x64(dtype == "float64"):
        t = irregular(dtype)
        w = path(t, key)
    d = np.diff(w, axis=0) / np.sqrt(np.diff(t.astype(float)))[:, None]
    assert scipy.stats.kstest(d.ravel(), "norm").pvalue > 0.01
    assert scipy.stats.kstest(np.sum(d**2, axis=1), "chi2", (d.shape[1],)).pvalue > 0.01
    n, m = d.shape
    correlation = d @ d.T / m - np.eye(n)
    assert np.abs(correlation[np.triu_indices(n, 1)]).max() < 5.5 / np.sqrt(m)
    assert np.abs(np.corrcoef(d.T)[np.triu_indices(m, 1)]).max() < 5.5 / np.sqrt(n)


def test_a_path_starts_at_zero_and_is_the_same_in_both_precisions(x64):
    t = np.array([0.0, 0.25, 0.3, 1.0, 7.7], np.float32)
    np.testing.assert_allclose(path(t), path(t.astype(float)), atol=2e-6)
    assert not path(t)[0].any()
    assert np.abs(path(t, 0) - path(t, 1))[1:].min(axis=1).max() > 0


def test_increments_through_the_solver():
    """A drift of zero and a diffusion of one give the path itself, whatever the steps."""
    times = np.sort(np.random.default_rng(1).uniform(0, 4, 60))

    def run(**options):
        still, one = lambda t, z, g: 0 * z, lambda t, z, g: jnp.ones_like(z)
        return np.asarray(gde.solve_sde(still, one, jnp.zeros(300), times, key=jax.random.key(2), **options).states)

    z = run(solver="heun", dt0=0.3)
    d = np.diff(z, axis=0) / np.sqrt(np.diff(times))[:, None]
    assert scipy.stats.kstest(d.ravel(), "norm").pvalue > 0.01
    np.testing.assert_allclose(run(), z, atol=1e-5)
    np.testing.assert_allclose(
        z, path(times.astype(np.float32), 2, 300) - path(times[:1].astype(np.float32), 2, 300), atol=1e-5
    )
