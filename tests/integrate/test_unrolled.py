"""Few fixed steps of a large state are taken one by one: the same numbers as in a loop."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import neuralgde as gde
from neuralgde.integrate import _engines


@pytest.mark.parametrize("times", [[0.0, 1.0], [0.0, 0.3, 0.3, 1.0], [1.0, 0.4, 0.0], [0.5, 0.5]], ids=str)
def test_one_by_one_as_in_a_loop(monkeypatch, times):
    z0 = jnp.asarray([[0.3, -1.0], [0.7, 0.2]])

    def field(t, z, graph):
        return jnp.sin(z + t) @ jnp.asarray([[0.5, 1.0], [-1.0, 0.2]])

    def run(z0):
        sol = gde.solve(field, z0, times, None, solver="rk4", dt0=0.25, throw=False)
        return jnp.sum(sol.states**2 * jnp.arange(1.0, 1 + len(times))[:, None, None]), sol

    found = []
    for size in (0, 10**9):
        monkeypatch.setattr(_engines, "_UNROLL_SIZE", size)
        # It is looked at when a program is traced, which the first one would spare the second.
        jax.clear_caches()
        (_, sol), grad = jax.jit(jax.value_and_grad(run, has_aux=True))(z0)
        found.append((sol.states, grad, sol.status, sol.stats["num_evaluations"]))
    for a, b in zip(*found, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6)


def test_one_by_one_says_where_it_failed(monkeypatch):
    monkeypatch.setattr(_engines, "_UNROLL_SIZE", 0)
    with pytest.raises(gde.SolveError, match="infinity|NaN|finite"):
        gde.solve(lambda t, z, graph: jnp.exp(30 * z), jnp.ones((2, 1)), [0.0, 1.0], None, solver="rk4", dt0=0.25)
