"""Forecasts that are distributions, one for every node and feature: Gaussian, Student t, quantiles."""

import abc
import itertools
import math

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.scipy.special import betainc, gammaln, ndtri
from jaxtyping import Array, Float, PRNGKeyArray

from .._errors import InputError


class AbstractForecast(eqx.Module):
    """What is forecast of a value: its mean, its quantiles, and the loss to train on."""

    @property
    @abc.abstractmethod
    def mean(self) -> Float[Array, "*shape"]: ...

    @abc.abstractmethod
    def quantile(self, level: float) -> Float[Array, "*shape"]:
        """The value that the truth stays below with probability `level`."""

    @abc.abstractmethod
    def loss(self, y: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
        """How badly this forecasts each value of y: minus the log density, or the pinball loss of quantiles."""


class Gaussian(AbstractForecast):
    """Normal distributions."""

    loc: Float[Array, "*shape"]
    scale: Float[Array, "*shape"]

    @property
    def mean(self):
        return self.loc

    @property
    def std(self) -> Float[Array, "*shape"]:
        return self.scale

    def sample(self, key: PRNGKeyArray, samples: int) -> Float[Array, "samples *shape"]:
        return self.loc + self.scale * jax.random.normal(key, (samples, *self.loc.shape), self.loc.dtype)

    def kl_to_standard(self) -> Float[Array, "*shape"]:
        """KL(q || N(0, 1)) of each number."""
        return (self.loc**2 + self.scale**2 - 1) / 2 - jnp.log(self.scale)

    def quantile(self, level):
        return self.loc + self.scale * ndtri(_level(level, self.loc))

    def loss(self, y):
        w = (y - self.loc) / self.scale
        return w**2 / 2 + jnp.log(self.scale) + math.log(2 * math.pi) / 2


class StudentT(AbstractForecast):
    """Student's t distributions: as Gaussians, with heavier tails the fewer the degrees of freedom."""

    df: Float[Array, "*shape"]
    loc: Float[Array, "*shape"]
    scale: Float[Array, "*shape"]

    @property
    def mean(self):
        return self.loc

    @property
    def std(self) -> Float[Array, "*shape"]:
        return self.scale * jnp.sqrt(self.df / (self.df - 2))

    def quantile(self, level):
        p = _level(level, self.loc)
        tail = 2 * jnp.minimum(p, 1 - p)

        # The two tails hold I_x(df / 2, 1 / 2) with x = df / (df + t^2), which grows with x.
        def halve(_, bounds):
            low, high = bounds
            middle = (low + high) / 2
            over = betainc(self.df / 2, jnp.full_like(self.df, 0.5), middle) >= tail
            return jnp.where(over, low, middle), jnp.where(over, middle, high)

        bounds = jnp.zeros_like(self.df), jnp.ones_like(self.df)
        x = sum(jax.lax.fori_loop(0, 60, halve, bounds)) / 2
        return self.loc + self.scale * jnp.sign(p - 0.5) * jnp.sqrt(self.df * (1 - x) / x)

    def loss(self, y):
        w = (y - self.loc) / self.scale
        constant = gammaln(self.df / 2) - gammaln((self.df + 1) / 2) + jnp.log(self.df * math.pi) / 2
        return constant + jnp.log(self.scale) + (self.df + 1) / 2 * jnp.log1p(w**2 / self.df)


class Quantiles(AbstractForecast):
    """Values at some levels, straight between them; `values` has the levels as its last axis."""

    values: Float[Array, "*shape levels"]
    levels: tuple[float, ...] = eqx.field(static=True)

    @property
    def mean(self):
        """Of the quantiles joined by straight lines, flat outside the first and the last."""
        edges = [0.0, *[(a + b) / 2 for a, b in itertools.pairwise(self.levels)], 1.0]
        shares = [b - a for a, b in itertools.pairwise(edges)]
        return self.values @ jnp.asarray(shares, self.values.dtype)

    def quantile(self, level):
        if not self.levels[0] <= level <= self.levels[-1]:
            raise InputError(f"level: expected one from {self.levels[0]} to {self.levels[-1]}, got {level}.")
        knots = jnp.asarray(self.levels, self.values.dtype)
        flat = self.values.reshape(-1, len(self.levels))
        return jax.vmap(lambda v: jnp.interp(_level(level, v), knots, v))(flat).reshape(self.values.shape[:-1])

    def loss(self, y):
        levels = jnp.asarray(self.levels, self.values.dtype)
        error = y[..., None] - self.values
        return jnp.mean(jnp.maximum(levels * error, (levels - 1) * error), axis=-1)


def _level(level: float, like: Array) -> Array:
    if not 0 < level < 1:
        raise InputError(f"level: expected a probability inside (0, 1), got {level}.")
    return jnp.asarray(level, like.dtype)
