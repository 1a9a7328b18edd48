"""Rows times a weight: values and derivatives are those of the plain product, and samples become rows."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from neuralgde.graph._rows import times_weight

pytestmark = pytest.mark.usefixtures("x64")


def operands(*batch, rows=16, features=3):
    rng = np.random.default_rng(0)
    return tuple(jnp.asarray(rng.standard_normal((*batch, *shape))) for shape in ((rows, features), (features, 8)))


# Features of a product that is a loop, and of one for a library.
sizes = pytest.mark.parametrize("features", [3, 40], ids=["loop", "library"])


def loss(product):
    return lambda z, w: jnp.sum(jnp.sin(product(jnp.tanh(product(z, w)), w.T)))


ours, plain = loss(times_weight), loss(jnp.matmul)


def assert_close(of, *operands):
    """What `of` makes of our product and of the plain one, in one program."""
    found, expected = jax.jit(lambda *a: [of(f)(*a) for f in (ours, plain)])(*operands)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-12), found, expected)


@pytest.mark.parametrize("derivative", [jax.grad, jax.jacfwd, jax.hessian])
@pytest.mark.parametrize("rows", [16, 20], ids=["few rows", "many"])
@sizes
def test_derivatives(derivative, rows, features):
    """In the state, in the weight and in both."""

    def of(f):
        return lambda *a: [derivative(f, argnums)(*a) for argnums in (0, 1, (0, 1))]

    assert_close(of, *operands(rows=rows, features=features))


@pytest.mark.parametrize("axes", [(0, None), (1, None), (2, None), (None, 0), (1, 2), (0, 0)])
def test_batches(axes):
    """Over one axis, and over another one of states around it, as seeds are."""
    one, many = operands(), operands(5)
    z, w = (a if axis is None else np.moveaxis(b, 0, axis) for a, b, axis in zip(one, many, axes, strict=True))

    def of(f):
        def total(z, w):
            return jnp.sum(jax.vmap(f, axes)(z, w))

        around = jax.vmap(jax.grad(total, (0, 1)))
        return lambda z, w: (
            jax.vmap(jax.grad(f, (0, 1)), axes)(z, w),
            around(jnp.stack([z, 2 * z]), jnp.stack([w, 3 * w])),
        )

    assert_close(of, z, w)


@sizes
def test_states_around_weights(features):
    """Many weights inside, many states outside: the states of each weight are rows."""
    (z, _), (_, w) = operands(3, features=features), operands(5, features=features)
    assert_close(lambda f: jax.vmap(jax.vmap(jax.grad(f, (0, 1)), (None, 0)), (0, None)), z, w)


@sizes
def test_small_products_are_loops(features):
    program = jax.jit(lambda z, w: jnp.sin(times_weight(jnp.cos(z), w))).lower(*operands(features=features))
    assert ("dot_general" in program.as_text()) == (features == 40)
    # XLA leaves the loop apart.
    assert (" call(" in program.compile().as_text()) == (features == 3)


def test_two_bytes():
    z, w = (a.astype(jnp.bfloat16) for a in operands())
    assert times_weight(z, w).dtype == jnp.bfloat16 and "dot_general" in jax.jit(times_weight).lower(z, w).as_text()


def test_samples_are_rows():
    z, w = jnp.ones((4, 5, 3)), jnp.ones((3, 2))
    total = jax.grad(lambda w: jnp.sum(jax.vmap(times_weight, (1, None), 1)(z, w)))
    program = jax.jit(total).lower(w).as_text()
    assert "tensor<20x3xf64>" in program and total(w).tolist() == [[20.0] * 2] * 3


def test_shapes_and_dtypes():
    assert times_weight(jnp.ones((0, 3)), jnp.ones((3, 2))).shape == (0, 2)
    assert times_weight(jnp.ones((4, 0)), jnp.ones((0, 2))).tolist() == [[0.0, 0.0]] * 4
    with pytest.raises(Exception, match="promotion"):
        times_weight(jnp.ones((4, 3), jnp.float32), jnp.ones((3, 2)))
