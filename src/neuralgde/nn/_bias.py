"""A bias added to every node: z + b as a primitive, which under `vmap` leaves the samples on the axis they have.

JAX's own sum with a row moves them to the front, and the products with a graph that many samples share move them back.
"""

import jax
import jax.numpy as jnp
from jax.core import ShapedArray
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir
from jaxtyping import Array, Float


def add_bias(z: Float[Array, "nodes out"], bias: Float[Array, " out"] | None) -> Float[Array, "nodes out"]:
    """Each row of z plus the bias, where there is one."""
    return z if bias is None else _add_bias_p.bind(z, bias.astype(z.dtype))


# Operands of shapes (*rows, out) and (out,).
_add_bias_p = Primitive("add_bias")


def _value(z, bias):
    return z + jnp.broadcast_to(bias, z.shape)


def _jvp(primals, tangents):
    z, bias = primals
    d_z, d_bias = tangents
    out = _add_bias_p.bind(z, bias)
    if type(d_z) is ad.Zero and type(d_bias) is ad.Zero:
        return out, ad.Zero(jax.typeof(out).to_tangent_aval())
    if type(d_bias) is ad.Zero:
        return out, d_z
    return out, _add_bias_p.bind(ad.instantiate_zeros(d_z), d_bias)


def _transpose(ct, z, bias):
    ct_z = ct if ad.is_undefined_primal(z) else None
    if not ad.is_undefined_primal(bias):
        return [ct_z, None]
    if type(ct) is ad.Zero:
        return [ct_z, ad.Zero(bias.aval)]
    return [ct_z, jnp.sum(ct, axis=tuple(range(ct.ndim - 1)))]


def _batch(operands, axes):
    z, bias = operands
    if axes[1] is None:
        # The features stay last.
        last = axes[0] == z.ndim - 1
        return _add_bias_p.bind(jnp.moveaxis(z, -1, 0) if last else z, bias), 0 if last else axes[0]
    size = bias.shape[axes[1]]
    z = jnp.broadcast_to(z, (size, *z.shape)) if axes[0] is None else jnp.moveaxis(z, axes[0], 0)
    bias = jnp.moveaxis(bias, axes[1], 0)
    return z + jnp.broadcast_to(bias.reshape(size, *[1] * (z.ndim - 2), -1), z.shape), 0


_add_bias_p.def_impl(jax.jit(_value))
_add_bias_p.def_abstract_eval(lambda z, bias: ShapedArray(z.shape, z.dtype))
ad.primitive_jvps[_add_bias_p] = _jvp
ad.primitive_transposes[_add_bias_p] = _transpose
batching.primitive_batchers[_add_bias_p] = _batch
mlir.register_lowering(_add_bias_p, mlir.lower_fun(_value, multiple_results=False))
