"""Dense matrix times dense block, the transpose kept too: a batch of small ones is slow to transpose in a gradient."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.core import ShapedArray
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir
from jaxtyping import Array, Float


class Dense(eqx.Module):
    """A matrix and its transpose. Both are made from the same weights, so that every derivative finds its way back."""

    matrix: Float[Array, "*batch rows columns"]
    matrix_t: Float[Array, "*batch columns rows"]

    @staticmethod
    def of(matrix: Float[Array, "rows columns"]) -> "Dense":
        """The matrix with its transpose beside it."""
        return Dense(matrix, matrix.T)

    @property
    def T(self) -> "Dense":
        """The transpose, which costs nothing."""
        return Dense(self.matrix_t, self.matrix)

    def __matmul__(self, z: Float[Array, "columns *features"]) -> Float[Array, "rows *features"]:
        return self._times(z, unrolled=False)

    def times_product(self, z: Float[Array, "columns features"]) -> Float[Array, "rows features"]:
        """The same for a z that is itself a product, where `is_small`: one loop, for a batch of these too."""
        return self._times(z, unrolled=True)

    def _times(self, z: Array, *, unrolled: bool) -> Array:
        block = z.reshape(z.shape[0], -1) if z.size else z.reshape(z.shape[0], 0)
        out = _matmul_p.bind(self.matrix.astype(z.dtype), self.matrix_t.astype(z.dtype), block, unrolled=unrolled)
        return out.reshape(out.shape[0], *z.shape[1:])


# Operands of shapes (*batch, rows, columns), (*batch, columns, rows), (*batch, columns, features), with equal batches.
# The value depends on the first and the last; the second is used when transposing in the last. With `unrolled` it is a
# sum over columns: XLA calls a library for a product, and for a small one the call costs more than the work. Not so for
# a gradient, which comes out of a chain of other operations.
_matmul_p = Primitive("matmul_with_transpose")


# XLA's loop over a batch of small products does not vectorise over fewer features than this.
_LEAST_FEATURES = 16


def _value(matrix, matrix_t, z, *, unrolled):
    del matrix_t
    columns, features = z.shape[-2:]
    if unrolled and z.dtype.itemsize >= 4:  # a library adds up numbers of two bytes in four
        terms = [matrix[..., :, j, None] * z[..., None, j, :] for j in range(columns)]
        return sum(terms[1:], terms[0])
    if matrix.ndim == 2 or features >= _LEAST_FEATURES:
        return jnp.matmul(matrix, z)
    padding = [(0, 0)] * (z.ndim - 1) + [(0, _LEAST_FEATURES - features)]
    return jnp.matmul(matrix, jnp.pad(z, padding))[..., :features]


def _jvp(primals, tangents, *, unrolled):
    matrix, matrix_t, z = primals
    d_matrix, d_matrix_t, d_z = tangents
    out = _matmul_p.bind(matrix, matrix_t, z, unrolled=unrolled)
    terms = []
    if type(d_z) is not ad.Zero:
        terms.append(_matmul_p.bind(matrix, matrix_t, d_z, unrolled=False))
    if type(d_matrix) is not ad.Zero:
        terms.append(_matmul_p.bind(d_matrix, ad.instantiate_zeros(d_matrix_t), z, unrolled=False))
    if not terms:
        return out, ad.Zero(jax.typeof(out).to_tangent_aval())
    return out, sum(terms[1:], terms[0])


def _transpose(ct, matrix, matrix_t, z, *, unrolled):
    del unrolled
    zero = type(ct) is ad.Zero
    if ad.is_undefined_primal(z):
        return [None, None, ad.Zero(z.aval) if zero else _matmul_p.bind(matrix_t, matrix, ct, unrolled=False)]
    ct_matrix = ad.Zero(matrix.aval) if zero else jnp.matmul(ct, jnp.swapaxes(z, -1, -2))
    return [ct_matrix, ad.Zero(matrix_t.aval) if ad.is_undefined_primal(matrix_t) else None, None]


def _batch(operands, axes, *, unrolled):
    size = next(x.shape[a] for x, a in zip(operands, axes, strict=True) if a is not None)
    matrix, matrix_t, z = operands
    if axes[0] is None and axes[1] is None and matrix.ndim == 2:
        # One matrix, many states: the batch becomes features.
        z = jnp.moveaxis(z, axes[2], 1)
        out = _matmul_p.bind(matrix, matrix_t, z.reshape(z.shape[0], size * z.shape[2]), unrolled=False)
        return out.reshape(out.shape[0], size, z.shape[2]), 1
    moved = [
        jnp.broadcast_to(x, (size, *x.shape)) if a is None else jnp.moveaxis(x, a, 0)
        for x, a in zip(operands, axes, strict=True)
    ]
    return _matmul_p.bind(*moved, unrolled=unrolled), 0


_matmul_p.def_impl(jax.jit(_value, static_argnames="unrolled"))
_matmul_p.def_abstract_eval(
    lambda matrix, matrix_t, z, unrolled: ShapedArray((*matrix.shape[:-1], z.shape[-1]), z.dtype)
)
ad.primitive_jvps[_matmul_p] = _jvp
ad.primitive_transposes[_matmul_p] = _transpose
batching.primitive_batchers[_matmul_p] = _batch
mlir.register_lowering(_matmul_p, mlir.lower_fun(_value, multiple_results=False))
