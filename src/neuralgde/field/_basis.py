"""Functions of t on an interval, of which parameters that vary in t are sums."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

Interval = tuple[float, float]


class Basis(NamedTuple):
    """`values(t, degree, interval)` are the basis functions at t, of which there are `degree`.

    `local` ones add up to 1 at every t, so equal coefficients give a constant; of the others the first is 1 itself.
    """

    values: Callable[[Array, int, Interval], Float[Array, " degree"]]
    breakpoints: Callable[[int, Interval], np.ndarray] | None
    local: bool


def _share(t: Array, interval: Interval) -> Array:
    return (t - interval[0]) / (interval[1] - interval[0])


def _fourier(t: Array, degree: int, interval: Interval) -> Array:
    """1, cos, sin, cos 2, sin 2, … with the interval as their period; they go on outside of it."""
    angle = 2 * np.pi * _share(t, interval)
    waves = [wave(n * angle) for n in range(1, degree // 2 + 1) for wave in (jnp.cos, jnp.sin)]
    return jnp.stack([jnp.ones_like(t), *waves][:degree])


def _chebyshev(t: Array, degree: int, interval: Interval) -> Array:
    """T_0, T_1, … of the interval mapped to [-1, 1]; outside, where they explode, they keep their value at its end."""
    x = 2 * jnp.clip(_share(t, interval), 0, 1) - 1
    values = [jnp.ones_like(x), x]
    while len(values) < degree:
        values.append(2 * x * values[-1] - values[-2])
    return jnp.stack(values[:degree])


def _cell_bounds(degree: int, interval: Interval) -> np.ndarray:
    return np.linspace(*interval, degree + 1)[1:-1]


def _cells(t: Array, degree: int, interval: Interval) -> Array:
    """1 on the cell that holds t, of `degree` equal ones: a bound belongs to the cell on its right."""
    # Compared with the bounds themselves, not divided by a width: standing on a bound must not depend on rounding.
    cell = jnp.sum(t >= jnp.asarray(_cell_bounds(degree, interval), t.dtype))
    return jax.nn.one_hot(cell, degree, dtype=t.dtype)


def _knots(degree: int, interval: Interval) -> np.ndarray:
    return np.linspace(*interval, degree)[1:-1]


def _hats(t: Array, degree: int, interval: Interval) -> Array:
    """Hat functions of `degree` equally spaced knots, the ends included; constant outside."""
    place = (degree - 1) * jnp.clip(_share(t, interval), 0, 1)
    return jnp.maximum(1 - jnp.abs(place - jnp.arange(degree, dtype=t.dtype)), 0)


BASES = {
    "fourier": Basis(_fourier, None, local=False),
    "chebyshev": Basis(_chebyshev, None, local=False),
    "piecewise": Basis(_cells, _cell_bounds, local=True),
    "piecewise_linear": Basis(_hats, _knots, local=True),
}
