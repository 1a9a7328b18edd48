"""Forecasts at any times: each from all that was seen before it."""

import dataclasses

import numpy as np
from jaxtyping import Float

from .._errors import InputError
from ..data import Clock, Readings, format_stamps
from ._fitted import Fitted
from ._predictors import QUERIES, gap_of


@dataclasses.dataclass(frozen=True)
class Forecasts:
    """Means, spreads and times ahead of forecasts at stamps, and what they are by other levels.

    - `mean`, `std` (times, sensors, variables); `gap` (times,): how far ahead, as models are told it.
    - `readings`: those that were known, all of them.
    - `origins` (times,): the last stamp that each forecast knew.
    - `expected`, `last`: the two naive forecasts of the same points.
    """

    fitted: Fitted
    readings: Readings
    stamps: Float[np.ndarray, " times"]
    origins: Float[np.ndarray, " times"]
    mean: Float[np.ndarray, "times sensors variables"]
    std: Float[np.ndarray, "times sensors variables"]
    gap: Float[np.ndarray, " times"]
    expected: Float[np.ndarray, "times sensors variables"]
    last: Float[np.ndarray, "times sensors variables"]

    def quantile(self, level: float) -> Float[np.ndarray, "times sensors variables"]:
        """The value that the truth stays below with probability `level`."""
        if not 0 < level < 1:
            raise InputError(f"quantiles: expected probabilities between 0 and 1, such as 0.9, got {level}.")
        return self.fitted.calibration.quantile(self.mean[None], self.std[None], self.gap[None], level)[0]

    def interval(self, level: float) -> tuple[np.ndarray, np.ndarray]:
        """The ends of the central interval of a level in percent."""
        if not 0 < level < 100:
            raise InputError(f"level: expected percent between 0 and 100, such as 90, got {level}.")
        return self.quantile(0.5 - level / 200), self.quantile(0.5 + level / 200)

    def draw(self, samples: int, seed: int) -> Float[np.ndarray, "samples times sensors variables"]:
        """Joint paths over all times and sensors."""
        if samples < 1:
            raise InputError(f"num_samples: expected 1 or more, got {samples}.")
        found = self.fitted.calibration.draw(self.mean[None], self.std[None], self.gap[None], samples, seed)
        return found[:, 0]


def forecast(
    fitted: Fitted,
    readings: Readings,
    stamps: Float[np.ndarray, " times"],
    *,
    origins: Float[np.ndarray, " times"] | None = None,
    known: Float[np.ndarray, "times sensors known"] | None = None,
    silent: np.ndarray | None = None,
) -> Forecasts:
    """Forecasts at stamps, each from the readings before it, or up to its own of `origins`."""
    source = fitted.source(readings.seen())
    if not len(source.readings.stamps):
        raise InputError("history: there is no reading of the model's sensors in it. Check their names.")
    had = source.readings.stamps
    if origins is None:
        ends = np.searchsorted(had, stamps, side="left") - 1
    else:
        ends = np.searchsorted(had, origins, side="right") - 1
    if bad := np.flatnonzero(ends < 0)[:1].tolist():
        clock = readings.clock
        raise InputError(
            f"times: {_said(float(stamps[bad[0]]), clock)} is not after the first reading that is known, "
            f"{_said(float(had[0]), clock)}. Give earlier readings as history=."
        )
    known = known_at(readings, stamps) if known is None else known
    # Times with the same last observation share a window, some at a time.
    order = np.argsort(ends, kind="stable")
    groups = [
        part[i : i + QUERIES]
        for part in np.split(order, np.flatnonzero(np.diff(ends[order])) + 1)
        for i in range(0, len(part), QUERIES)
    ]
    index = np.stack([np.pad(g, (0, QUERIES - len(g)), mode="edge") for g in groups])
    windows = source.windows(ends[index[:, 0]], stamps[index], known=known[index], silent=silent)
    mean, std = fitted.predictor(windows)
    shape = (len(stamps), *mean.shape[2:])
    gap, expected, last = np.empty(len(stamps)), np.empty(shape), np.empty(shape)
    out_mean, out_std = np.empty(shape), np.empty(shape)
    out_mean[index], out_std[index], gap[index] = mean, std, gap_of(windows)
    expected[index] = np.asarray(windows.query_base, float)
    last[:] = _last(source.readings.values, ends, expected)
    return Forecasts(fitted, source.readings, stamps, had[ends], out_mean, out_std, gap, expected, last)


def _last(values: np.ndarray, ends: np.ndarray, otherwise: np.ndarray) -> np.ndarray:
    """The last reading of each sensor up to each row, however old; what was to be expected where there is none."""
    row = np.where(np.isnan(values), -1, np.arange(len(values))[:, None, None])
    row = np.maximum.accumulate(row, axis=0)[ends]
    found = np.take_along_axis(values, np.maximum(row, 0), axis=0)
    return np.where(row < 0, otherwise, found)


def known_at(readings: Readings, stamps: Float[np.ndarray, " times"]) -> Float[np.ndarray, "times sensors known"]:
    """What is known in advance at stamps: that of the last stamp that has it, of each sensor."""
    known = readings.known
    if not known.shape[-1]:
        return np.empty((len(stamps), known.shape[1], 0))
    row = np.where(np.isnan(known), -1, np.arange(len(known))[:, None, None])
    at = np.searchsorted(readings.stamps, stamps, side="right") - 1
    row = np.where((at >= 0)[:, None, None], np.maximum.accumulate(row, axis=0)[np.maximum(at, 0)], -1)
    return np.where(row < 0, np.nan, np.take_along_axis(known, np.maximum(row, 0), axis=0))


def _said(stamp: float, clock: Clock) -> str:
    return format_stamps(np.array([stamp]), clock)[0]
