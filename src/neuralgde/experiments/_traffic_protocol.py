"""The protocol of the traffic experiment: days split in order, snapshots dropped at random, the next one forecast."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import numpy as np
from jaxtyping import Float

from .. import metrics
from ..data import Scale, SensorSeries, Windows, keep_sensors, keep_snapshots, make_windows
from ..report import Row

# Forecasts of every query of every window, in the units of the data.
Forecast = Callable[[Windows], Float[np.ndarray, "windows queries nodes"]]
_METRICS = {
    "rmse_sensor": metrics.rmse_sensor,
    "rmse": metrics.rmse,
    "mape": metrics.mape,
    "mae": metrics.mae,
}
# What undersampling is for; no two uses share their random numbers.
_PURPOSES = ("train", "validation", "test")


@dataclasses.dataclass(frozen=True)
class TrafficTask:
    """Days to train, to validate and to test on, and all that the training days tell about scale and time of day."""

    train: SensorSeries
    validation: SensorSeries
    test: SensorSeries
    scale: Scale
    profile: Float[np.ndarray, "slots sensors"]
    length: int
    width: int

    @staticmethod
    def of(series: SensorSeries, days: Sequence[int] = (24, 5, 5), length: int = 5, width: int = 7) -> "TrafficTask":
        """A task of the first days of a series; windows are `length` observations.

        The mean day is that of the training days, smoothed over `width` times of day.
        """
        train, validation, test = series.split_days(days)
        return TrafficTask(train, validation, test, Scale.of(train), train.profile(width), length, width)

    def base(self, part: str) -> Float[np.ndarray, "rows sensors"]:
        """The mean day for every row of a part: for training days that of all others."""
        if part == "train":
            return self.train.mean_of_other_days(self.width)
        return np.tile(self.profile, (len(getattr(self, part).dates), 1))

    def windows(
        self,
        part: str,
        keep: float,
        seed: int,
        *,
        by: str = "snapshot",
        outage: float | None = None,
        queries: int = 1,
    ) -> Windows:
        """The windows of "train", "validation" or "test" in one undersampling, of snapshots or by "sensor".

        No window reaches into another part, so nothing that is tested on is seen before. One step ahead is the next
        snapshot that is kept; how far away it is, the model is told.
        """
        series = getattr(self, part)
        own = (_PURPOSES.index(part), seed)
        if by == "snapshot":
            kept = keep_snapshots(len(series.values), keep, seed=own)
        else:
            rows, sensors = series.values.shape
            kept = keep_sensors(rows, sensors, keep, seed=own, outage=outage)
        return make_windows(series, kept, length=self.length, queries=queries, base=self.base(part))

    def test_windows(self, keep: float, repeats: int = 20, **options: Any) -> list[Windows]:
        """The test days undersampled so many times; once where nothing is dropped."""
        return [self.windows("test", keep, seed, **options) for seed in range(1 if keep == 1 else repeats)]

    def regimes(self, repeats: int = 20) -> dict[str, list[Windows]]:
        """Test days unlike those of training: longer gaps, several snapshots ahead, and sensors that are out.

        Of the sensors that are out for an hour on average, those count that the last observation does not have.
        """
        out = []
        for seed in range(repeats):
            windows = self.windows("test", 0.7, seed, by="sensor", outage=self.test.slots / 24)
            unseen = windows.target_mask & ~windows.mask[:, -1:]
            out.append(eqx.tree_at(lambda w: w.target_mask, windows[::4], unseen[::4]))
        return {
            "longer gaps": self.test_windows(0.1, repeats),
            "6 ahead": self.test_windows(0.3, repeats, queries=6),
            "sensors out": out,
        }


def score(predicted: Float[np.ndarray, "windows queries nodes"], windows: Windows) -> dict[str, float]:
    """The metrics of forecasts over all windows and queries of one undersampling."""
    nodes = predicted.shape[-1]
    y, mask = (np.asarray(a)[..., 0].reshape(-1, nodes) for a in (windows.targets, windows.target_mask))
    return {name: float(metric(predicted.reshape(-1, nodes), y, mask=mask)) for name, metric in _METRICS.items()}


def evaluate(forecast: Forecast, test: Sequence[Windows]) -> dict[str, Float[np.ndarray, " repeats"]]:
    """Each metric for each undersampling of the test days."""
    found = [score(forecast(windows), windows) for windows in test]
    return {name: np.array([scores[name] for scores in found]) for name in _METRICS}


def rows_of(
    model: str, setting: str, scores: dict[str, np.ndarray], paper: dict[str, float] | None = None
) -> list[Row]:
    """The rows of a result: means and standard deviations over undersamplings, and over seeds where there are some."""
    return [Row.over_seeds(model, setting, name, values, (paper or {}).get(name)) for name, values in scores.items()]


def errors_by_gap(forecast: Forecast, test: Sequence[Windows], longest: int = 12) -> dict[int, tuple[float, int]]:
    """The pooled RMSE of the first query by its time after the last observation, and how many windows have that.

    Gaps of `longest` steps and more count as one.
    """
    total, count = np.zeros(longest + 1), np.zeros(longest + 1, int)
    for windows in test:
        mask = np.asarray(windows.target_mask[:, 0, :, 0])
        error = np.where(mask, forecast(windows)[:, 0] - np.asarray(windows.targets[:, 0, :, 0]), 0)
        gap = np.minimum(np.round(windows.query_times[:, 0] - windows.times[:, -1]).astype(int), longest)
        np.add.at(total, gap, (error**2).sum(1) / np.maximum(mask.sum(1), 1))
        np.add.at(count, gap, 1)
    return {gap: (float(np.sqrt(total[gap] / count[gap])), int(count[gap])) for gap in np.flatnonzero(count).tolist()}
