"""Sparse matrix times dense block: one JAX primitive, by slices or a native kernel, differentiable to any order."""

import functools
import math

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.core import ShapedArray
from jax.experimental.sparse import BCSR
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir
from jaxtyping import Array, Float, Int

from .._errors import InputError
from ._slices import Slices


class Pattern(eqx.Module):
    """Where a sparse matrix is not zero: sorted by row, and sorted by column for products with the transpose."""

    indices: Int[Array, "*batch nnz"]
    indptr: Int[Array, "*batch row_starts"]
    rows: Int[Array, "*batch nnz"]
    indices_t: Int[Array, "*batch nnz"]
    indptr_t: Int[Array, "*batch column_starts"]
    rows_t: Int[Array, "*batch nnz"]
    shape: tuple[int, int] = eqx.field(static=True)

    @property
    def T(self) -> "Pattern":
        rows, columns = self.shape
        return Pattern(
            self.indices_t, self.indptr_t, self.rows_t, self.indices, self.indptr, self.rows, (columns, rows)
        )


class CSR(eqx.Module):
    """A sparse matrix that carries its values in both orders, so that a gradient costs what the product costs.

    It may carry itself and its transpose in slices, too, made from the same values.
    """

    data: Float[Array, "*batch nnz"]
    data_t: Float[Array, "*batch nnz"]
    pattern: Pattern
    slices: Slices | None = None
    slices_t: Slices | None = None

    @property
    def T(self) -> "CSR":
        return CSR(self.data_t, self.data, self.pattern.T, self.slices_t, self.slices)

    def __matmul__(self, z: Float[Array, "columns *features"]) -> Float[Array, "rows *features"]:
        p = self.pattern
        block = z.reshape(z.shape[0], math.prod(z.shape[1:]))
        slices, tree = jax.tree.flatten((self.slices, self.slices_t))
        out = _csr_matmul_p.bind(
            self.data.astype(z.dtype),
            self.data_t.astype(z.dtype),
            block,
            p.indices,
            p.indptr,
            p.rows,
            p.indices_t,
            p.indptr_t,
            p.rows_t,
            *(a.astype(z.dtype) if jnp.issubdtype(a.dtype, jnp.floating) else a for a in slices),
            shape=p.shape,
            slices=tree,
        )
        return out.reshape(p.shape[0], *z.shape[1:])


# Operands: data, data_t, z, the six arrays of a Pattern, then those of the slices, if any. The value depends on `data`
# and `z` only; `data_t` is the same matrix in column order and is used when transposing in z. Callers make `data_t`
# from `data` by a permutation, so that a second derivative that reaches `data_t` finds its way back to the weights.
# Slices, where there are any, must be copies of `data`: they are what is multiplied, but derivatives go by `data`.
_csr_matmul_p = Primitive("csr_matmul")
_NO_SLICES = jax.tree.structure((None, None))


def _value(data, data_t, z, indices, indptr, rows, indices_t, indptr_t, rows_t, *copies, shape, slices):
    del data_t, rows, indices_t, indptr_t, rows_t
    own, _ = jax.tree.unflatten(slices, copies)
    if own is not None:
        return own @ z
    if data.shape[0] == 0:
        return jnp.zeros((shape[0], z.shape[1]), z.dtype)
    return BCSR((data, indices, indptr), shape=shape, indices_sorted=True, unique_indices=False) @ z


def _jvp(primals, tangents, *, shape, slices):
    data, data_t, z, *rest = primals
    d_data, d_data_t, d_z, *_ = tangents
    bind = functools.partial(_csr_matmul_p.bind, shape=shape)
    out = bind(data, data_t, z, *rest, slices=slices)
    terms = []
    if type(d_z) is not ad.Zero:
        terms.append(bind(data, data_t, d_z, *rest, slices=slices))
    if type(d_data) is not ad.Zero:
        terms.append(bind(d_data, ad.instantiate_zeros(d_data_t), z, *rest[:6], slices=_NO_SLICES))
    if not terms:
        return out, ad.Zero(jax.typeof(out).to_tangent_aval())
    return out, sum(terms[1:], terms[0])


