"""Arrays from the host to the device, and rows of many arrays, without a program for each."""

from typing import Any

import jax
import numpy as np
from jaxtyping import Array

from ._errors import InputError


def on_device(a: Any, dtype: Any = None) -> Array:
    """A copy of what NumPy can read, in its own dtype or the one given, in 32 bits unless jax_enable_x64 is on.

    `jnp.asarray` compiles a program for every new shape, and without a copy the device may go on reading memory that
    its owner changes.
    """
    if isinstance(a, np.ma.MaskedArray):
        raise InputError("a masked array: expected a plain one. Fill what is masked, with a.filled(nan) for instance.")
    return jax.device_put(np.array(a, dtype))


@jax.jit
def row(arrays: Any, k: Any) -> Any:
    """a[k] of each array a, where k may be a tuple; one program serves all of them, and every k."""
    return jax.tree.map(lambda a: a[k], arrays)
