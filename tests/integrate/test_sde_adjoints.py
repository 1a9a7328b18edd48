"""Gradients of stochastic solves: those of the steps themselves, and the adjoint equation on the same path."""

import equinox as eqx
import jax
import jax.flatten_util
import jax.numpy as jnp
import numpy as np
import pytest

import neuralgde as gde
from gradients import gradient, program
from neuralgde.integrate import _sde
from problems import small_graph

TIMES = (0.0, 0.4, 0.4, 0.9)
KEY = jax.random.key(3)


class Positive(eqx.Module):
    """A diffusion that is coupled over the graph."""

    field: gde.GCDE

    def __call__(self, t, z, graph):
        return jax.nn.sigmoid(self.field(t, z, graph))


def problem(batch=2):
    drift, diffusion = (gde.GCDE((2, 4, 2), key=k) for k in jax.random.split(jax.random.key(1)))
    z0 = jnp.asarray(np.random.default_rng(1).standard_normal((batch, 6, 2)))
    return (drift, Positive(diffusion), z0), small_graph()


def loss(fields_and_state, graph, **options):
    sol = gde.solve_sde(*fields_and_state, TIMES, graph, key=KEY, throw=False, **options)
    weight = jnp.cos(jnp.arange(sol.states.size, dtype=sol.states.dtype)).reshape(sol.states.shape)
    return jnp.mean(weight * sol.states**2)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("options", [{"solver": "heun", "dt0": 0.1}, {"rtol": 1e-2, "atol": 1e-2}], ids=str)
def test_the_gradient_is_that_of_the_steps(options):
    """Finite differences of the program itself, along random directions."""
    run, flat = program(loss, *problem(), **options)
    grad = run(flat)[1]
    for direction in np.random.default_rng(0).standard_normal((3, flat.size)):
        direction, h = direction / np.linalg.norm(direction), 1e-6
        numeric = (run(flat + h * direction)[0] - run(flat - h * direction)[0]) / (2 * h)
        np.testing.assert_allclose(grad @ direction, numeric, atol=1e-7)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("solver", ["euler_heun", "heun", "midpoint"])
def test_adjoints_agree_on_the_same_path(solver):
    given, graph = problem()
    options = {"solver": solver, "dt0": 2.0**-10}
    steps = gradient(loss, given, graph, adjoint="checkpoint", **options)
    equation = gradient(loss, given, graph, adjoint="backsolve", **options)
    assert np.linalg.norm(steps) > 0.1
    np.testing.assert_allclose(equation, steps, atol=1e-3)


@pytest.mark.usefixtures("x64")
def test_adjoints_agree_with_adaptive_steps():
    given, graph = problem()
    options = {"rtol": 1e-4, "atol": 1e-4, "max_steps": 2**16}
    steps, equation = (gradient(loss, given, graph, adjoint=name, **options) for name in ("checkpoint", "backsolve"))
    np.testing.assert_allclose(equation, steps, atol=1e-3)


@pytest.mark.usefixtures("x64")
def test_keeping_fewer_states_changes_nothing(monkeypatch):
    given, graph = problem()
    options = {"rtol": 1e-2, "atol": 1e-2}
    all_kept = gradient(loss, given, graph, **options)
    monkeypatch.setattr(_sde, "KEEP_ALL_BYTES", 0)
    # Rounding moves the times of adaptive steps, by 1e-16, and a Brownian path over that moves by its root.
    np.testing.assert_allclose(gradient(loss, given, graph, **options), all_kept, rtol=0, atol=1e-8)


@pytest.mark.usefixtures("x64")
def test_gradients_in_what_functions_close_over_and_under_vmap():
    def value(noise, key, adjoint):
        sol = gde.solve_sde(
            lambda t, z, g: -z, lambda t, z, g: noise * z, jnp.ones(3), [0.0, 1.0], key=key, solver="heun", dt0=0.01,
            adjoint=adjoint, throw=False,
        )  # fmt: skip
        return jnp.sum(sol.states[-1]), sol.states[-1]

    keys = jax.random.split(KEY, 4)
    still, one = lambda t, z, g: 0 * z, lambda t, z, g: jnp.ones_like(z)

    @jax.jit
    @jax.vmap
    def noise_of(key):
        return gde.solve_sde(still, one, jnp.zeros(3), [0.0, 1.0], key=key, dt0=1.0, throw=False).states[-1]

    w = noise_of(keys)
    for adjoint in ("checkpoint", "backsolve"):
        run = jax.jit(jax.vmap(jax.value_and_grad(lambda n, k: value(n, k, adjoint), has_aux=True), (None, 0)))  # noqa: B023
        (_, z), grads = run(0.5, keys)
        np.testing.assert_allclose(grads, jnp.sum(w * z, axis=1), rtol=0.02, atol=0.02)


def test_memory_of_backsolve_does_not_grow_with_steps():
    given, graph = problem()
    given = jax.tree.map(lambda x: x.astype(jnp.float32) if eqx.is_inexact_array(x) else x, given)

    def temporary(adjoint, steps):
        grad = eqx.filter_jit(eqx.filter_grad(lambda x, g: loss(x, g, solver="heun", dt0=1 / steps, adjoint=adjoint)))
        return grad.lower(given, graph).compile().compiled.memory_analysis().temp_size_in_bytes

    # Times are still written down, a few numbers a step; states are not.
    few, many = (temporary("backsolve", steps) for steps in (100, 3000))
    assert many - few < 3000 * 4 * 2 * 4 * 2
    assert temporary("checkpoint", 3000) - few > 3000 * 4 * 24
