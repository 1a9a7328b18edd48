"""Random numbers by counter: a number is a function of a run's key and a position, whatever else is computed."""

import jax.numpy as jnp
from jaxtyping import Array, Float, UInt32

# Threefry-2x32 with 20 rounds (Salmon et al. 2011), written out so that it fuses with what uses it.
_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = 0x1BD11BDA


def threefry(
    key: tuple[UInt32[Array, "..."], UInt32[Array, "..."]], high: UInt32[Array, "..."], low: UInt32[Array, "..."]
) -> tuple[UInt32[Array, "..."], UInt32[Array, "..."]]:
    """Two random words for each key and counter (high, low)."""
    schedule = (*key, key[0] ^ key[1] ^ jnp.uint32(_PARITY))
    x, y = high + schedule[0], low + schedule[1]
    for i in range(5):
        for r in _ROTATIONS[i % 2]:
            x = x + y
            y = ((y << jnp.uint32(r)) | (y >> jnp.uint32(32 - r))) ^ x
        x = x + schedule[(i + 1) % 3]
        y = y + schedule[(i + 2) % 3] + jnp.uint32(i + 1)
    return x, y


def uniform(word: UInt32[Array, "*shape"], dtype) -> Float[Array, "*shape"]:
    """A number in the open interval (0, 1), in the middle of one of 2^23 equal cells, or of 2^32 in float64."""
    bits = 32 if jnp.finfo(dtype).nmant >= 32 else jnp.finfo(dtype).nmant
    return ((word >> jnp.uint32(32 - bits)).astype(dtype) + 0.5) * 2.0**-bits