def _transpose(ct, data, data_t, z, *rest, shape, slices):
    indices, indptr, rows, indices_t, indptr_t, rows_t, *copies = rest
    nothing = [None] * len(rest)
    if ad.is_undefined_primal(z):
        own, transposed = jax.tree.unflatten(slices, copies)
        copies, slices = jax.tree.flatten((transposed, own))
        swapped = (indices_t, indptr_t, rows_t, indices, indptr, rows, *copies)
        ct_z = (
            ad.Zero(z.aval)
            if type(ct) is ad.Zero
            else _csr_matmul_p.bind(data_t, data, ct, *swapped, shape=shape[::-1], slices=slices)
        )
        return [None, None, ct_z, *nothing]
    ct_data = ad.Zero(data.aval) if type(ct) is ad.Zero else jnp.sum(ct[rows] * z[indices], axis=-1)
    ct_data_t = ad.Zero(data_t.aval) if ad.is_undefined_primal(data_t) else None
    return [ct_data, ct_data_t, None, *nothing]


def _batch(operands, axes, *, shape, slices):
    size = next(x.shape[a] for x, a in zip(operands, axes, strict=True) if a is not None)
    if all(a is None for i, a in enumerate(axes) if i != 2):
        # One matrix, many states: the batch becomes features, and the matrix is read once.
        z = jnp.moveaxis(operands[2], axes[2], 1)
        block = z.reshape(z.shape[0], size * z.shape[2])
        out = _csr_matmul_p.bind(*operands[:2], block, *operands[3:], shape=shape, slices=slices)
        # The batch goes back to the front: products with batched weights are slow on any other axis.
        return jnp.moveaxis(out.reshape(shape[0], size, z.shape[2]), 1, 0), 0
    # Many matrices: one block-diagonal matrix.
    data, data_t, z, indices, indptr, rows, indices_t, indptr_t, rows_t = (
        jnp.broadcast_to(x, (size, *x.shape)) if a is None else jnp.moveaxis(x, a, 0)
        for x, a in zip(operands[:9], axes[:9], strict=True)
    )
    n_rows, n_columns = shape
    nnz = data.shape[1]
    if size * max(nnz, n_rows, n_columns) > jnp.iinfo(indices.dtype).max:
        raise InputError(
            f"a batch of {size} sparse matrices of {n_rows} x {n_columns} with {nnz} entries does not fit in int32. "
            "Use smaller batches, or one matrix for all."
        )

    def shift(x, by):
        return (x + by * jnp.arange(size, dtype=x.dtype)[:, None]).reshape(-1)

    def shift_indptr(x):
        return jnp.append(shift(x[:, :-1], nnz), jnp.asarray(size * nnz, x.dtype))

    out = _csr_matmul_p.bind(
        data.reshape(-1),
        data_t.reshape(-1),
        z.reshape(size * n_columns, z.shape[2]),
        shift(indices, n_columns),
        shift_indptr(indptr),
        shift(rows, n_rows),
        shift(indices_t, n_rows),
        shift_indptr(indptr_t),
        shift(rows_t, n_columns),
        shape=(size * n_rows, size * n_columns),
        slices=_NO_SLICES,
    )
    return out.reshape(size, n_rows, z.shape[2]), 0


_csr_matmul_p.def_impl(jax.jit(_value, static_argnames=("shape", "slices")))
_csr_matmul_p.def_abstract_eval(lambda data, data_t, z, *_, shape, slices: ShapedArray((shape[0], z.shape[1]), z.dtype))
ad.primitive_jvps[_csr_matmul_p] = _jvp
ad.primitive_transposes[_csr_matmul_p] = _transpose
batching.primitive_batchers[_csr_matmul_p] = _batch
mlir.register_lowering(_csr_matmul_p, mlir.lower_fun(_value, multiple_results=False))
