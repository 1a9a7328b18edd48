"""Imputation: the readings that are missing inside the observed span, from both sides and from the neighbours.

A forecast knows the past alone. Inside the span what came after is known as well, and what other sensors showed at the
same time, so gaps are filled by a regression of its own, learned from readings that are hidden for that.
"""

import dataclasses

import numpy as np
from jaxtyping import Bool, Float

from ._calibration import LEVELS
from ._fitted import Fitted
from ._source import Source

_FADING = (2.0, 12.0)
_PENALTY = 1e-3
# The share of readings that are hidden to learn from, and how many stamps in a row at a time.
_HIDDEN, _RUNS = 0.15, (1, 3, 12)


@dataclasses.dataclass(frozen=True)
class Imputed:
    """Values for all rows, sensors and variables: `mean`, and `scores` (levels, ...) of how far off the truth may be.

    `missing` is True where there was no reading, between the first and the last of its sensor.
    """

    mean: Float[np.ndarray, "rows sensors variables"]
    scores: Float[np.ndarray, "levels rows sensors variables"]
    missing: Bool[np.ndarray, "rows sensors variables"]

    def quantile(self, level: float) -> Float[np.ndarray, "rows sensors variables"]:
        """The value that the truth stays below with probability `level`."""
        at = np.interp(level, LEVELS, np.arange(len(LEVELS)))
        low = int(at)
        high = min(low + 1, len(LEVELS) - 1)
        return self.mean + self.scores[low] + (at - low) * (self.scores[high] - self.scores[low])


def impute(fitted: Fitted, source: Source) -> Imputed:
    """Fill what is missing; the regression is learned anew from these readings, which takes a moment."""
    values = source.readings.values
    weights = np.zeros((values.shape[1], values.shape[1]))
    np.add.at(weights, (fitted.edges.receivers, fitted.edges.senders), fitted.edges.weights)
    np.fill_diagonal(weights, 0)
    mean, scores = np.empty(values.shape), np.empty((len(LEVELS), *values.shape))
    missing = np.zeros(values.shape, bool)
    wider = _wider(fitted, source)
    rng = np.random.default_rng(fitted.config.seed)
    for v in range(values.shape[2]):
        off = values[..., v] - source.base[..., v]
        there = ~np.isnan(off)
        hidden = _hide(there, rng)
        x, apart = _features(np.where(hidden, np.nan, off), source.steps, weights)
        known = hidden & (apart < np.inf)
        coefficients = _solve(x[known], off[known])
        error = off[known] - x[known] @ coefficients
        x_all, apart_all = _features(off, source.steps, weights)
        mean[..., v] = np.where(there, values[..., v], source.base[..., v] + x_all @ coefficients)
        missing[..., v] = ~there & (apart_all < np.inf)
        scores[..., v] = np.where(there, 0.0, wider * _scores(error, apart[known], apart_all))
    return Imputed(mean, scores, missing)


def _wider(fitted: Fitted, source: Source) -> float:
    """How much larger errors are than those of hidden readings, which had their part in the mean day."""
    clock, stamps = source.readings.clock, source.readings.stamps
    days = len(np.unique(clock.cycle_number(stamps[stamps < fitted.splits[0]]))) if clock.period > 1 else 0
    return float(np.sqrt((days + 1) / (days - 1))) if days > 2 else 1.0


def _hide(there: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Some of the readings, alone and in runs, so that long gaps are learned too."""
    hidden = np.zeros(there.shape, bool)
    for length in _RUNS:
        starts = rng.random(there.shape) < _HIDDEN / len(_RUNS) / length
        for k in range(length):
            hidden[k:] |= starts[: len(starts) - k] if k else starts
    return hidden & there


def _features(off: np.ndarray, steps: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """What stands beside each place: of its own sensor before and after, and of the neighbours; how far both are."""
    before, since = _last_seen(off, steps)
    after, until = _last_seen(off[::-1], -steps[::-1])
    after, until = after[::-1], until[::-1]
    near = np.minimum(since, until)
    between = np.isfinite(since) & np.isfinite(until)
    share = np.where(between, since, 1) / np.where(between, np.maximum(since + until, 1e-9), 2)
    left, right = np.nan_to_num(before), np.nan_to_num(after)
    line = left + (right - left) * share
    # The neighbours at the same time, beside what they would be by the same interpolation.
    seen = ~np.isnan(off)
    count = seen @ weights.T
    around = np.where(count > 0, (np.where(seen, off, 0) @ weights.T) / np.maximum(count, 1e-9), line)
    features = [np.ones_like(line), line, around, left, right]
    for fading in _FADING:
        closeness = np.exp(-np.where(np.isfinite(near), near, 1e3) / fading)
        features += [line * closeness, around * closeness]
    return np.stack(features, axis=-1), np.where(between, near, np.inf)


def _last_seen(off: np.ndarray, steps: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The last value before each row, that row not included, and how long ago it was."""
    rows = np.where(np.isnan(off), -1, np.arange(len(off))[:, None])
    rows = np.maximum.accumulate(rows, axis=0)
    rows = np.concatenate([np.full((1, off.shape[1]), -1), rows[:-1]])
    value = np.where(rows < 0, np.nan, np.take_along_axis(off, np.maximum(rows, 0), axis=0))
    return value, np.where(rows < 0, np.inf, steps[:, None] - steps[np.maximum(rows, 0)])


def _solve(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    if not len(x):
        return np.zeros(x.shape[1])
    size = np.sqrt(np.maximum((x**2).mean(0), 1e-12))
    gram = (x / size).T @ (x / size) / len(x) + _PENALTY * np.eye(x.shape[1])
    return np.linalg.solve(gram, (x / size).T @ y / len(x)) / size


def _scores(error: np.ndarray, apart: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Quantiles of the errors that were made as far from a reading as each place is, (levels, ...)."""
    if not len(error):
        return np.zeros((len(LEVELS), *wanted.shape))
    edges = np.unique(np.quantile(apart, [0.4, 0.7, 0.9]))
    group, place = np.searchsorted(edges, apart), np.searchsorted(edges, wanted)
    out = np.zeros((len(LEVELS), *wanted.shape))
    for g in range(len(edges) + 1):
        some = error[group == g] if (group == g).any() else error
        out[:, place == g] = np.quantile(some, LEVELS)[:, None]
    return out
