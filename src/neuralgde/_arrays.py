"""Arrays from the host to the device."""

from typing import Any

import jax
import numpy as np
from jaxtyping import Array


def on_device(a: Any, dtype: Any = None) -> Array:
    """A copy of what NumPy can read, as an array of JAX, in its default precision unless `dtype` says otherwise.

    `jnp.asarray` compiles a program for every new shape, and without a copy the device may go on reading memory that
    its owner changes.
    """
    return jax.device_put(np.array(a, dtype))
