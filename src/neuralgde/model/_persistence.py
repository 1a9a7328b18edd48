"""Persistence: the baseline that stands still."""

from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float

from ..graph import Graph


def persistence(
    x: Float[Array, "*batch nodes features"],
    times: ArrayLike | Sequence[float],
    graph: Graph | None = None,
) -> Float[Array, "*batch times nodes features"]:
    """The last state seen, at all times."""
    del graph
    return jnp.repeat(x[..., None, :, :], np.shape(times)[-1], axis=-3)
