"""Split conformal correction: intervals made wider or narrower until they cover what they promise on data set aside.

On time series there is no guarantee: days, or runs, of their own have to be kept for it, the correction assumes that
what comes is like them, and the coverage afterwards is to be measured and told as it is.
"""

import dataclasses
import math

import numpy as np
from jaxtyping import ArrayLike, Float

from ._errors import InputError

# Gaps are pooled until each group has so many points, so that the size of its errors is known to some percent.
_LEAST_POINTS = 200
_MOST_GROUPS = 12


@dataclasses.dataclass(frozen=True)
class Conformal:
    """Corrects intervals of one level: to [lower - shift s(gap), upper + shift s(gap)], from `fit_conformal`.

    `gap` is how far ahead of the last observation a forecast is for, and s(gap) the size of the errors so far ahead,
    straight between the `gaps` where it was measured and flat outside. A negative `shift` makes intervals narrower.
    """

    level: float
    shift: float
    gaps: Float[np.ndarray, " groups"]
    sizes: Float[np.ndarray, " groups"]

    def __call__(self, lower: ArrayLike, upper: ArrayLike, gap: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
        """The corrected ends. `gap` has the shape of the ends, or the first axes of it, or is one number."""
        low, high = _floats(lower, "lower"), _floats(upper, "upper")
        margin = self.shift * np.interp(_like(gap, low), self.gaps, self.sizes)
        low, high = low - margin, high + margin
        # An interval narrower than the correction shrinks to its middle, and does not turn over.
        middle = (low + high) / 2
        return np.asarray(np.minimum(low, middle)), np.asarray(np.maximum(high, middle))


def fit_conformal(
    lower: ArrayLike, upper: ArrayLike, y: ArrayLike, gap: ArrayLike, *, level: float, mask: ArrayLike | None = None
) -> Conformal:
    """The correction that makes intervals cover the share `level` of the truth y, all points pooled.

    A point's score is how far it lies outside its interval, negative inside, over s(gap): the errors grow with the gap,
    and without this far forecasts would decide about near ones. `mask` is True where a point counts.
    """
    if not 0 < level < 1:
        raise InputError(f"level: expected a share between 0 and 1, such as 0.9, got {level}.")
    arrays = {name: _floats(a, name) for name, a in (("y", y), ("lower", lower), ("upper", upper))}
    for name, a in arrays.items():
        if a.shape != arrays["y"].shape:
            raise InputError(f"{name}: expected the shape of y, {arrays['y'].shape}, got {a.shape}.")
    keep = np.ones(arrays["y"].shape, bool) if mask is None else np.asarray(mask)
    if keep.shape != arrays["y"].shape or keep.dtype != bool:
        raise InputError(f"mask: expected True or False for each point of y, {arrays['y'].shape}, got {keep.shape}.")
    truth, low, high = (arrays[name][keep] for name in ("y", "lower", "upper"))
    ahead = _like(gap, arrays["y"])[keep]
    # Fewer, and the score of the rank below would lie beyond the largest one.
    needed = math.ceil(level / (1 - level) - 1e-9)
    if truth.size < needed:
        raise InputError(f"y: expected {needed} points or more for a level of {level}, got {truth.size}.")
    if not np.isfinite([truth, low, high, ahead]).all():
        raise InputError("y, lower, upper, gap: expected finite numbers. Switch other points off by the mask.")
    gaps, sizes = _sizes(ahead, np.abs(truth - (low + high) / 2))
    scores = np.maximum(low - truth, truth - high) / np.interp(ahead, gaps, sizes)
    return Conformal(level, float(next_quantile(scores, level, between=False)), gaps, sizes)


def next_quantile(
    scores: Float[np.ndarray, " points"], level: float | Float[np.ndarray, " levels"], *, between: bool = True
) -> np.ndarray:
    """What the score to come stays below with probability `level`, by those seen, one or more, in any order.

    It is as likely to fall between any two of them: there are n + 1 places for it. Levels between two places get a
    value between two scores, or without `between` the larger of them, which promises at least the level.
    """
    values = np.sort(scores)
    place = np.asarray(level) * (len(values) + 1)
    at = np.clip((place if between else np.ceil(place)) - 1, 0, len(values) - 1)
    return np.asarray(np.interp(at, np.arange(len(values)), values))


def _sizes(gap: np.ndarray, error: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The mean absolute error in groups of gaps, and each group's mean gap."""
    values, place = np.unique(gap, return_inverse=True)
    groups = max(1, min(_MOST_GROUPS, gap.size // _LEAST_POINTS, len(values)))
    # Groups of about as many points; one gap is never in two of them.
    before = np.cumsum(np.bincount(place)) - 1
    group = np.unique(before * groups // gap.size, return_inverse=True)[1][place]
    count = np.bincount(group)
    sizes = np.bincount(group, error) / count
    least = np.finfo(float).tiny if not sizes.any() else sizes[sizes > 0].min()
    return np.bincount(group, gap) / count, np.maximum(sizes, least)


def _floats(a: ArrayLike, name: str) -> np.ndarray:
    out = np.asarray(a)
    if out.dtype.kind not in "fiu":
        raise InputError(f"{name}: expected real numbers, got dtype {out.dtype}.")
    return out.astype(float)


def _like(gap: ArrayLike, points: np.ndarray) -> np.ndarray:
    """A gap for every point, from those of the first axes."""
    out = _floats(gap, "gap")
    if out.shape != points.shape[: out.ndim]:
        raise InputError(f"gap: expected the shape {points.shape} or its first axes, got {out.shape}.")
    return np.broadcast_to(out.reshape(out.shape + (1,) * (points.ndim - out.ndim)), points.shape)
