"""Heads: the last numbers of a network as a forecast, a value or a distribution."""

import abc
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._errors import InputError, unknown_name
from ._distributions import AbstractForecast, Gaussian, Quantiles, StudentT

# No forecast is more certain than this, in units of the data.
LEAST_SCALE = 1e-4


class AbstractHead(eqx.Module):
    """head(out, base): `out` has `numbers` numbers a feature; the forecast is around `base` where it is given."""

    @property
    @abc.abstractmethod
    def numbers(self) -> int: ...

    @abc.abstractmethod
    def __call__(
        self, out: Float[Array, "nodes numbers"], base: Float[Array, "nodes features"] | None
    ) -> Float[Array, "nodes features"] | AbstractForecast: ...


class PointHead(AbstractHead):
    """The value itself."""

    @property
    def numbers(self) -> int:
        return 1

    def __call__(self, out, base):
        return out if base is None else base + out


class GaussianHead(AbstractHead):
    """Mean and standard deviation."""

    @property
    def numbers(self) -> int:
        return 2

    def __call__(self, out, base):
        loc, scale = jnp.split(out, 2, axis=1)
        return Gaussian(loc if base is None else base + loc, _positive(scale))


class StudentTHead(AbstractHead):
    """Location, scale and degrees of freedom, more than two, so that there is a variance."""

    @property
    def numbers(self) -> int:
        return 3

    def __call__(self, out, base):
        loc, scale, df = jnp.split(out, 3, axis=1)
        return StudentT(2 + _positive(df), loc if base is None else base + loc, _positive(scale))


class QuantileHead(AbstractHead):
    """The lowest quantile and the steps up from it, so that none crosses another; `base` shifts them all."""

    levels: tuple[float, ...] = eqx.field(static=True)

    def __check_init__(self):
        if len(self.levels) < 2 or not np.all(np.diff([0.0, *self.levels, 1.0]) > 0):
            raise InputError(f"levels: expected two or more, ascending, inside (0, 1), got {self.levels}.")

    @property
    def numbers(self) -> int:
        return len(self.levels)

    def __call__(self, out, base):
        middle, *steps = jnp.split(out, self.numbers, axis=1)
        half = (self.numbers - 1) // 2
        rises = jnp.cumsum(jnp.stack([_positive(s) for s in steps], axis=-1), axis=-1)
        values = jnp.concatenate([jnp.zeros_like(rises[..., :1]), rises], axis=-1)
        # Around the middle level, which is what `base` is a guess of.
        values = values - values[..., half : half + 1] + middle[..., None]
        return Quantiles(values if base is None else base[..., None] + values, self.levels)


HEADS: dict[str, Callable[[tuple[float, ...]], AbstractHead]] = {
    "point": lambda levels: PointHead(),
    "gaussian": lambda levels: GaussianHead(),
    "student_t": lambda levels: StudentTHead(),
    "quantiles": QuantileHead,
}


def make_head(name: str | AbstractHead, levels: tuple[float, ...]) -> AbstractHead:
    """The head of that name; `levels` are those of quantiles."""
    if isinstance(name, AbstractHead):
        return name
    if name not in HEADS:
        raise InputError(unknown_name("head", name, HEADS))
    return HEADS[name](tuple(levels))


def _positive(x: Array) -> Array:
    return jax.nn.softplus(x) + LEAST_SCALE
