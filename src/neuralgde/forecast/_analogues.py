"""Forecasts from the days that looked alike, and blends of two forecasts."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from .._errors import InputError
from ..data import SensorSeries, Windows
from ._losses import FORECAST_BATCH
from ._ridge import filled, shares


class Analogues(eqx.Module):
    """The change that followed on other days, at about the same time of day, when a sensor had shown much the same.

    A candidate is a day with a shift of up to `shift` steps, since what happens every day comes a little sooner or
    later. How unlike it is, is for each sensor the mean square of what differs over the observations of a window, each
    counted `fading` times as much as the one after it, and a share `around` of it is that of the neighbours, 0 where
    there are none. The forecast adds to the last value the mean change of all candidates, weighted with
    exp(-unlike / (2 width^2)).

    The day of a window is no candidate, nor are the days beside it, which a window at midnight reaches into. So it
    can forecast the days that it knows, and a network can be trained on what it misses there.

    - `days`: readings, those between two of a day on a straight line; `read`: which sensors have any on a day.
    - `numbers`: of the days in the calendar, to tell them from the day of a window.
    """

    days: Float[Array | np.ndarray, "days slots nodes"]
    read: Bool[Array | np.ndarray, "days nodes"]
    numbers: Int[Array | np.ndarray, " days"]
    neighbours: Float[Array | np.ndarray, "nodes nodes"]
    width: Float[Array | np.ndarray, ""]
    shift: int = eqx.field(static=True, default=4)
    fading: float = eqx.field(static=True, default=0.3)
    around: float = eqx.field(static=True, default=0.3)

    @staticmethod
    def of(series: SensorSeries, neighbours: Float[np.ndarray, "nodes nodes"], width: float) -> "Analogues":
        """The days of a series; `width` is in the units of the readings.

        `neighbours` are weights of the sensors that each one hears, [receiver, sender]; they are made to add up to 1.
        """
        days = series.values.reshape(len(series.dates), series.slots, -1)
        whole = np.stack([_whole(day) for day in days])
        read = np.asarray(np.any(~np.isnan(days), axis=1))
        return Analogues(whole, read, series.day_numbers.astype(np.int32), shares(neighbours), np.asarray(width, float))

    def __call__(self, windows: Windows) -> Any:
        """Forecasts (windows, queries, nodes), by the library of the windows."""
        if windows.day is None:
            raise InputError(
                "windows: expected the `day` of each, which must not tell of itself. `make_windows` has it."
            )
        if not isinstance(windows.values, np.ndarray):
            return self._forecast(windows)
        # So many at a time, the last ones padded: all windows share a program.
        parts, forecast = [], eqx.filter_jit(Analogues._forecast)
        for start in range(0, len(windows), FORECAST_BATCH):
            some = windows[np.minimum(np.arange(start, start + FORECAST_BATCH), len(windows) - 1)]
            parts.append(np.asarray(forecast(self, jax.tree.map(jnp.asarray, some)), float))
        return np.concatenate(parts)[: len(windows)]

    def _forecast(self, windows: Windows) -> Float[Array, "windows queries nodes"]:
        asked = (filled(windows), windows.times, windows.query_times, windows.day)
        # One window after the other: the candidates of many would fill the memory.
        return jax.lax.map(lambda window: window[0][-1] + self._change(*window), asked)

    def _change(
        self, x: Float[Array, "length nodes"], times: Array, query_times: Array, day: Array
    ) -> Float[Array, "queries nodes"]:
        past = self._at(jnp.round(times).astype(jnp.int32))
        before = jnp.floor(query_times)
        part = (query_times - before)[:, None]
        step = before.astype(jnp.int32)
        ahead = self._at(step) * (1 - part) + self._at(step + 1) * part
        counts = self.fading ** np.arange(len(x))[::-1]
        unlike = jnp.einsum("dsln,l->dsn", (past - x) ** 2, jnp.asarray(counts / counts.sum(), x.dtype))
        unlike = (1 - self.around) * unlike + self.around * (unlike @ jnp.asarray(self.neighbours).T)
        other = jnp.abs(jnp.asarray(self.numbers) - day) > 1
        candidates = (other[:, None] & jnp.asarray(self.read))[:, None]
        # All 0 where there is no candidate: nothing is known of the change then.
        weight = jax.nn.softmax(-unlike / (2 * self.width**2), axis=(0, 1), where=candidates)
        return jnp.einsum("dsn,dsqn->qn", weight, ahead - past[:, :, -1:])

    def _at(self, steps: Int[Array, " times"]) -> Float[Array, "days shifts times nodes"]:
        """Of every day what was read at some times of day, and a little before and after; the day is a circle."""
        days = jnp.asarray(self.days)
        shifts = jnp.arange(-self.shift, self.shift + 1, dtype=jnp.int32)
        return days[:, (steps + shifts[:, None]) % days.shape[1]]


def _whole(day: Float[np.ndarray, "slots nodes"]) -> Float[np.ndarray, "slots nodes"]:
    """A day without holes, from its own readings alone: other days would bring back the one that is to be forecast."""
    slots, there = np.arange(len(day)), ~np.isnan(day)
    out = [
        np.interp(slots, slots[on], values[on]) if np.any(on) else np.zeros(len(day))
        for values, on in zip(day.T, there.T, strict=True)
    ]
    return np.stack(out, axis=1)


class Blend(eqx.Module):
    """Two forecasts of windows as one: `share` of the second, the rest of the first."""

    first: Callable[[Windows], Any]
    second: Callable[[Windows], Any]
    share: Float[Array | np.ndarray, ""]

    def __call__(self, windows: Windows) -> Any:
        """Forecasts (windows, queries, nodes), by the library of the windows."""
        first, second = self.first(windows), self.second(windows)
        return first + self.share * (second - first)
