"""Metrics: how far forecasts are from the truth, and how far their uncertainty can be trusted.

The forecast comes before the truth `y`. Arrays have time first, then sensors: (times, sensors), or (times, nodes,
features), where each feature of each node counts as a sensor. The arrays of one call have one shape, and a single
number stands for all points. Samples have one more axis, the first.

`mask` is True where a point counts; what other points hold, NaN too, has no effect. With no point left the result is
NaN. A NaN that does count is never hidden: it makes the result NaN.

`axis` of a mean says what to average over: everything by default, 0 for a result per sensor.

NumPy in, NumPy out, computed in float64. With a JAX array among the inputs the work is done in JAX, in the precision of
the arrays, under `jit`, `vmap` and `grad` too.
"""

import math
from collections.abc import Iterable
from functools import reduce
from types import SimpleNamespace
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import jax.scipy.special
import numpy as np
import scipy.special
from jaxtyping import Array, ArrayLike, PRNGKeyArray

from ._errors import InputError

Axis: TypeAlias = int | tuple[int, ...] | None
Score: TypeAlias = Array | np.ndarray | np.floating

# Errors of a forecast that is one number a point


def mae(forecast: ArrayLike, y: ArrayLike, *, mask: ArrayLike | None = None, axis: Axis = None) -> Score:
    """Mean absolute error."""
    p = _points(mask, y=y, forecast=forecast)
    return _mean(p, abs(p.y - p.forecast), axis)


def rmse(forecast: ArrayLike, y: ArrayLike, *, mask: ArrayLike | None = None, axis: Axis = None) -> Score:
    """Root of the mean squared error, the mean over all points at once (pooled)."""
    p = _points(mask, y=y, forecast=forecast)
    return p.xp.sqrt(_mean(p, (p.y - p.forecast) ** 2, axis))


def rmse_sensor(forecast: ArrayLike, y: ArrayLike, *, mask: ArrayLike | None = None) -> Score:
    """The paper's RMSE: the mean over sensors of each sensor's RMSE over time.

    Where every sensor has as many points it is never above the pooled `rmse`. Sensors that the mask leaves without a
    point are left out of the mean.
    """
    p = _points(mask, y=y, forecast=forecast)
    return _mean_over_sensors(p, p.xp.sqrt(_mean(p, (p.y - p.forecast) ** 2, 0)))


def nrmse(forecast: ArrayLike, y: ArrayLike, *, mask: ArrayLike | None = None) -> Score:
    """Pooled RMSE over the standard deviation of the truth, both over all points that count.

    The best constant forecast scores 1. The denominator knows only the truth, so the ratio of two models' scores on the
    same points is the ratio of their RMSE. A truth that never changes gives inf, or NaN where the forecast is exact.
    """
    p = _points(mask, y=y, forecast=forecast)
    error = p.xp.sqrt(_mean(p, (p.y - p.forecast) ** 2, None))
    deviation = p.xp.sqrt(_mean(p, (p.y - _mean(p, p.y, None)) ** 2, None))
    with np.errstate(divide="ignore", invalid="ignore"):
        return error / deviation


def mape(forecast: ArrayLike, y: ArrayLike, *, mask: ArrayLike | None = None, axis: Axis = None) -> Score:
    """Mean absolute percentage error, in percent: 100 |y - forecast| / |y|.

    Points where the truth is 0 are left out; with no other, the result is NaN.
    """
    p = _relative_errors(forecast, y, mask)
    return 100 * _mean(p, abs(p.error), axis)


def mape_paper(forecast: ArrayLike, y: ArrayLike, *, mask: ArrayLike | None = None) -> Score:
    """MAPE as the paper's appendix prints it, in percent: the absolute value is taken after the sum over time.

    So errors of opposite sign cancel within each sensor, and it says little of accuracy: it is here to compare with the
    paper's tables. Points where the truth is 0 are left out, and sensors with no other.
    """
    p = _relative_errors(forecast, y, mask)
    return 100 * _mean_over_sensors(p, abs(_mean(p, p.error, 0)))


