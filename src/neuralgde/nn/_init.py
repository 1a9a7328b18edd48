"""Initial values of weights."""

import jax
from jaxtyping import Array, Float, PRNGKeyArray


def glorot(key: PRNGKeyArray, shape: tuple[int, ...]) -> Float[Array, "..."]:
    """Uniform with the variance that keeps signals level forwards and backwards; fan in and out are the last axes."""
    bound = (6 / (shape[-2] + shape[-1])) ** 0.5
    return jax.random.uniform(key, shape, minval=-bound, maxval=bound)
