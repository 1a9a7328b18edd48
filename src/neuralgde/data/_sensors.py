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

    @property
    def day_numbers(self) -> Int[np.ndarray, " days"]:
        """The number of each day in the calendar: that of days since 1970."""
        return self.dates.astype("datetime64[D]").astype(np.int64)

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

    def profile(self, width: int = 1) -> Float[np.ndarray, "slots sensors"]:
        """The mean day: of each sensor at each time of day, over the days that have a reading then.

        A time of day that never has one gets the mean of the sensor, and a sensor without any the mean of all. A few
        days leave a noisy mean: with `width` it is smoothed over so many times of day.
        """
        days = self._by_day()
        there = ~np.isnan(days)
        total, count = np.where(there, days, 0).sum(0, dtype=float), there.sum(0)
        return _smooth(self._mean_or_less(total, count), width)

    def mean_of_other_days(self, width: int = 1) -> Float[np.ndarray, "rows sensors"]:
        """What the profile of all other days says of each row: what was to be expected before its day was seen.

        A reading is closer to a mean that it had a part in than one of a later day will be, so a model that is trained
        on what is off the mean day should be trained on this.
        """
        days = self._by_day()
        there, values = ~np.isnan(days), np.where(np.isnan(days), 0, days)
        total, count = values.sum(0, dtype=float) - values, there.sum(0) - there
        return np.stack([_smooth(self._mean_or_less(*day), width) for day in zip(total, count, strict=True)]).reshape(
            self.values.shape
        )

    def _by_day(self) -> Float[np.ndarray, "days slots sensors"]:
        return self.values.reshape(len(self.dates), self.slots, -1)

    def _mean_or_less(self, total: np.ndarray, count: np.ndarray) -> Float[np.ndarray, "slots sensors"]:
        """Means by time of day; where there is nothing, that of the sensor, and at last that of all."""
        each = _mean(self.values, 0)
        each = np.where(np.isnan(each), _mean(self.values, None), each)
        return np.where(count > 0, total / np.maximum(count, 1), each)


def _smooth(profile: Float[np.ndarray, "slots sensors"], width: int) -> Float[np.ndarray, "slots sensors"]:
    """The profile under a bell of so many slots, an odd number; the day is a circle."""
    if width < 1 or width % 2 == 0:
        raise InputError(f"width: expected an odd number of times of day, such as 7, got {width}.")
    bell = np.hanning(width + 2)[1:-1]
    shifted = [b * np.roll(profile, k - width // 2, axis=0) for k, b in enumerate(bell / bell.sum())]
    return np.sum(shifted, axis=0)


def _mean(values: np.ndarray, axis: int | None) -> np.ndarray:
    """The mean without NaN, in float64; NaN of nothing, without a warning."""
    there = ~np.isnan(values)
    count = there.sum(axis)
    total = np.where(there, values, 0).sum(axis, dtype=float)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)
