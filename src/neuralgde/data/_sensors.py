"""SensorSeries: the readings of fixed sensors, so many a day."""

import dataclasses
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, Int

from .._errors import InputError, unknown_name
from ..graph import Graph

GRAPHS = ("percentile", "gaussian")


@dataclasses.dataclass(frozen=True)
class SensorSeries:
    """Readings of sensors at equally spaced times of each day. Days may be missing between two days.

    - `values` (rows, sensors): NaN where there is no reading. Row `day * slots + slot` is a snapshot.
    - `dates` (days,): the date of each day, as datetime64, increasing.
    - `distances` (sensors, sensors): symmetric; infinite between sensors that no way joins.
    - `sensors`: their names.
    - `name`: what the data is called in tables.
    """

    values: Float[np.ndarray, "rows sensors"]
    dates: np.ndarray
    distances: Float[np.ndarray, "from to"]
    sensors: tuple[str, ...]
    name: str

    def __post_init__(self):
        (rows, sensors), days = self.values.shape, len(self.dates)
        if not days or rows % days or not rows:
            raise InputError(f"values: expected as many rows for each of {days} days, got {rows} rows.")
        if self.distances.shape != (sensors, sensors) or len(self.sensors) != sensors:
            raise InputError(
                f"distances, sensors: expected those of {sensors} sensors, as values has, got distances of shape "
                f"{self.distances.shape} and {len(self.sensors)} names."
            )
        if bad := np.flatnonzero(np.diff(self.dates) <= np.timedelta64(0))[:1].tolist():
            raise InputError(f"dates[{bad[0] + 1}] is {self.dates[bad[0] + 1]}: expected increasing dates.")

    @property
    def slots(self) -> int:
        """Readings a day."""
        return len(self.values) // len(self.dates)

    @property
    def slot(self) -> Int[np.ndarray, " rows"]:
        """The place of each row in its day."""
        return np.arange(len(self.values)) % self.slots

    @property
    def steps(self) -> Int[np.ndarray, " rows"]:
        """The time of each row since the first, by the calendar, in steps from one reading to the next."""
        days = (self.dates - self.dates[0]).astype("timedelta64[D]").astype(np.int64)
        return np.repeat(days * self.slots, self.slots) + self.slot

    def take_days(self, days: slice | Sequence[int]) -> "SensorSeries":
        """Some of the days, by their place in `dates`."""
        chosen = np.arange(len(self.dates))[days]
        by_day = self.values.reshape(len(self.dates), self.slots, -1)
        return dataclasses.replace(
            self, values=by_day[chosen].reshape(-1, self.values.shape[1]), dates=self.dates[chosen]
        )

    def split_days(self, counts: Sequence[int]) -> tuple["SensorSeries", ...]:
        """Parts of so many days each, one after the other; days beyond them are left out."""
        if min(counts) < 1 or sum(counts) > len(self.dates):
            raise InputError(
                f"counts: expected whole days, 1 or more, that add up to at most the {len(self.dates)} there are, got "
                f"{tuple(counts)}."
            )
        ends = np.cumsum(counts).tolist()
        return tuple(self.take_days(slice(end - n, end)) for n, end in zip(counts, ends, strict=True))

    def graph(self, kind: str = "percentile", *, percentile: float = 40, sigma: float = 3162.0) -> Graph:
        """The graph of the sensors, from their distances.

        "percentile" joins sensors no further apart than that percentile of all distances, as the paper does.
        "gaussian" weighs edges with exp(-d^2 / sigma^2) and keeps those from 0.5 on; the default sigma, for metres, is
        that of the data's first users (Yu, Yin and Zhu 2018).
        """
        if kind not in GRAPHS:
            raise InputError(unknown_name("graph", kind, GRAPHS))
        if kind == "percentile":
            return Graph.from_distances(self.distances, percentile)
        return Graph.from_gaussian_kernel(self.distances, sigma, threshold=0.5)

    def profile(self) -> Float[np.ndarray, "slots sensors"]:
        """The mean day: of each sensor at each time of day, over the days that have a reading then.

        A time of day that never has one gets the mean of the sensor, and a sensor without any the mean of all.
        """
        by_day = self.values.reshape(len(self.dates), self.slots, -1)
        everything = _mean(self.values, None)
        each = _mean(self.values, 0)
        found = _mean(by_day, 0)
        return np.where(np.isnan(found), np.where(np.isnan(each), everything, each), found)


def _mean(values: np.ndarray, axis: int | None) -> np.ndarray:
    """The mean without NaN, in float64; NaN of nothing, without a warning."""
    there = ~np.isnan(values)
    count = there.sum(axis)
    total = np.where(there, values, 0).sum(axis, dtype=float)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)
