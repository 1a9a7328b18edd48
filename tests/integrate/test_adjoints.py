"""Gradients: the adjoints agree with each other and with finite differences, for every field."""

import equinox as eqx
import jax
import jax.flatten_util
import jax.numpy as jnp
import numpy as np
import pytest

import neuralgde as gde
from gradients import gradient, program
from neuralgde.field import breakpoints_of
from problems import FIELDS, make_field, small_graph

TIMES = (0.0, 0.4, 0.9)
MOST = 256  # more than any field here needs


def loss(field_and_state, graph, adjoint, **options):
    field, z0 = field_and_state
    options = {"solver": "dopri8", "rtol": 1e-9, "atol": 1e-9, **options}
    sol = gde.solve(field, z0, TIMES, graph, adjoint=adjoint, throw=False, **options)
    weight = jnp.cos(jnp.arange(sol.states.size, dtype=sol.states.dtype)).reshape(sol.states.shape)
    return jnp.mean(weight * sol.states**2)


def ravel(tree):
    return jax.flatten_util.ravel_pytree(tree)[0]


def problem(name):
    z0 = jnp.asarray(np.random.default_rng(1).standard_normal((6, 4)))
    return (make_field(name), z0), small_graph()


class SideBySide(eqx.Module):
    """Fields that know nothing of each other, each with four features of the state, as one: compiled once for all."""

    fields: tuple

    def __call__(self, t, z, graph):
        parts = jnp.split(z, len(self.fields), axis=1)
        return jnp.concatenate([f(t, x, graph) for f, x in zip(self.fields, parts, strict=True)], axis=1)

    @property
    def breakpoints(self):
        found = [b for b in map(breakpoints_of, self.fields) if b is not None]
        return np.concatenate(found) if found else None


# Where one field has breakpoints in time, steps meet them.
TOGETHER = {"breakpoints": ["piecewise", "piecewise_linear"]}
TOGETHER["others"] = [name for name in FIELDS if name not in TOGETHER["breakpoints"]]


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("group", TOGETHER)
def test_adjoints_agree(group):
    names = TOGETHER[group]
    z0 = jnp.asarray(np.random.default_rng(1).standard_normal((6, 4 * len(names))))
    fz = SideBySide(tuple(make_field(name) for name in names)), z0

    def sum_of_losses(*args, **options):
        return len(names) * loss(*args, **options)

    def compare(found, expected, atol):
        for name, a, b in zip(names, fields_of(found), fields_of(expected), strict=True):
            np.testing.assert_allclose(a, b, atol=atol, err_msg=name)
        np.testing.assert_allclose(found[-z0.size :], expected[-z0.size :], atol=atol, err_msg="z0")

    def fields_of(flat):
        return [ravel(eqx.filter(f, eqx.is_inexact_array)) for f in unravel(jnp.asarray(flat))[0].fields]

    # Three solvers. Of ours two: where the state and its adjoint go back, bosh3, whose few stages compile soonest. And
    # Diffrax's dopri8.
    run, flat = program(sum_of_losses, fz, small_graph(), adjoint="checkpoint", solver="tsit5")
    unravel = jax.flatten_util.ravel_pytree(eqx.filter(fz, eqx.is_inexact_array))[1]
    checkpoint = run(flat)[1]
    assert np.isfinite(checkpoint).all()
    for adjoint, options in {"direct": {"max_steps": MOST}, "backsolve": {"solver": "bosh3"}}.items():
        compare(gradient(sum_of_losses, fz, small_graph(), adjoint=adjoint, **options), checkpoint, 1e-5)

    # Along random directions, each in the parameters of one field or in the state.
    sizes = [a.size for a in fields_of(flat)] + [z0.size]
    for start, size in zip(np.cumsum([0, *sizes]), sizes, strict=False):
        for direction in np.random.default_rng(0).standard_normal((2, size)):
            along = np.zeros(flat.size)
            along[start : start + size] = direction / np.linalg.norm(direction)
            h = 1e-5
            numeric = (run(flat + h * along)[0] - run(flat - h * along)[0]) / (2 * h)
            np.testing.assert_allclose(checkpoint @ along, numeric, atol=1e-6)


