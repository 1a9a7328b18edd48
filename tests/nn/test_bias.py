"""The bias primitive: values, derivatives of any order, and samples that stay where they are."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

from neuralgde.nn._bias import add_bias
from neuralgde.nn._tanh import sigmoid, tanh

RNG = np.random.default_rng(0)


def test_values_and_derivatives(x64):
    z, bias = jnp.asarray(RNG.standard_normal((4, 3))), jnp.asarray(RNG.standard_normal(3))
    np.testing.assert_array_equal(add_bias(z, bias), z + bias)
    assert add_bias(z, None) is z
    check_grads(lambda z, b: jnp.sin(add_bias(*map(jnp.asarray, (z, b)))), (z, bias), order=2)
    check_grads(lambda b: jnp.sin(add_bias(z, jnp.asarray(b))), (bias,), order=2)
    check_grads(lambda z: jnp.sin(add_bias(jnp.asarray(z), bias)), (z,), order=2)


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("own", [False, True])
def test_over_samples(axis, own):
    z = jnp.asarray(RNG.standard_normal((5, 4, 3)), jnp.float32)
    bias = jnp.asarray(RNG.standard_normal((5, 3) if own else 3), jnp.float32)
    expected = z + (bias[:, None] if own else bias)
    f = jax.vmap(add_bias, in_axes=(axis, 0 if own else None))
    np.testing.assert_array_equal(f(jnp.moveaxis(z, 0, axis), bias), expected)
    np.testing.assert_array_equal(jax.vmap(f, in_axes=(0, None))(jnp.moveaxis(z, 0, axis)[None], bias)[0], expected)
    if own:
        np.testing.assert_array_equal(jax.vmap(add_bias, in_axes=(None, 0))(z[0], bias), z[0] + bias[:, None])


def test_a_shared_graph_needs_no_transpose():
    z, bias = jnp.ones((4, 5, 3)), jnp.ones(3)
    program = str(jax.make_jaxpr(jax.vmap(add_bias, in_axes=(1, None), out_axes=1))(z, bias))
    assert "transpose" not in program


@pytest.mark.parametrize("activation", [tanh, sigmoid])
def test_nor_do_activations(activation):
    """Nor the gradient of one: such a copy of the states takes as long as a product with weights."""
    z = jnp.ones((4, 5, 3))
    program = jax.make_jaxpr(lambda z: jax.vjp(jax.vmap(activation, 1, 1), z)[1](z))(z)
    assert "transpose[" not in str(program)
