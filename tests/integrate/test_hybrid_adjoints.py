"""Gradients of hybrid solves: the adjoint with its jumps, the discrete ones, finite differences; and their memory."""

import equinox as eqx
import jax
import jax.flatten_util
import jax.numpy as jnp
import numpy as np
import pytest

import neuralgde as gde
from gradients import gradient, program
from neuralgde.graph import GraphStream
from streams import NODES, SIZE, TIMES, make_stream, parts, start

# Before, at, between and after observations.
QUERIES = np.array([0.3, 0.9, 1.4, 3.0])


def loss(trained, stream, queries=QUERIES, t0=0.2, **options):
    flow, jump, z0, values, weights = trained
    stream = eqx.tree_at(lambda s: (s.values, s.graphs.weights), stream, (values, weights))
    sol = gde.solve_hybrid(flow, jump, z0, stream, queries, t0=t0, throw=False, **options)
    states = jnp.concatenate([sol.states, sol.before, sol.after])
    weight = jnp.cos(jnp.arange(states.size, dtype=states.dtype)).reshape(states.shape)
    return jnp.mean(weight * states**2)


def problem():
    stream = make_stream(3)
    return (*parts(), start(), stream.values, stream.graphs.weights), stream


TIGHT = {"solver": "tsit5", "num_steps": None, "rtol": 1e-9, "atol": 1e-9}


@pytest.mark.usefixtures("x64")
def test_the_continuous_adjoint_equals_the_discrete_gradient():
    # Graphs change at every step, sensors are missing, times are irregular; inputs and edge weights are differentiated.
    discrete = gradient(loss, *problem(), **TIGHT, adjoint="checkpoint")
    np.testing.assert_allclose(gradient(loss, *problem(), **TIGHT, adjoint="backsolve"), discrete, atol=1e-7)
    assert np.abs(discrete).max() > 1e-2


@pytest.mark.usefixtures("x64")
def test_fixed_steps_have_one_gradient():
    fixed = {"queries": (), "t0": None, "solver": "heun", "num_steps": 60}
    run, flat = program(loss, *problem(), **fixed)
    direct = run(flat)[1]
    np.testing.assert_allclose(gradient(loss, *problem(), **fixed, adjoint="checkpoint"), direct, atol=1e-12)
    # The continuous adjoint differs from the gradient of the steps by their error.
    off = np.abs(gradient(loss, *problem(), **fixed, adjoint="backsolve") - direct).max()
    assert 1e-10 < off < 1e-4

    for direction in np.random.default_rng(0).standard_normal((3, flat.size)):
        direction = direction / np.linalg.norm(direction)
        numeric = (run(flat + 1e-5 * direction)[0] - run(flat - 1e-5 * direction)[0]) / 2e-5
        np.testing.assert_allclose(direct @ direction, numeric, atol=1e-8)


@pytest.mark.usefixtures("x64")
def test_batches_differentiate_backwards_too():
    streams = [make_stream(b, TIMES * (1 + 0.2 * b), changing=False) for b in range(2)]
    arrays = [np.stack([getattr(s, name) for s in streams]) for name in ("times", "values", "mask")]

    def value(z0, adjoint):
        batch = GraphStream.batch(*arrays[:2], streams[0].graphs, arrays[2])
        sol = gde.solve_hybrid(*parts(), z0, batch, [4.0], throw=False, **TIGHT, adjoint=adjoint)
        return jnp.mean(sol.states[:, 0] ** 2 * jnp.arange(1.0, 3.0)[:, None, None])

    z0 = jnp.stack([start(1), start(2)])
    a, b = (jax.jit(jax.grad(value), static_argnums=1)(z0, adjoint) for adjoint in ("backsolve", "checkpoint"))
    np.testing.assert_allclose(a, b, atol=1e-8)


def test_a_flow_that_closes_over_what_is_differentiated(x64):
    stream, z0 = make_stream(changing=False), start()
    add = lambda t, z, x, mask, graph: z + x[:, :1]  # noqa: E731

    def value(rate, adjoint):
        sol = gde.solve_hybrid(lambda t, z, graph: -rate * z, add, z0, stream, throw=False, adjoint=adjoint, **TIGHT)
        return jnp.sum(sol.before[-1])

    # Before the last observation there is what is left of the start and of those before it.
    ages = TIMES[-1] - TIMES[:-1]
    inputs = SIZE * np.asarray(stream.values[:-1, :, 0]).sum(1)
    inputs[0] += np.asarray(z0).sum()
    exact = -np.sum(ages * np.exp(-0.7 * ages) * inputs)
    for adjoint in ("backsolve", "checkpoint"):
        found = jax.jit(jax.grad(value), static_argnums=1)(jnp.asarray(0.7), adjoint)
        np.testing.assert_allclose(found, exact, rtol=1e-6, err_msg=adjoint)


def temporary_bytes(num_steps, adjoint):
    stream = make_stream(changing=False)
    add = lambda t, z, x, mask, graph: z + x[:, :1]  # noqa: E731

    @eqx.filter_jit
    @eqx.filter_grad
    def grad(flow, stream):
        sol = gde.solve_hybrid(
            flow, add, start(), stream, solver="euler", num_steps=num_steps, adjoint=adjoint, throw=False
        )
        return jnp.mean(sol.before**2)

    compiled = grad.lower(parts()[0], stream).compile()
    return compiled.compiled.memory_analysis().temp_size_in_bytes


def test_memory_is_flat_in_the_steps_of_an_interval():
    few, many = (temporary_bytes(n, "backsolve") for n in (10, 1000))
    assert many <= 1.02 * few
    # The same measure sees what storing every step takes: the states alone, over three intervals of a thousand.
    assert temporary_bytes(1000, "direct") > few + 3 * 1000 * NODES * SIZE * 4