@pytest.mark.usefixtures("x64")
def test_fixed_steps_differentiate():
    fz, graph = problem("gcde")
    adaptive = gradient(loss, fz, graph, adjoint="checkpoint", solver="bosh3")
    assert np.isfinite(adaptive).all()
    for adjoint in ("checkpoint", "direct", "backsolve"):
        fixed = gradient(loss, fz, graph, adjoint=adjoint, solver="rk4", dt0=0.01)
        np.testing.assert_allclose(fixed, adaptive, atol=1e-5, err_msg=adjoint)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize(
    ("layout", "adjoint"),
    [("dense", "checkpoint"), ("csr", "checkpoint"), ("pairs", "checkpoint"), ("csr", "backsolve")],
)
def test_gradients_in_edge_weights(layout, adjoint):
    (field, z0), graph = problem("gcde")
    graph = graph.with_layout(layout)

    @jax.jit
    @jax.value_and_grad
    def run(weights):
        return loss((field, z0), graph.with_weights(weights), adjoint, solver="bosh3")

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
        tight = {"solver": "bosh3", "rtol": 1e-9, "atol": 1e-9}
        sol = gde.solve(field, z, times, graph, adjoint=adjoint, throw=False, **tight)
        return jnp.sum(sol.states**2)

    def flat(grads):
        return jax.flatten_util.ravel_pytree(grads)[0]

    lone = [[flat(grad(field, z, t, "checkpoint")) for z in batch] for t in times]
    assert np.isfinite(lone).all()
    # Each its own times, or both the first.
    for given, expected in ((times, lone[0][0] + lone[1][1]), (times[0], lone[0][0] + lone[0][1])):
        for adjoint in ("checkpoint", "backsolve"):
            np.testing.assert_allclose(flat(grad(field, batch, given, adjoint)), expected, atol=1e-5, err_msg=adjoint)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("adjoint", ["checkpoint", "backsolve"])
def test_closures_differentiate(adjoint):
    """A plain function that closed over what is differentiated."""
    z0 = jnp.ones(3)

    def value(rate):
        sol = gde.solve(lambda t, z, g: -rate * z, z0, [0.0, 1.0], adjoint=adjoint, rtol=1e-9, atol=1e-10)
        return jnp.sum(sol.states[-1])

    np.testing.assert_allclose(jax.grad(value)(0.7), -3 * np.exp(-0.7), atol=1e-6)


@pytest.mark.usefixtures("x64")
def test_backsolve_twice_and_side_by_side():
    """Second derivatives of z' = -a z^2, whose solution is z0 / (1 + a z0 t), for three starts under `vmap`."""
    times = np.array([0.0, 0.5, 1.0])

    def value(rate, z0, solved=True):
        if not solved:
            return jnp.sum((z0 / (1 + rate * z0 * times)) ** 2)
        tight = {"solver": "bosh3", "rtol": 1e-9, "atol": 1e-10, "adjoint": "backsolve"}
        sol = gde.solve(lambda t, z, g: -rate * z**2, z0[None], times, throw=False, **tight)
        return jnp.sum(sol.states**2)

    def derivatives(z0, solved=True):
        return jax.value_and_grad(jax.grad(lambda rate: value(rate, z0, solved)))(0.7)

    z0 = jnp.arange(1.0, 4.0)
    found, exact = jax.jit(jax.vmap(derivatives))(z0), jax.vmap(lambda z: derivatives(z, solved=False))(z0)
    np.testing.assert_allclose(np.stack(found), np.stack(exact), rtol=1e-5)


def test_forward_mode_through_fixed_steps():
    def end(rate):
        return gde.solve(lambda t, z, g: -rate * z, jnp.ones(1), [0.0, 1.0], solver="rk4", dt0=0.05).states[-1, 0]

    np.testing.assert_allclose(jax.jvp(end, (0.7,), (1.0,))[1], -np.exp(-0.7), rtol=1e-5)


def test_a_solve_that_fails_gives_no_gradient():
    """Its last state is one from on the way."""

    def value(z0):
        sol = gde.solve(
            lambda t, z, g: jnp.cos(40 * t) * z, z0, [0.0, 1.0, 3.0], adjoint="backsolve", max_steps=16, throw=False
        )
        return jnp.sum(sol.states[0])

    assert not np.isfinite(jax.jit(jax.grad(value))(jnp.ones(1))).any()


def test_a_backward_solve_that_fails_gives_no_gradient():
    """A field that is far steeper backwards in time than forwards, and too few steps to follow it."""

    def value(z0):
        sol = gde.solve(
            lambda t, z, g: -300.0 * (z - jnp.sin(40 * t)), z0, [0.0, 3.0],
            adjoint="backsolve", rtol=1e-4, max_steps=1024, throw=False,
        )  # fmt: skip
        return jnp.sum(sol.states[-1])

    assert not np.isfinite(jax.jit(jax.grad(value))(jnp.ones(1))).any()


def temporary_memory(adjoint, **options):
    field, graph = make_field("gcde"), small_graph()

    @eqx.filter_jit
    @eqx.filter_grad
    def grad(fz):
        sol = gde.solve(fz[0], fz[1], [0.0, 1.0], graph, adjoint=adjoint, throw=False, **options)
        return jnp.sum(sol.states**2)

    compiled = grad.lower((field, jnp.ones((6, 4)))).compile()
    return compiled.compiled.memory_analysis().temp_size_in_bytes


def test_memory_of_backsolve_does_not_grow_with_steps():
    few, many = (temporary_memory("backsolve", solver="euler", dt0=1 / steps) for steps in (100, 10_000))
    assert many <= 1.1 * few
    assert temporary_memory("direct", solver="euler", dt0=1 / 10_000) > 20 * few
    # Adaptive steps may be as many as they like.
    few, many = (temporary_memory("backsolve", solver="bosh3", max_steps=most) for most in (4, 10_000))
    assert many <= 1.1 * few
