"""Dense matrix times dense block, the transpose kept too: a batch of small ones is slow to transpose in a gradient."""

from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.core import ShapedArray
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir
from jaxtyping import Array, Float

from ._layout import WORTH_COMPILING, is_small_shared
from ._loop import as_loop, keep_apart

# How to multiply: by a library; in a loop that fuses with what comes before and behind; in a loop kept apart from both.
Way = Literal["library", "loop", "apart"]


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
        return self._times(z, way="library")

    def times_product(self, z: Float[Array, "columns features"]) -> Float[Array, "rows features"]:
        """The same for a z that is itself a product, where `is_small`: one loop, for a batch of these too."""
        return self._times(z, way="loop")

    def _times(self, z: Array, *, way: Way) -> Array:
        if z.dtype.itemsize < 4:
            way = "library"  # which adds up numbers of two bytes in four
        block = z.reshape(z.shape[0], -1) if z.size else z.reshape(z.shape[0], 0)
        out = _matmul_p.bind(self.matrix.astype(z.dtype), self.matrix_t.astype(z.dtype), block, way=way)
        return out.reshape(out.shape[0], *z.shape[1:])


# Operands of shapes (*batch, rows, columns), (*batch, columns, rows), (*batch, columns, features); the matrices are
# without a batch where one serves all. The value depends on the first and the last; the second is used when transposing
# in the last. A loop is a sum over columns: XLA calls a library for a product, and for a small one the call costs more
# than the work. A gradient comes out of a chain of other operations, from which its loop is kept apart.
_matmul_p = Primitive("matmul_with_transpose")


# XLA's loop over a batch of small products does not vectorise over fewer features than this.
_LEAST_FEATURES = 16


def _value_on_cpu(matrix, matrix_t, z, *, way):
    if way == "library":
        return _value(matrix, matrix_t, z, way=way)
    return keep_apart(as_loop, matrix, z) if way == "apart" else as_loop(matrix, z)


def _value(matrix, matrix_t, z, *, way):
    del matrix_t, way
    features = z.shape[-1]
    if matrix.ndim == 2 or features >= _LEAST_FEATURES:
        return jnp.matmul(matrix, z)
    padding = [(0, 0)] * (z.ndim - 1) + [(0, _LEAST_FEATURES - features)]
    return jnp.matmul(matrix, jnp.pad(z, padding))[..., :features]


def _jvp(primals, tangents, *, way):
    matrix, matrix_t, z = primals
    d_matrix, d_matrix_t, d_z = tangents
    out = _matmul_p.bind(matrix, matrix_t, z, way=way)
    terms = []
    if type(d_z) is not ad.Zero:
        terms.append(_matmul_p.bind(matrix, matrix_t, d_z, way=_behind(way, matrix, d_z)))
    if type(d_matrix) is not ad.Zero:
        terms.append(_matmul_p.bind(d_matrix, ad.instantiate_zeros(d_matrix_t), z, way="library"))
    if not terms:
        return out, ad.Zero(jax.typeof(out).to_tangent_aval())
    return out, sum(terms[1:], terms[0])


def _transpose(ct, matrix, matrix_t, z, *, way):
    zero = type(ct) is ad.Zero
    if ad.is_undefined_primal(z):
        if zero:
            return [None, None, ad.Zero(z.aval)]
        return [None, None, _matmul_p.bind(matrix_t, matrix, ct, way=_behind(way, matrix_t, ct))]
    ct_matrix_t = ad.Zero(matrix_t.aval) if ad.is_undefined_primal(matrix_t) else None
    if zero:
        return [ad.Zero(matrix.aval), ct_matrix_t, None]
    if matrix.aval.ndim == 2:
        summed = (*range(ct.ndim - 2), -1)
        return [jnp.tensordot(ct, z, (summed, summed)), ct_matrix_t, None]
    return [jnp.matmul(ct, jnp.swapaxes(z, -1, -2)), ct_matrix_t, None]


def _behind(way: Way, matrix, z) -> Way:
    """How to multiply what is only now computed, as tangents and gradients are."""
    return "apart" if way != "library" and matrix.shape[-2] * z.size >= WORTH_COMPILING else "library"


def _batch(operands, axes, *, way):
    size = next(x.shape[a] for x, a in zip(operands, axes, strict=True) if a is not None)
    matrix, matrix_t, z = operands
    if axes[0] is None and axes[1] is None and matrix.ndim == 2:
        # One matrix, many states.
        z = jnp.moveaxis(z, axes[2], 0)
        *_, columns, features = z.shape
        if z.ndim > 3 or (way != "library" and is_small_shared(columns, features)):
            return _matmul_p.bind(matrix, matrix_t, z, way=way), 0
        # The batch becomes features.
        block = jnp.moveaxis(z, 0, 1).reshape(columns, size * features)
        out = _matmul_p.bind(matrix, matrix_t, block, way="library")
        return out.reshape(out.shape[0], size, features), 1
    matrix, matrix_t, z = (
        jnp.broadcast_to(x, (size, *x.shape)) if a is None else jnp.moveaxis(x, a, 0)
        for x, a in zip(operands, axes, strict=True)
    )
    # One matrix served a batch, and is now one of many.
    between = range(1, 1 + z.ndim - matrix.ndim)
    matrix, matrix_t = (
        jnp.broadcast_to(jnp.expand_dims(m, between), (*z.shape[:-2], *m.shape[-2:])) for m in (matrix, matrix_t)
    )
    return _matmul_p.bind(matrix, matrix_t, z, way=way), 0


_matmul_p.def_impl(jax.jit(_matmul_p.bind, static_argnames="way"))
_matmul_p.def_abstract_eval(
    lambda matrix, matrix_t, z, way: ShapedArray((*z.shape[:-2], matrix.shape[-2], z.shape[-1]), z.dtype)
)
ad.primitive_jvps[_matmul_p] = _jvp
ad.primitive_transposes[_matmul_p] = _transpose
batching.primitive_batchers[_matmul_p] = _batch
mlir.register_lowering(_matmul_p, mlir.lower_fun(_value, multiple_results=False))
mlir.register_lowering(_matmul_p, mlir.lower_fun(_value_on_cpu, multiple_results=False), platform="cpu")
