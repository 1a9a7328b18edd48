"""Rows times a weight: z W as a primitive, which under `vmap` makes the samples rows of one product.

JAX's own contracts nodes and samples as two axes in the gradient of the weight, for which XLA copies the states.
"""

import math

import jax
import jax.numpy as jnp
from jax.core import ShapedArray
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir
from jaxtyping import Array, Float

from ._layout import is_tiny
from ._loop import as_loop, keep_apart


def times_weight(z: Float[Array, "nodes in"], weight: Float[Array, "in out"]) -> Float[Array, "nodes out"]:
    """The product z W, of any dtypes."""
    return _times_p.bind(z, weight) if z.dtype == weight.dtype else z @ weight


# Operands of shapes (*batch, *rows, in) and (*batch, in, out): one weight for all, or with a batch one for each.
_times_p = Primitive("times_weight")


def _rows(z, weight):
    batch = weight.shape[:-2]
    return z.reshape(*batch, math.prod(z.shape[len(batch) : -1]), z.shape[-1])


def _value(z, weight):
    return jnp.matmul(_rows(z, weight), weight).reshape(*z.shape[:-1], weight.shape[-1])


def _value_on_cpu(z, weight):
    out_size = weight.shape[-1]
    if z.dtype.itemsize < 4 or not is_tiny(z.shape[-1], z.size * out_size):
        return _value(z, weight)
    return keep_apart(as_loop, _rows(z, weight), weight).reshape(*z.shape[:-1], out_size)


def _jvp(primals, tangents):
    z, weight = primals
    d_z, d_weight = tangents
    out = _times_p.bind(z, weight)
    terms = []
    if type(d_z) is not ad.Zero:
        terms.append(_times_p.bind(d_z, weight))
    if type(d_weight) is not ad.Zero:
        terms.append(_times_p.bind(z, d_weight))
    if not terms:
        return out, ad.Zero(jax.typeof(out).to_tangent_aval())
    return out, sum(terms[1:], terms[0])


def _transpose(ct, z, weight):
    zero = type(ct) is ad.Zero
    if ad.is_undefined_primal(z):
        return [ad.Zero(z.aval) if zero else _times_p.bind(ct, jnp.swapaxes(weight, -1, -2)), None]
    if zero:
        return [None, ad.Zero(weight.aval)]
    return [None, _sum_of_outer(_rows(z, weight.aval), _rows(ct, weight.aval))]


def _sum_of_outer(z, ct):
    """z^T ct. Few rows are added one by one, in a loop that fuses: a product of that size is mostly its call."""
    rows, size = z.shape[-2], z.shape[-1] * ct.shape[-1]
    small = 0 < rows <= 16 and size <= 1024 and z.dtype.itemsize >= 4
    return (as_loop if small else jnp.matmul)(jnp.swapaxes(z, -1, -2), ct)


def _batch(operands, axes):
    (z, weight), (axis, of_weight) = operands, axes
    if of_weight is None:
        # Behind what the weights are batched over, and before the features.
        at = min(max(axis, weight.ndim - 2), z.ndim - 2)
        return _times_p.bind(jnp.moveaxis(z, axis, at), weight), at
    weight = jnp.moveaxis(weight, of_weight, 0)
    z = jnp.broadcast_to(z, (weight.shape[0], *z.shape)) if axis is None else jnp.moveaxis(z, axis, 0)
    return _times_p.bind(z, weight), 0


_times_p.def_impl(jax.jit(_times_p.bind))
_times_p.def_abstract_eval(lambda z, weight: ShapedArray((*z.shape[:-1], weight.shape[-1]), z.dtype))
ad.primitive_jvps[_times_p] = _jvp
ad.primitive_transposes[_times_p] = _transpose
batching.primitive_batchers[_times_p] = _batch
mlir.register_lowering(_times_p, mlir.lower_fun(_value, multiple_results=False))
mlir.register_lowering(_times_p, mlir.lower_fun(_value_on_cpu, multiple_results=False), platform="cpu")
