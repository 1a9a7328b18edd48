"""Gradients: the adjoints agree with each other and with finite differences, for every field."""

import equinox as eqx
import jax
import jax.flatten_util
import jax.numpy as jnp
import numpy as np
import pytest

import neuralgde as gde
from gradients import gradient, program
from problems import FIELDS, make_field, small_graph

TIMES = (0.0, 0.4, 0.9)
MOST = 256  # more than any field here needs


def loss(field_and_state, graph, adjoint, **options):
    field, z0 = field_and_state
    options = {"solver": "dopri8", "rtol": 1e-9, "atol": 1e-9, **options}
    sol = gde.solve(field, z0, TIMES, graph, adjoint=adjoint, throw=False, **options)
    weight = jnp.cos(jnp.arange(sol.states.size, dtype=sol.states.dtype)).reshape(sol.states.shape)
    # A mean, as losses are. Where the field has kinks (attention's LeakyReLU) each adjoint is off by the root of the
    # tolerance, and they agree to that.
    return jnp.mean(weight * sol.states**2)


def problem(name):
    z0 = jnp.asarray(np.random.default_rng(1).standard_normal((6, 4)))
    return (make_field(name), z0), small_graph()


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("name", FIELDS)
def test_adjoints_agree(name, request):
    if name == "gade":
        # Its kinks magnify how results are rounded: it is held to what programs of users give.
        request.getfixturevalue("optimised")
    fz, graph = problem(name)
    direct = gradient(loss, fz, graph, adjoint="direct", max_steps=MOST)
    # Checkpoints have two engines, one of them for the solvers most people use. Where a field has kinks, two solvers
    # differ by more than two adjoints do.
    engines = {"gade": ["dopri8"], "gcde": ["tsit5", "dopri8"]}.get(name, ["tsit5"])
    for adjoint, solver in [("backsolve", "dopri8"), *(("checkpoint", solver) for solver in engines[1:])]:
        np.testing.assert_allclose(gradient(loss, fz, graph, adjoint=adjoint, solver=solver), direct, atol=1e-5)
    run, flat = program(loss, fz, graph, adjoint="checkpoint", solver=engines[0])
    np.testing.assert_allclose(run(flat)[1], direct, atol=1e-5)

    # Along random directions: each tells of all parameters at once.
    for direction in np.random.default_rng(0).standard_normal((4, flat.size)):
        direction = direction / np.linalg.norm(direction)
        h = 1e-5
        numeric = (run(flat + h * direction)[0] - run(flat - h * direction)[0]) / (2 * h)
        np.testing.assert_allclose(direct @ direction, numeric, atol=1e-4 if name == "gade" else 1e-6)


@pytest.mark.usefixtures("x64")
def test_fixed_steps_differentiate():
    fz, graph = problem("gcde")
    adaptive = gradient(loss, fz, graph, adjoint="checkpoint", solver="tsit5")
    for adjoint in ("checkpoint", "direct", "backsolve"):
        fixed = gradient(loss, fz, graph, adjoint=adjoint, solver="rk4", dt0=0.01)
        np.testing.assert_allclose(fixed, adaptive, atol=1e-5, err_msg=adjoint)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("layout", ["dense", "csr", "pairs"])
@pytest.mark.parametrize("adjoint", ["checkpoint", "backsolve"])
def test_gradients_in_edge_weights(layout, adjoint):
    (field, z0), graph = problem("gcde")
    graph = graph.with_layout(layout)
    solver = {"checkpoint": "tsit5", "backsolve": "dopri8"}[adjoint]

    @jax.jit
    @jax.value_and_grad
    def run(weights):
        return loss((field, z0), graph.with_weights(weights), adjoint, solver=solver)

    direction = np.random.default_rng(0).standard_normal(graph.weights.shape) * np.asarray(graph.edge_mask)
    h = 1e-5
    numeric = (run(graph.weights + h * direction)[0] - run(graph.weights - h * direction)[0]) / (2 * h)
    np.testing.assert_allclose(run(graph.weights)[1] @ direction, numeric, rtol=1e-5)


@pytest.mark.usefixtures("x64")
def test_a_batch_differentiates_like_its_samples():
    (field, z0), graph = problem("gcde")
    batch = jnp.stack([z0, 2 * z0])
    times = jnp.array([TIMES, (1.0, 0.8, 0.2)])

    @eqx.filter_jit
    @eqx.filter_grad
    def grad(field, z, times, adjoint):
        sol = gde.solve(field, z, times, graph, rtol=1e-9, atol=1e-9, adjoint=adjoint, throw=False)
        return jnp.sum(sol.states**2)

    def flat(grads):
        return jax.flatten_util.ravel_pytree(grads)[0]

    alone = sum(flat(grad(field, z, t, "checkpoint")) for z, t in zip(batch, times, strict=True))
    for adjoint in ("checkpoint", "backsolve"):
        np.testing.assert_allclose(flat(grad(field, batch, times, adjoint)), alone, atol=1e-5, err_msg=adjoint)


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

    assert not np.isfinite(jax.jit(jax.grad(value))(jnp.ones(1))).any()


def temporary_memory(adjoint, steps):
    field, graph = make_field("gcde"), small_graph()

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
