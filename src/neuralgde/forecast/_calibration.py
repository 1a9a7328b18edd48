"""Calibration: what the errors on days set aside say about intervals, whatever the model.

The error of a forecast, in units of the spread that the model says it has, has a distribution of its own for near and
for far times. Its quantiles, measured on the days set aside, turn means and spreads into quantiles at any level. On
time series that is no guarantee, so the coverage is measured as well: on each half of those days with what the other
half says.
"""

import dataclasses

import numpy as np
import scipy.special
from jaxtyping import Float

from ..conformal import next_quantile

LEVELS = tuple(
    np.concatenate([[0.005, 0.01, 0.025], np.arange(0.05, 0.96, 0.05), [0.975, 0.99, 0.995]]).round(4).tolist()
)
# The central intervals whose coverage is measured, in percent.
MEASURED = (50, 80, 90, 95)
_MOST_GROUPS = 8
_LEAST_POINTS = 400


@dataclasses.dataclass(frozen=True)
class Calibration:
    """Quantiles of scaled errors: `table` (groups, levels, variables) at the mean time ahead of each group, `gaps`.

    - `coverage`: of central intervals, percent said and percent measured, on `points` readings.
    - `correlation` (series, series): of the errors of all sensors and variables at one time, as normal scores.
    - `memory`: after how much more time ahead errors have forgotten each other, in steps.
    """

    gaps: Float[np.ndarray, " groups"]
    table: Float[np.ndarray, "groups levels variables"]
    coverage: dict[int, float]
    points: int
    correlation: Float[np.ndarray, "series series"]
    memory: float

    def quantile(
        self,
        mean: Float[np.ndarray, "windows queries sensors variables"],
        std: Float[np.ndarray, "windows queries sensors variables"],
        gap: Float[np.ndarray, "windows queries"],
        level: float | np.ndarray,
    ) -> np.ndarray:
        """The value that the truth stays below with probability `level`, which may have the forecasts' shape."""
        scores = np.stack([_at_gap(self.gaps, self.table[..., v], gap) for v in range(mean.shape[-1])], axis=-2)
        return mean + std * _at_level(scores[:, :, None], np.asarray(level))

    def draw(
        self,
        mean: Float[np.ndarray, "windows queries sensors variables"],
        std: Float[np.ndarray, "windows queries sensors variables"],
        gap: Float[np.ndarray, "windows queries"],
        samples: int,
        seed: int,
    ) -> Float[np.ndarray, "samples windows queries sensors variables"]:
        """Joint paths: errors of sensors that belong together are so in every path, and so are those of near times."""
        rng = np.random.default_rng(seed)
        windows, queries, sensors, variables = mean.shape
        across = _root(self.correlation)
        out = np.empty((samples, *mean.shape))
        for w in range(windows):
            apart = np.abs(gap[w][:, None] - gap[w])
            along = _root(np.exp(-apart / max(self.memory, 1e-6)))
            z = np.einsum("qp,spn,mn->sqm", along, rng.normal(size=(samples, queries, len(across))), across)
            level = scipy.special.ndtr(z).reshape(samples, queries, sensors, variables)
            for s in range(samples):
                some = slice(w, w + 1)
                out[s, w] = self.quantile(mean[some], std[some], gap[some], level[s][None])[0]
        return out


def calibrate(
    mean: Float[np.ndarray, "windows queries sensors variables"],
    std: Float[np.ndarray, "windows queries sensors variables"],
    y: Float[np.ndarray, "windows queries sensors variables"],
    mask: np.ndarray,
    gap: Float[np.ndarray, "windows queries"],
    day: np.ndarray,
) -> Calibration:
    """The calibration by forecasts of windows set aside; `day` (windows,) says which belong together."""
    score = np.where(mask, (y - mean) / std, np.nan)
    gaps, table = _table(score, gap)
    found: dict[int, list[float]] = {level: [] for level in MEASURED}
    apart = measured_apart(mask, day)
    for test in _halves(day):
        if not apart:
            test = np.ones(len(day), bool)
            part = (gaps, table)
        else:
            part = _table(score[~test], gap[~test])
        half = Calibration(*part, {}, 0, np.eye(1), 1.0)
        for level in MEASURED:
            low, high = (half.quantile(mean[test], std[test], gap[test], 0.5 + side * level / 200) for side in (-1, 1))
            inside = (low <= y[test]) & (y[test] <= high)
            found[level].append(float(inside[mask[test]].mean()))
    coverage = {level: 100 * float(np.mean(values)) for level, values in found.items()}
    normal = _normal_scores(score, gaps, table, gap)
    return Calibration(gaps, table, coverage, int(mask.sum()), _correlation(normal), _memory(normal, gap))


def measured_apart(mask: np.ndarray, day: np.ndarray) -> bool:
    """Whether both halves have readings, so that coverage is measured on others than intervals were calibrated on."""
    return all(bool(mask[test].any()) for test in _halves(day))


