"""Known inputs u(t): interpolation, shapes, breakpoints."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from neuralgde import InputError
from neuralgde.field import DepthVarying, LinearInputs, WithInputs, breakpoints_of
from neuralgde.graph import Graph

TIMES = np.array([0.0, 1.0, 1.5, 4.0])
VALUES = np.array([2.0, -1.0, 0.5, 3.0])


@pytest.fixture
def graph():
    return Graph.from_edges(np.array([0, 1]), np.array([1, 2]), num_nodes=3)


def as_it_is(t, z, graph):
    return z


@pytest.mark.parametrize("t", [-1.0, 0.0, 0.3, 1.0, 1.2, 1.5, 3.9, 4.0, 7.0])
def test_interpolation_is_linear_and_constant_outside(t):
    assert float(LinearInputs(TIMES, VALUES)(t)) == pytest.approx(np.interp(t, TIMES, VALUES), abs=1e-6)


def test_one_time_is_a_constant():
    inputs = LinearInputs(np.array([2.0]), np.array([5.0]))
    assert [float(inputs(t)) for t in (0.0, 2.0, 3.0)] == [5.0, 5.0, 5.0]


def test_slopes_of_interpolation(x64):
    inputs = LinearInputs(TIMES, VALUES)
    slopes = [float(jax.grad(inputs)(t)) for t in (0.5, 1.2, 2.0, -1.0, 9.0)]
    np.testing.assert_allclose(slopes, [-3.0, 3.0, 1.0, 0.0, 0.0])


def test_whole_numbers_will_do():
    inputs = LinearInputs(np.array([0, 2]), np.array([0, 1]))
    assert float(inputs(1.0)) == 0.5


NODE_VALUES = np.arange(4 * 3 * 2, dtype=np.float32).reshape(4, 3, 2)


@pytest.mark.parametrize(
    ("inputs", "expected"),
    [
        ((TIMES, VALUES), np.full((3, 1), 0.5)),
        ((TIMES, np.stack([VALUES, 2 * VALUES], axis=1)), np.tile([0.5, 1.0], (3, 1))),
        ((TIMES, NODE_VALUES), NODE_VALUES[:2].mean(0)),
        (lambda t: 3.0 * t, np.full((3, 1), 1.5)),
        (lambda t: jnp.stack([t, -t]), np.tile([0.5, -0.5], (3, 1))),
        (lambda t: t * jnp.arange(6.0).reshape(3, 2), 0.5 * np.arange(6.0).reshape(3, 2)),
    ],
    ids=["number", "channels", "nodes", "callable", "callable_channels", "callable_nodes"],
)
def test_inputs_follow_the_features(graph, inputs, expected):
    z = jnp.arange(6.0).reshape(3, 2)
    seen = WithInputs(as_it_is, inputs)(jnp.asarray(0.5), z, graph)
    np.testing.assert_allclose(seen, np.concatenate([z, expected], axis=1), atol=1e-6)
    assert seen.dtype == z.dtype


def test_inputs_may_be_arrays_of_a_program(graph):
    """A sample's own inputs go through `vmap` as arguments."""
    z = jnp.zeros((3, 1))
    values = jnp.stack([jnp.asarray(VALUES), 10 * jnp.asarray(VALUES)])

    @jax.vmap
    def seen(values):
        return WithInputs(as_it_is, (TIMES, values))(0.5, z, graph)

    np.testing.assert_allclose(seen(values)[:, 0, 1], [0.5, 5.0], atol=1e-6)


def test_breakpoints_are_the_times_and_those_of_the_field():
    inner = DepthVarying(eqx.nn.Linear(1, 1, key=jax.random.key(0)), "piecewise", 2, (0.0, 1.0))
    np.testing.assert_allclose(breakpoints_of(WithInputs(inner, (TIMES, VALUES))), [0.0, 0.5, 1.0, 1.5, 4.0])
    np.testing.assert_allclose(breakpoints_of(WithInputs(inner, lambda t: t)), [0.5])
    assert breakpoints_of(WithInputs(as_it_is, lambda t: t)) is None
    traced = jax.jit(lambda times: breakpoints_of(WithInputs(inner, (times, VALUES))))(jnp.asarray(TIMES))
    np.testing.assert_allclose(traced, [0.0, 0.5, 1.0, 1.5, 4.0])


@pytest.mark.parametrize(
    ("times", "values", "says"),
    [
        (TIMES[None], VALUES, r"times of shape \(times,\).*got shape \(1, 4\)"),
        (TIMES[:0], VALUES[:0], "one or more"),
        (TIMES, VALUES[:3], r"as long as times, got \(3,\)"),
        (TIMES[::-1], VALUES, "ascend"),
        (np.array([0.0, 1.0, 1.0, 2.0]), VALUES, "ascend, each once"),
        (np.array([0.0, np.nan, 1.0, 2.0]), VALUES, "ascend"),
        (TIMES, np.array([0.0, np.nan, 1.0, 2.0]), "finite values"),
    ],
)
def test_inputs_that_cannot_be_are_refused(times, values, says):
    with pytest.raises(InputError, match=says):
        LinearInputs(times, values)


def test_inputs_for_other_nodes_are_refused(graph):
    field = WithInputs(as_it_is, lambda t: jnp.zeros((5, 2)))
    with pytest.raises(InputError, match=r"\(3, channels\), got \(5, 2\)"):
        field(0.0, jnp.zeros((3, 1)), graph)
