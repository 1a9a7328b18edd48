"""The sparse product as a primitive: values and derivatives of any order equal those of a dense matrix."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

from neuralgde import Graph, InputError
from neuralgde.graph._csr import CSR, Pattern
from products import dense, nonlinear

# Rows of different lengths, an empty row and an empty column, a duplicate, a self loop.
SENDERS = np.array([0, 1, 2, 2, 3, 3, 0])
RECEIVERS = np.array([1, 2, 1, 2, 0, 0, 3])
NODES = 5


@pytest.fixture(autouse=True)
def in_float64(x64):
    yield


def structure(senders=SENDERS, receivers=RECEIVERS, n=NODES):
    return Graph.from_edges(senders, receivers, num_nodes=n, layout="csr").structure


def sparse(w, z, s):
    return s.csr(w) @ z


def normal(seed, *shape):
    return jnp.asarray(np.random.default_rng(seed).standard_normal(shape))


with jax.enable_x64(True):
    W, Z = normal(0, 7), normal(1, NODES, 2)
    WS, ZS = normal(2, 2, 7), normal(3, 2, NODES, 2)

TRANSFORMS = {
    "value": lambda f: f,
    "jvp": lambda f: lambda w, z: jax.jvp(f, (w, z), (jnp.cos(w), jnp.sin(z))),
    "jvp in z": lambda f: lambda w, z: jax.jvp(lambda z: f(w, z), (z,), (jnp.sin(z),)),
    "jvp in w": lambda f: lambda w, z: jax.jvp(lambda w: f(w, z), (w,), (jnp.cos(w),)),
    "vjp": lambda f: lambda w, z: jax.vjp(f, w, z)[1](jnp.arange(10.0).reshape(5, 2)),
    "jacrev": lambda f: jax.jacrev(f, (0, 1)),
    "jacfwd": lambda f: jax.jacfwd(f, (0, 1)),
}


def assert_trees_close(a, b, **kwargs):
    jax.tree.map(functools.partial(np.testing.assert_allclose, **kwargs), a, b)


def of_both(make, *operands):
    """`make(product)(*operands)` for the sparse and the dense product, in one program."""
    return jax.jit(lambda *a: [make(product)(*a) for product in (sparse, dense)])(*operands)


@pytest.mark.parametrize("transform", TRANSFORMS)
def test_first_order(transform):
    s = structure()
    results = of_both(lambda product: TRANSFORMS[transform](lambda w, z: product(w, z, s)), W, Z)
    assert_trees_close(*results, atol=1e-12)
    assert any(np.any(x) for x in jax.tree.leaves(results))


@pytest.mark.parametrize("outer", [jax.jacfwd, jax.jacrev])
@pytest.mark.parametrize("inner", [jax.jacfwd, jax.jacrev])
def test_hessian_in_states_and_weights(outer, inner):
    s = structure()

    def hessian(product):
        return outer(inner(lambda w, z: nonlinear(product)(w, z, s), (0, 1)), (0, 1))

    assert_trees_close(*of_both(hessian, W, Z), atol=1e-11)


@pytest.mark.parametrize("modes", ["rrr", "frf"])
def test_third_order(modes):
    s = structure()

    def third(product):
        def f(x):
            return nonlinear(product)(x[:7], x[7:].reshape(5, 2), s)

        for mode in modes:
            f = {"r": jax.jacrev, "f": jax.jacfwd}[mode](f)
        return f

    np.testing.assert_allclose(*of_both(third, jnp.concatenate([W, Z.ravel()])), atol=1e-10)


def test_finite_differences():
    s = structure()
    check_grads(jax.jit(lambda w, z: nonlinear(sparse)(w, z, s)), (W, Z), order=2, rtol=1e-5)


def test_transposed_in_states():
    s = structure()
    transpose = jax.linear_transpose(lambda z: sparse(W, z, s), Z)
    expected = jax.linear_transpose(lambda z: dense(W, z, s), Z)
    (back,), (dense_back,) = transpose(Z), expected(Z)
    np.testing.assert_allclose(back, dense_back, atol=1e-12)
    np.testing.assert_allclose(s.csr(W).T @ Z, back, atol=1e-12)
    np.testing.assert_allclose(s.csr(W).T.T @ Z, sparse(W, Z, s), atol=1e-12)


def test_transposed_in_weights():
    s = structure()
    (back,), (expected,) = (
        jax.linear_transpose(lambda w, product=product: product(w, Z, s), W)(Z) for product in (sparse, dense)
    )
    np.testing.assert_allclose(back, expected, atol=1e-12)


def test_gradient_in_states_is_one_product_with_the_stored_transpose():
    s = structure()
    program = str(jax.make_jaxpr(lambda w, z: jax.vjp(lambda z: sparse(w, z, s), z)[1](z))(W, Z))
    assert program.count("csr_matmul") == 2
    assert "scatter" not in program


def test_values_in_column_order_alone_change_nothing():
    csr = structure().csr(W)
    out, tangent = jax.jvp(lambda x: CSR(csr.data, x * csr.data_t, csr.pattern) @ Z, (2.0,), (1.0,))
    np.testing.assert_allclose(out, csr @ Z)
    assert not tangent.any()


# Batches: which of weights, states and structure have a batch axis, and where.
OTHER = (np.array([4, 1, 0, 2, 3, 4, 4]), np.array([4, 4, 2, 0, 0, 1, 1]))


def structures():
    return jax.tree.map(lambda *a: jnp.asarray(np.stack(a)), structure(), structure(*OTHER))


BATCHES = {
    "states": (W, ZS, structure, (None, 0, None)),
    "states, last axis": (W, ZS.transpose(1, 2, 0), structure, (None, 2, None)),
    "weights": (WS, Z, structure, (0, None, None)),
    "weights, last axis": (WS.T, Z, structure, (1, None, None)),
    "weights and states": (WS, ZS.transpose(1, 2, 0), structure, (0, 2, None)),
    "structures": (W, Z, structures, (None, None, 0)),
    "structures and states": (W, ZS, structures, (None, 0, 0)),
    "all": (WS, ZS, structures, (0, 0, 0)),
}


@pytest.mark.parametrize("case", BATCHES)
def test_batches(case):
    w, z, make, axes = BATCHES[case]

    def of(product):
        def f(w, z, s):
            return product(w, z, s), jax.grad(nonlinear(product), (0, 1))(w, z, s)

        return jax.vmap(f, axes)

    assert_trees_close(*of_both(of, w, z, make()), atol=1e-11)


def test_hessians_of_a_batch():
    hessians = of_both(lambda product: jax.vmap(jax.hessian(nonlinear(product), (0, 1))), WS, ZS, structures())
    assert_trees_close(*hessians, atol=1e-11)


@pytest.mark.parametrize("axes", [(None, 0, None), (0, 0, None), (0, None, 0)], ids=["states", "weights", "structures"])
def test_nested_batches(axes):
    """Structures in the inner batch; states, or all again, in the outer one."""
    double = functools.partial(jax.tree.map, lambda a: np.stack([a, np.flip(a, 0)]))
    arguments = [double(a) if axis == 0 else a for a, axis in zip((WS, ZS, structures()), axes, strict=True)]
    results = of_both(
        lambda product: jax.vmap(jax.vmap(jax.value_and_grad(nonlinear(product), (0, 1))), axes), *arguments
    )
    assert_trees_close(*results, atol=1e-11)


def test_gradient_of_a_batch_shares_one_matrix():
    s = structure()
    program = str(jax.make_jaxpr(jax.vmap(lambda z: jax.grad(lambda z: jnp.sum(sparse(W, z, s) ** 2))(z)))(ZS))
    assert program.count("csr_matmul") == 2
    assert f"f64[{NODES},4] = csr_matmul" in program  # a batch of 2 x 2 features


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_dtype_of_the_states_rules(dtype):
    s = structure()
    z = Z.astype(dtype)
    value, (dw, dz) = jax.value_and_grad(lambda w, z: jnp.sum(sparse(w, z, s) ** 2), (0, 1))(W, z)
    assert (value.dtype, dw.dtype, dz.dtype) == (dtype, jnp.float64, dtype)
    expected = jax.grad(lambda z: jnp.sum(dense(W, z, s) ** 2))(Z)
    np.testing.assert_allclose(dz, expected, rtol=1e-5 if dtype == jnp.float32 else 1e-12)


@pytest.mark.parametrize("n", [0, 4])
@pytest.mark.parametrize("features", [0, 3])
def test_nothing_stored(n, features):
    s = structure(np.array([], int), np.array([], int), n)
    w, z = jnp.ones(0), jnp.ones((n, features))
    out, back = jax.vjp(lambda w, z: sparse(w, z, s), w, z)
    assert out.shape == (n, features) and not out.any()
    dw, dz = back(out)
    assert dw.shape == (0,) and dz.shape == (n, features)
    batched = jax.vmap(sparse, (0, 0, None))(jnp.ones((2, 0)), jnp.ones((2, n, features)), s)
    assert batched.shape == (2, n, features)


@pytest.mark.parametrize("shape", [(), (3,), (2, 3)])
def test_trailing_shapes(shape):
    s = structure()
    z = normal(4, NODES, *shape)
    expected = np.tensordot(dense(W, jnp.eye(NODES), s), z, 1)
    np.testing.assert_allclose(sparse(W, z, s), expected, atol=1e-12)


def test_rectangular():
    s = structure()
    into = s.into_receivers(jnp.asarray(RECEIVERS, jnp.int32), jnp.float64)
    m = normal(5, 7, 2)
    expected = np.zeros((NODES, 2))
    np.add.at(expected, RECEIVERS, np.asarray(m))
    np.testing.assert_allclose(into @ m, expected, atol=1e-12)
    np.testing.assert_allclose(into.T @ Z, np.asarray(Z)[RECEIVERS])


def test_second_derivatives_of_batches_of_rectangular_matrices():
    """Weighted edge values summed at the ends of each graph's own edges: matrices of nodes x edges."""
    ends = jnp.asarray(np.stack([RECEIVERS, OTHER[1]]), jnp.int32)
    m, both = normal(6, 2, 7, 2), structures()

    def by_sparse(w, m, s, ends):
        pattern = s.into_receivers(ends, w.dtype).pattern
        return CSR(w[s.by_receiver], w, pattern) @ m

    def by_segments(w, m, s, ends):
        return jax.ops.segment_sum(w[:, None] * m, ends, NODES)

    results = []
    for product in (by_sparse, by_segments):
        # The gradient of a batch, not a batch of gradients: here batched products are transposed.
        def loss(w, m, product=product):
            return jnp.sum(jnp.sin(jax.vmap(product)(w, m, both, ends)))

        def bent(w, m, loss=loss):
            return sum(jnp.sum(g**3) for g in jax.grad(loss, (0, 1))(w, m))

        results.append(
            jax.jit(lambda w, m, f=loss, g=bent: (jax.grad(f, (0, 1))(w, m), jax.grad(g, (0, 1))(w, m)))(WS, m)
        )
    assert_trees_close(*results, atol=1e-11)


def test_a_batch_past_int32_is_refused():
    nnz, n, size = 40_000, 10, 70_000
    shapes = [(nnz,), (n + 1,), (nnz,)] * 2

    def product(data, z, *arrays):
        return CSR(data, data, Pattern(*arrays, shape=(n, n))) @ z

    arrays = [jax.ShapeDtypeStruct(shape, jnp.int32) for shape in shapes]
    data, z = jax.ShapeDtypeStruct((size, nnz), jnp.float32), jax.ShapeDtypeStruct((n, 1), jnp.float32)
    with pytest.raises(InputError, match="does not fit in int32"):
        jax.eval_shape(jax.vmap(product, (0, *[None] * 7)), data, z, *arrays)
