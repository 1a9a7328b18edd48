"""Products as loops that XLA compiles: for small ones, calling a library takes longer than the work."""

from collections.abc import Callable
from typing import Any

import jax
from jax import lax
from jax.experimental.xla_metadata import set_xla_metadata
from jaxtyping import Array, Float


def as_loop(a: Float[Array, "*_ rows k"], b: Float[Array, "*_ k columns"]) -> Float[Array, "*_ rows columns"]:
    """The product a b, k > 0, as a sum of outer products; batches broadcast. Compiling it takes longer the larger k."""
    each = range(a.shape[-1])
    terms = [lax.slice_in_dim(a, k, k + 1, axis=-1) * lax.slice_in_dim(b, k, k + 1, axis=-2) for k in each]
    return sum(terms[1:], terms[0])


def keep_apart(compute: Callable[..., Array], *operands: Any) -> Array:
    """compute(*operands) as a call of its own, with operands and result in memory.

    XLA fuses loops, and one that reads an operand many times would compute that operand as many times. It removes
    `optimization_barrier` before it fuses; a call that it may not inline stays.
    """
    with set_xla_metadata(inlineable="false"):
        return jax.jit(compute)(*operands)