def _table(score: np.ndarray, gap: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    there = ~np.isnan(score)
    points = int(there.sum())
    groups = max(1, min(_MOST_GROUPS, points // _LEAST_POINTS, len(np.unique(gap))))
    edges = np.quantile(gap, np.linspace(0, 1, groups + 1)[1:-1])
    group = np.searchsorted(edges, gap, side="left")
    kept = [g for g in range(groups) if there[group == g].any(axis=(0, 1)).all()]
    table, centres = [], []
    for g in kept:
        some = score[group == g]
        table.append(np.stack([_quantiles(some[..., v]) for v in range(score.shape[-1])], axis=-1))
        centres.append(float(gap[group == g].mean()))
    if not table:
        flat = np.stack([_quantiles(score[..., v]) for v in range(score.shape[-1])], axis=-1)
        return np.array([float(gap.mean())]), flat[None]
    return np.array(centres), np.stack(table)


def _quantiles(score: np.ndarray) -> np.ndarray:
    values = score[~np.isnan(score)]
    return next_quantile(values, np.array(LEVELS)) if len(values) else scipy.special.ndtri(np.array(LEVELS))


def _at_gap(gaps: np.ndarray, table: np.ndarray, gap: np.ndarray) -> np.ndarray:
    """The quantiles of scores at times ahead, (..., levels)."""
    return np.stack([np.interp(gap, gaps, table[:, k]) for k in range(table.shape[1])], axis=-1)


def _at_level(scores: np.ndarray, level: np.ndarray) -> np.ndarray:
    """Scores (..., levels) at other levels, straight between the levels as normal scores; beyond them too."""
    knots = scipy.special.ndtri(np.array(LEVELS))
    at = scipy.special.ndtri(level)
    k = np.clip(np.searchsorted(knots, at) - 1, 0, len(knots) - 2)
    share = (at - knots[k]) / (knots[k + 1] - knots[k])
    shape = np.broadcast_shapes(scores.shape[:-1], np.shape(level))
    low, high = (
        np.take_along_axis(
            np.broadcast_to(scores, (*shape, scores.shape[-1])), np.broadcast_to(i, shape)[..., None], -1
        )
        for i in (k, k + 1)
    )
    return low[..., 0] + share * (high[..., 0] - low[..., 0])


def _normal_scores(score: np.ndarray, gaps: np.ndarray, table: np.ndarray, gap: np.ndarray) -> np.ndarray:
    knots = scipy.special.ndtri(np.array(LEVELS))
    out = np.empty_like(score)
    for v in range(score.shape[-1]):
        values = _at_gap(gaps, table[..., v], gap)
        for index in np.ndindex(score.shape[:2]):
            out[(*index, slice(None), v)] = np.interp(score[(*index, slice(None), v)], values[index], knots)
    return out


def _correlation(normal: np.ndarray) -> np.ndarray:
    flat = normal.reshape(-1, normal.shape[-2] * normal.shape[-1])
    there = ~np.isnan(flat)
    x = np.where(there, flat, 0)
    both = np.maximum(there.T.astype(float) @ there, 1)
    covariance = x.T @ x / both
    size = np.sqrt(np.maximum(np.diag(covariance), 1e-9))
    found = covariance / (size[:, None] * size)
    # Shrunk, so that it is a correlation however few the windows are.
    share = len(flat) / (len(flat) + flat.shape[1])
    return share * np.clip(found, -1, 1) + (1 - share) * np.eye(len(found))


def _memory(normal: np.ndarray, gap: np.ndarray) -> float:
    """From how alike errors of one window are at two times asked for."""
    if gap.shape[1] < 2:
        return float(gap.mean())
    apart = np.abs(gap[:, 1:] - gap[:, :-1])
    x, y = normal[:, 1:], normal[:, :-1]
    both = ~np.isnan(x) & ~np.isnan(y)
    product = np.where(both, x * y, 0).sum(axis=(2, 3)) / np.maximum(both.sum(axis=(2, 3)), 1)
    size = np.where(both, x**2 + y**2, 0).sum() / max(2 * both.sum(), 1)
    alike = float(np.clip(product.mean() / max(size, 1e-9), 0.05, 0.98))
    return float(-apart.mean() / np.log(alike))


def _halves(day: np.ndarray) -> list[np.ndarray]:
    """Two halves of the windows, days in turn; of a single day its first and its second half."""
    days = np.unique(day)
    first = np.isin(day, days[::2]) if len(days) > 1 else np.arange(len(day)) < len(day) // 2
    return [first, ~first]


def _root(correlation: np.ndarray) -> np.ndarray:
    values, vectors = np.linalg.eigh(correlation)
    return vectors * np.sqrt(np.maximum(values, 0))
