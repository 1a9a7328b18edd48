"""The dense product with a stored transpose: values and derivatives are those of the plain product."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from neuralgde.graph._dense import Dense

pytestmark = pytest.mark.usefixtures("x64")


def ours(a, z):
    return jnp.sum(jnp.sin(Dense.of(a).times_product(jnp.tanh(Dense.of(a).T @ jnp.sin(Dense.of(a) @ z)))))


def plain(a, z):
    return jnp.sum(jnp.sin(a @ jnp.tanh(a.T @ jnp.sin(a @ z))))


def operands(*batch):
    rng = np.random.default_rng(0)
    return jnp.asarray(rng.standard_normal((*batch, 7, 8))), jnp.asarray(rng.standard_normal((*batch, 8, 7)))


def third_order(f, argnums):
    return jax.grad(lambda *a: jnp.sum(jax.hessian(f, argnums)(*a) ** 2), argnums)


@pytest.mark.parametrize("argnums", [0, 1], ids=["matrix", "state"])
@pytest.mark.parametrize("derivative", [jax.grad, jax.jacfwd, jax.hessian, third_order])
def test_derivatives(derivative, argnums):
    a, z = operands()
    found, expected = (jax.jit(derivative(f, argnums))(a, z) for f in (ours, plain))
    np.testing.assert_allclose(found, expected, atol=1e-10)


@pytest.mark.parametrize("axes", [(0, None), (None, 0), (0, 0)], ids=["matrices", "states", "both"])
@pytest.mark.parametrize("argnums", [0, 1], ids=["matrix", "state"])
def test_batches(axes, argnums):
    (a, z), (many_a, many_z) = operands(), operands(3)
    args = (many_a if axes[0] == 0 else a, many_z if axes[1] == 0 else z)
    found = jax.jit(jax.vmap(jax.grad(ours, argnums), axes))(*args)
    np.testing.assert_allclose(found, jax.jit(jax.vmap(jax.grad(plain, argnums), axes))(*args), atol=1e-12)


@pytest.mark.parametrize("argnums", [0, 1], ids=["matrix", "state"])
@pytest.mark.parametrize(("inner", "outer"), [((None, 0), (0, None)), ((0, None), (None, 0)), ((None, 0), (None, 0))])
def test_nested_batches(inner, outer, argnums):
    a = operands(3)[0] if 0 in (inner[0], outer[0]) else operands()[0]
    z = jnp.stack([operands(3)[1]] * 2) if inner[1] == outer[1] else operands(3)[1]
    f, g = (jax.jit(jax.vmap(jax.vmap(jax.grad(h, argnums), inner), outer)) for h in (ours, plain))
    np.testing.assert_allclose(f(a, z), g(a, z), atol=1e-12)


def test_one_matrix_with_many_states_is_one_product():
    a, z = operands()
    text = str(jax.make_jaxpr(jax.vmap(lambda z: Dense.of(a) @ z))(jnp.stack([z] * 7)))
    assert "f64[7,49]" in text


def test_a_batch_of_small_products_is_one_loop():
    a, z = jnp.ones((3, 5, 5)), jnp.ones((3, 5, 2))
    program = jax.jit(jax.vmap(lambda a, z: Dense.of(a).times_product(z)))
    assert "dot_general" not in program.lower(a, z).as_text()
    np.testing.assert_allclose(program(a, z), a @ z, atol=1e-12)


def test_gradients_of_small_products_are_loops_apart():
    a, z = jnp.ones((3, 8, 8)), jnp.ones((3, 8, 4))
    program = jax.jit(jax.grad(lambda z: jnp.sum(jnp.sin(jax.vmap(lambda a, z: Dense.of(a).times_product(z))(a, z)))))
    text = program.lower(z).compile().as_text()
    assert " dot(" not in text and " call(" in text


def test_one_matrix_with_a_batch_of_batches():
    a, z = operands()[0], jnp.moveaxis(operands(2, 3)[1], 1, 3)
    f, g = (
        jax.jit(jax.grad(lambda a, h=h: jnp.sum(jax.vmap(jax.vmap(h, (None, 2)), (None, 0))(a, z))))
        for h in (ours, plain)
    )
    np.testing.assert_allclose(f(a), g(a), atol=1e-12)


def test_two_bytes():
    a, z = (x.astype(jnp.bfloat16) for x in (jnp.ones((5, 5)), jnp.ones((3, 5, 2))))
    program = jax.jit(jax.vmap(lambda z: Dense.of(a).times_product(z)))
    assert "dot_general" in program.lower(z).as_text() and program(z).tolist() == (5 * z).tolist()


def test_shapes():
    a, _ = operands()
    assert (Dense.of(a) @ jnp.ones(8)).shape == (7,)
    assert (Dense.of(a) @ jnp.ones((8, 2, 3))).shape == (7, 2, 3)
    assert (Dense.of(a) @ jnp.ones((8, 0))).shape == (7, 0)
