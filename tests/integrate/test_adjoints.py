"""Gradients: the adjoints agree with each other and with finite differences, for every field."""

import equinox as eqx
import jax
import jax.flatten_util
import jax.numpy as jnp
import numpy as np
import pytest

import neuralgde as gde
from problems import every_field, small_graph

TIMES = (0.0, 0.4, 0.9)
MOST = 512  # more than any field here needs


def loss(field_and_state, graph, adjoint, **options):
    field, z0 = field_and_state
    options = {"solver": "dopri8", "rtol": 1e-9, "atol": 1e-9, **options}
    sol = gde.solve(field, z0, TIMES, graph, adjoint=adjoint, throw=False, **options)
    weight = jnp.cos(jnp.arange(sol.states.size, dtype=sol.states.dtype)).reshape(sol.states.shape)
    # A mean, as losses are. Where the field has kinks (attention's LeakyReLU) each adjoint is off by the root of the
    # tolerance, and they agree to that.
    return jnp.mean(weight * sol.states**2)


def gradient(*args, **options):
    grads = eqx.filter_jit(eqx.filter_grad(lambda fz, g: loss(fz, g, *args[2:], **options)))(*args[:2])
    return jax.flatten_util.ravel_pytree(eqx.filter(grads, eqx.is_inexact_array))[0]


def problem(name):
    z0 = jnp.asarray(np.random.default_rng(1).standard_normal((6, 4)))
    return (every_field()[name], z0), small_graph()


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("name", every_field())
def test_adjoints_agree(name):
    fz, graph = problem(name)
    direct = gradient(fz, graph, "direct", max_steps=MOST)
    # Checkpoints have two engines, one of them for the solvers most people use. Where a field has kinks, two solvers
    # differ by more than two adjoints do.
    engines = {"gade": ["dopri8"], "gcde": ["tsit5", "dopri8"]}.get(name, ["tsit5"])
    for adjoint, solver in [("backsolve", "dopri8"), *(("checkpoint", solver) for solver in engines)]:
        np.testing.assert_allclose(gradient(fz, graph, adjoint, solver=solver), direct, atol=1e-5)

    params, static = eqx.partition(fz, eqx.is_inexact_array)
    flat, unravel = jax.flatten_util.ravel_pytree(params)
    value = jax.jit(lambda flat: loss(eqx.combine(unravel(flat), static), graph, "checkpoint", solver=engines[0]))
    # Along random directions: each tells of all parameters at once.
    for direction in np.random.default_rng(0).standard_normal((4, flat.size)):
        direction = direction / np.linalg.norm(direction)
        h = 1e-5
        numeric = (value(flat + h * direction) - value(flat - h * direction)) / (2 * h)
        np.testing.assert_allclose(direct @ direction, numeric, atol=1e-4 if name == "gade" else 1e-6)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("adjoint", ["checkpoint", "direct", "backsolve"])
def test_fixed_steps_differentiate(adjoint):
    fz, graph = problem("gcde")
    fixed = gradient(fz, graph, adjoint, solver="rk4", dt0=0.01)
    np.testing.assert_allclose(fixed, gradient(fz, graph, "direct", max_steps=MOST), atol=1e-5)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("layout", ["dense", "csr", "pairs"])
@pytest.mark.parametrize("adjoint", ["checkpoint", "backsolve"])
def test_gradients_in_edge_weights(layout, adjoint):
    (field, z0), graph = problem("gcde")
    graph = graph.with_layout(layout)

    def value(weights):
        return loss((field, z0), graph.with_weights(weights), adjoint)

    grad = jax.jit(jax.grad(value))(graph.weights)
    direction = np.random.default_rng(0).standard_normal(graph.weights.shape) * np.asarray(graph.edge_mask)
    evaluate, h = jax.jit(value), 1e-5
    numeric = (evaluate(graph.weights + h * direction) - evaluate(graph.weights - h * direction)) / (2 * h)
    np.testing.assert_allclose(grad @ direction, numeric, rtol=1e-5)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("adjoint", ["checkpoint", "backsolve"])
def test_a_batch_differentiates_like_its_samples(adjoint):
    (field, z0), graph = problem("gcde")
    batch = jnp.stack([z0, 2 * z0])
    times = np.array([TIMES, (1.0, 0.8, 0.2)])

    def joint(field):
        sol = gde.solve(field, batch, times, graph, solver="dopri8", rtol=1e-9, atol=1e-9, adjoint=adjoint, throw=False)
        return jnp.sum(sol.states**2)

    def alone(field):
        sols = [gde.solve(field, z, t, graph, solver="dopri8", rtol=1e-9, atol=1e-9) for z, t in zip(batch, times)]  # noqa: B905
        return sum(jnp.sum(sol.states**2) for sol in sols)

    a, b = (jax.flatten_util.ravel_pytree(eqx.filter_grad(f)(field))[0] for f in (joint, alone))
    np.testing.assert_allclose(a, b, atol=1e-5)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("adjoint", ["checkpoint", "backsolve"])
def test_closures_differentiate(adjoint):
    """A plain function that closed over what is differentiated."""
    z0 = jnp.ones(3)

    def value(rate):
        sol = gde.solve(lambda t, z, g: -rate * z, z0, [0.0, 1.0], adjoint=adjoint, rtol=1e-9, atol=1e-10)
        return jnp.sum(sol.states[-1])

    np.testing.assert_allclose(jax.grad(value)(0.7), -3 * np.exp(-0.7), atol=1e-6)


def test_forward_mode_through_fixed_steps():
    def end(rate):
        return gde.solve(lambda t, z, g: -rate * z, jnp.ones(1), [0.0, 1.0], solver="rk4", dt0=0.05).states[-1, 0]

    np.testing.assert_allclose(jax.jvp(end, (0.7,), (1.0,))[1], -np.exp(-0.7), rtol=1e-5)


def test_a_backward_solve_that_fails_gives_no_gradient():
    """A field that is far steeper backwards in time than forwards, and too few steps to follow it."""

    def value(z0):
        sol = gde.solve(
            lambda t, z, g: -300.0 * (z - jnp.sin(40 * t)), z0, [0.0, 3.0],
            adjoint="backsolve", rtol=1e-4, max_steps=1024, throw=False,
        )  # fmt: skip
        return jnp.sum(sol.states[-1])

    assert not np.isfinite(jax.grad(value)(jnp.ones(1))).any()


def temporary_memory(adjoint, steps):
    field, graph = every_field()["gcde"], small_graph()

    @eqx.filter_jit
    @eqx.filter_grad
    def grad(fz):
        sol = gde.solve(fz[0], fz[1], [0.0, 1.0], graph, solver="rk4", dt0=1 / steps, adjoint=adjoint, throw=False)
        return jnp.sum(sol.states**2)

    compiled = grad.lower((field, jnp.ones((6, 4)))).compile()
    return compiled.compiled.memory_analysis().temp_size_in_bytes


def test_memory_of_backsolve_does_not_grow_with_steps():
    few, many = (temporary_memory("backsolve", steps) for steps in (100, 10_000))
    assert many <= 1.1 * few
    assert temporary_memory("direct", 10_000) > 20 * few