def median_relative_error(forecast: ArrayLike, y: ArrayLike, *, mask: ArrayLike | None = None) -> Score:
    """The median of |y - forecast| / |y|, a fraction. Points where the truth is 0 are left out."""
    p = _relative_errors(forecast, y, mask)
    if p.error.size == 0:
        return p.xp.sum(p.error) * math.nan
    # Points that do not count sort to the end. A boolean index would have no fixed shape under `jit`.
    in_order = p.xp.sort(p.xp.where(p.keep, abs(p.error), math.inf).reshape(-1))
    count = p.keep.sum()
    median = (in_order[p.xp.maximum(count - 1, 0) // 2] + in_order[p.xp.minimum(count // 2, p.error.size - 1)]) / 2
    unknown = (count == 0) | (p.keep & p.xp.isnan(p.error)).any()
    return p.xp.where(unknown, math.nan, median)[()]


def accuracy(labels: ArrayLike, y: ArrayLike, *, mask: ArrayLike | None = None, axis: Axis = None) -> Score:
    """The share of predicted labels that are the true ones, from 0 to 1."""
    p = _points(mask, y=y, labels=labels)
    unknown = p.xp.isnan(p.labels) | p.xp.isnan(p.y)
    return _mean(p, p.xp.where(unknown, math.nan, (p.y == p.labels).astype(p.y.dtype)), axis)


# Intervals and quantiles


def coverage(
    lower: ArrayLike, upper: ArrayLike, y: ArrayLike, *, mask: ArrayLike | None = None, axis: Axis = None
) -> Score:
    """The share of the truth that lies in [lower, upper], ends included, from 0 to 1."""
    p = _points(mask, y=y, lower=lower, upper=upper)
    inside = ((p.lower <= p.y) & (p.y <= p.upper)).astype(p.y.dtype)
    unknown = p.xp.isnan(p.lower) | p.xp.isnan(p.upper) | p.xp.isnan(p.y)
    return _mean(p, p.xp.where(unknown, math.nan, inside), axis)


def interval_width(lower: ArrayLike, upper: ArrayLike, *, mask: ArrayLike | None = None, axis: Axis = None) -> Score:
    """The mean of upper - lower: of two forecasts with the right coverage, the narrower one says more."""
    p = _points(mask, lower=lower, upper=upper)
    return _mean(p, p.upper - p.lower, axis)


def pinball(q: ArrayLike, y: ArrayLike, level: float, *, mask: ArrayLike | None = None, axis: Axis = None) -> Score:
    """The mean pinball loss of forecasts q of the quantile `level`: level (y - q) above q, (1 - level)(q - y) below.

    At level 0.5 it is half the mean absolute error.
    """
    if not 0 < level < 1:
        raise InputError(f"level: expected a number between 0 and 1, such as 0.9, got {level}.")
    p = _points(mask, y=y, q=q)
    error = p.y - p.q
    return _mean(p, p.xp.maximum(level * error, (level - 1) * error), axis)


# Distributions


def crps_samples(
    samples: ArrayLike, y: ArrayLike, *, fair: bool = False, mask: ArrayLike | None = None, axis: Axis = None
) -> Score:
    """The mean continuous ranked probability score of m samples, (m, times, sensors): E|X - y| - E|X - X'| / 2.

    By default that of the m samples taken as the whole forecast: E|X - X'| runs over all m^2 pairs, a sample with
    itself included, and a single sample scores its absolute error. `fair=True` takes the m (m - 1) pairs of different
    samples, which estimates without bias, whatever m, the score of the distribution they come from (Ferro 2014).
    """
    p = _points(mask, y=y, samples=samples)
    m = p.samples.shape[0]
    if m < 1 + fair:
        raise InputError(f"samples: expected at least {1 + fair} along the first axis, got {m}.")
    # Sorted, the sum over all pairs is a weighted sum of m terms. Around y, so that large values do not cancel.
    error = p.xp.sort(p.samples - p.y, axis=0)
    weights = p.xp.asarray(2 * np.arange(m) - (m - 1), dtype=error.dtype).reshape(-1, *[1] * p.y.ndim)
    pairs = m * (m - 1) if fair else m * m
    return _mean(p, abs(error).mean(0) - (weights * error).sum(0) / pairs, axis)


def crps_gaussian(
    mean: ArrayLike, std: ArrayLike, y: ArrayLike, *, mask: ArrayLike | None = None, axis: Axis = None
) -> Score:
    """The mean continuous ranked probability score of normal distributions, in closed form.

    A standard deviation of 0 scores the absolute error.
    """
    p = _gaussian_points(mean, std, y, mask)
    w = (p.y - p.mean) / p.scale
    cdf = scipy.special.ndtr(w) if p.xp is np else jax.scipy.special.ndtr(w)
    density = p.xp.exp(-(w**2) / 2) / math.sqrt(2 * math.pi)
    score = p.scale * (w * (2 * cdf - 1) + 2 * density - 1 / math.sqrt(math.pi))
    return _mean(p, p.xp.where(p.std == 0, abs(p.y - p.mean), score), axis)


def log_likelihood(
    mean: ArrayLike, std: ArrayLike, y: ArrayLike, *, mask: ArrayLike | None = None, axis: Axis = None
) -> Score:
    """The mean log density, in nats a point, of normal distributions at the truth.

    A point with standard deviation 0 has -inf, or inf where the mean is exact.
    """
    p = _gaussian_points(mean, std, y, mask)
    density = -(((p.y - p.mean) / p.scale) ** 2) / 2 - p.xp.log(p.scale) - math.log(2 * math.pi) / 2
    certain = p.xp.where(p.y == p.mean, math.inf, -math.inf)
    return _mean(p, p.xp.where(p.std == 0, certain.astype(p.y.dtype), density), axis)


def pit(samples: ArrayLike, y: ArrayLike, *, key: PRNGKeyArray, mask: ArrayLike | None = None) -> Array | np.ndarray:
    """The randomised probability integral transform of each point, (times, sensors); NaN where the mask is False.

    The rank of y among m samples, (m, times, sensors), with ties broken at random and each rank spread evenly:
    (number below + u (number equal + 1)) / (m + 1), u uniform on [0, 1). It is itself uniform, exactly, where y and the
    samples come from one distribution, counts with many zeros included: a calibrated forecast has a flat histogram.
    """
    p = _points(mask, y=y, samples=samples)
    u = p.xp.asarray(jax.random.uniform(key, p.y.shape), dtype=p.y.dtype)
    below = (p.samples < p.y).sum(0).astype(p.y.dtype)
    equal = (p.samples == p.y).sum(0).astype(p.y.dtype)
    unknown = ~p.keep | p.xp.isnan(p.y) | p.xp.isnan(p.samples).any(0)
    return p.xp.where(unknown, math.nan, (below + u * (equal + 1)) / (p.samples.shape[0] + 1))


# Inputs and means


def _points(mask: ArrayLike | None, **arrays: ArrayLike) -> SimpleNamespace:
    """The arrays in one dtype and shape, the mask as `keep`, and the library that suits them as `xp`."""
    xp = jnp if any(isinstance(a, jax.Array) for a in (*arrays.values(), mask)) else np
    values = {name: xp.asarray(a) for name, a in arrays.items()}
    for name, a in values.items():
        if a.dtype.kind in "cOSUMm":
            raise InputError(f"{name}: expected real numbers, got dtype {a.dtype}.")
    dtype = _common_dtype(xp, values.values())

    reference = next((name for name, a in values.items() if a.ndim and name != "samples"), next(iter(values)))
    shape = values[reference].shape
    for name, a in values.items():
        if name == "samples":
            if a.ndim != len(shape) + 1 or a.shape[1:] != shape:
                raise InputError(
                    f"samples: expected the shape of {reference}, {shape}, after an axis of samples, got {a.shape}."
                )
        elif a.shape not in (shape, ()):
            raise InputError(f"{name}: expected the shape of {reference}, {shape}, got {a.shape}.")
        else:
            a = xp.broadcast_to(a, shape)
        values[name] = a.astype(dtype)

    keep = xp.ones(shape, bool) if mask is None else xp.asarray(mask)
    if keep.shape != shape:
        raise InputError(f"mask: expected the shape of {reference}, {shape}, got {keep.shape}.")
    if keep.dtype.kind != "b":
        raise InputError(f"mask: expected True where a point counts and False elsewhere, got dtype {keep.dtype}.")
    if mask is not None:
        # 1 is a value that every metric can take, so no NaN reaches a gradient from points that do not count.
        values = {name: xp.where(keep, a, 1) for name, a in values.items()}
    return SimpleNamespace(xp=xp, keep=keep, **values)


def _common_dtype(xp: Any, arrays: Iterable[Any]) -> Any:
    if xp is np:
        return np.float64
    # Widened by hand: counts, float32 and float64 meet here, and strict promotion would refuse them.
    floats = [a.dtype for a in arrays if jnp.issubdtype(a.dtype, jnp.floating) and not a.weak_type]
    return reduce(np.promote_types, floats) if floats else jnp.zeros(()).dtype


def _relative_errors(forecast: ArrayLike, y: ArrayLike, mask: ArrayLike | None) -> SimpleNamespace:
    p = _points(mask, y=y, forecast=forecast)
    p.error = (p.y - p.forecast) / p.xp.where(p.y == 0, 1, p.y)
    p.keep = p.keep & (p.y != 0)
    return p


def _gaussian_points(mean: ArrayLike, std: ArrayLike, y: ArrayLike, mask: ArrayLike | None) -> SimpleNamespace:
    p = _points(mask, y=y, mean=mean, std=std)
    negative = p.std < 0
    # Traced values cannot be looked at: in JAX a negative scale shows as NaN.
    if p.xp is np and negative.any():
        raise InputError(
            f"std: expected 0 or more, got {p.std.min()}. If it is a log scale, take the exponential first."
        )
    p.std = p.xp.where(negative, math.nan, p.std)
    p.scale = p.xp.where(p.std == 0, 1, p.std)
    return p


def _mean(p: SimpleNamespace, values: Any, axis: Axis) -> Any:
    return _mean_where(p.xp, p.keep, values, axis)


def _mean_over_sensors(p: SimpleNamespace, values: Any) -> Any:
    return _mean_where(p.xp, p.keep.any(0), values, None)


def _mean_where(xp: Any, keep: Any, values: Any, axis: Axis) -> Any:
    # Never 0 / 0: its gradient would be NaN even where a later mask drops the result.
    count = keep.sum(axis)
    total = xp.where(keep, values, 0).sum(axis)
    return xp.where(count > 0, total / xp.maximum(count, 1).astype(values.dtype), math.nan)[()]
