"""Brownian paths that are functions of time: a key fixes the whole path, whatever the times that are asked for."""

import functools
import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, UInt32

# The line of times is cut at ±2^FIRST, …, ±2^LAST: the cells between are octaves, and the first one starts at 0.
FIRST, LAST = -20, 30
LENGTHS = np.append(2.0**FIRST, 2.0 ** np.arange(FIRST, LAST))


class BrownianPath(eqx.Module):
    """W(t) for all |t| < 2^30, W(0) = 0: one path per element of a state.

    Lévy's construction. W at the cell borders is a sum of independent increments. Inside a cell, halved again and
    again, level l adds a hat function on each half, times a normal number of its own, which is a hash of the key, the
    cell and the half: W(t) is a sum over the levels, with nothing to remember and no order in which to ask. Float32
    times are all reached exactly; in float64 a bridge fills the last 2^-31 of a cell.
    """

    shape: tuple[int, ...] = eqx.field(static=True)
    keys: UInt32[Array, "cells 2"]
    borders: Float[Array, "sides borders state"]

    def __init__(self, key: PRNGKeyArray, shape: tuple[int, ...], dtype):
        self.shape = shape
        cells = np.arange(2 * len(LENGTHS), dtype=np.uint32)
        root = jax.random.bits(key, (2,), jnp.uint32)
        self.keys = jnp.stack(_threefry(root, jnp.asarray(cells), jnp.zeros(cells.shape, jnp.uint32)), axis=-1)
        count = math.prod(shape)
        normals = jax.vmap(lambda k: _normals(k, jnp.zeros(1, jnp.uint32), count)[0])(self.keys)
        steps = normals.reshape(2, -1, count).astype(dtype) * jnp.asarray(np.sqrt(LENGTHS)[:, None], dtype)
        self.borders = jnp.pad(jnp.cumsum(steps, axis=1), ((0, 0), (1, 0), (0, 0)))

    def __call__(self, t: Float[Array, ""]) -> Float[Array, "..."]:
        dtype = self.borders.dtype
        levels = 23 if dtype == jnp.float32 else 31
        mantissa, exponent = jnp.frexp(jnp.abs(t))
        first = jnp.abs(t) < 2.0**FIRST
        # Where in its cell t is, in [0, 1): exact, because lengths are powers of two.
        share = jnp.where(first, jnp.abs(t) * 2.0**-FIRST, 2 * mantissa - 1)
        octave = jnp.where(first, 0, jnp.clip(exponent - FIRST, 1, LAST - FIRST))
        side = (t < 0).astype(octave.dtype)

        depth = np.arange(levels)
        scaled = share * jnp.asarray(2.0**depth, dtype)
        half = jnp.floor(scaled)
        inside = scaled - half
        hat = jnp.minimum(inside, 1 - inside)
        if levels == 31:
            hat = hat.at[-1].set(jnp.sqrt(inside[-1] * (1 - inside[-1])))
        weights = hat * jnp.asarray(np.sqrt(LENGTHS), dtype)[octave] * jnp.asarray(2.0 ** (-depth / 2), dtype)
        places = half.astype(jnp.uint32) + jnp.asarray(2**depth, jnp.uint32)
        # A product, and no sum: a sum would draw the numbers a level at a time, which is many times slower.
        key = self.keys[side * len(LENGTHS) + octave]
        bridge = weights @ _normals(key, places, self.borders.shape[-1]).astype(dtype)
        start, end = self.borders[side, octave], self.borders[side, octave + 1]
        return (start + share * (end - start) + bridge).reshape(self.shape)


@functools.partial(jax.jit, static_argnums=2)
def _normals(key: Array, places: Array, count: int) -> Array:
    """(places, count) independent normal numbers in float32: a hash of the key, the place and the position."""
    positions = jnp.arange(count, dtype=jnp.uint32)
    return _box_muller(*_threefry(key, *jnp.broadcast_arrays(places[:, None], positions[None])))


def _threefry(key: Array, x0: Array, x1: Array) -> tuple[Array, Array]:
    """Threefry-2x32 with 20 rounds (Salmon et al. 2011). JAX's own is a loop on the CPU, and several times slower."""
    keys = (key[0], key[1], key[0] ^ key[1] ^ np.uint32(0x1BD11BDA))
    x0, x1 = x0 + keys[0], x1 + keys[1]
    for i in range(5):
        for turn in ((13, 15, 26, 6), (17, 29, 16, 24))[i % 2]:
            x0 = x0 + x1
            x1 = ((x1 << np.uint32(turn)) | (x1 >> np.uint32(32 - turn))) ^ x0
        x0, x1 = x0 + keys[(i + 1) % 3], x1 + keys[(i + 2) % 3] + np.uint32(i + 1)
    return x0, x1


def _box_muller(first: Array, second: Array) -> Array:
    """A normal number from two words. Short series, good to float32, that the compiler turns into vector code."""
    u = (first >> np.uint32(8)).astype(jnp.float32) * np.float32(2**-24) + np.float32(2**-25)
    radius = jnp.sqrt(-2 * _log(u))
    # The upper two bits name the quarter of the turn, the rest the angle in it, from -π/4 to π/4.
    quarter = second >> np.uint32(30)
    rest = ((second >> np.uint32(6)) & np.uint32(0xFFFFFF)).astype(jnp.float32) * np.float32(2**-24)
    angle = (rest - np.float32(0.5)) * np.float32(math.pi / 2)
    square = angle * angle
    sin, cos = jnp.ones_like(angle), jnp.ones_like(angle)
    for n in (8, 6, 4, 2):
        sin = 1 - sin * square * np.float32(1 / (n * (n + 1)))
        cos = 1 - cos * square * np.float32(1 / (n * (n - 1)))
    cosine = jnp.where((quarter & np.uint32(1)) == 1, -sin * angle, cos)
    return jnp.where(quarter >= np.uint32(2), -radius, radius) * cosine


def _log(u: Array) -> Array:
    """The logarithm of float32 u in (0, 1): the exponent, and 2 atanh((m - 1) / (m + 1)) of the mantissa m near 1."""
    bits = jax.lax.bitcast_convert_type(u, jnp.int32)
    # Mantissas from sqrt(1/2) to sqrt(2): those above belong to the next exponent.
    shifted = bits - np.int32(0x3F3504F3)
    exponent = (shifted >> np.int32(23)).astype(jnp.float32)
    m = jax.lax.bitcast_convert_type((shifted & np.int32(0x7FFFFF)) + np.int32(0x3F3504F3), jnp.float32)
    s = (m - 1) / (m + 1)
    square = s * s
    series = np.float32(1 / 9) * jnp.ones_like(s)
    for n in (7, 5, 3, 1):
        series = series * square + np.float32(1 / n)
    return exponent * np.float32(math.log(2)) + 2 * s * series
