"""Forecasts from the days that looked alike, and blends of two forecasts."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ..data import SensorSeries, Windows
from ._ridge import filled

_AT_ONCE = 128


class Analogues(eqx.Module):
    """The change that followed on other days, at about the same time of day, when a sensor had shown much the same.

    A candidate is a day with a shift of up to `shift` steps, since what happens every day comes a little sooner or
    later. How unlike it is, is for each sensor the mean square of what differs over the observations of a window, each
    counted `fading` times as much as the one after it, and a share `around` of it is that of the neighbours. The
    forecast adds to the last value the mean change of all candidates, weighted with exp(-unlike / (2 width^2)).

    The day of a window is no candidate, nor are the days beside it, which a window at midnight reaches into. So it
    can forecast the days that it knows, and a network can be trained on what it misses there.
    """

    days: Float[Array | np.ndarray, "days slots nodes"]
    dates: Int[Array | np.ndarray, " days"]
    neighbours: Float[Array | np.ndarray, "nodes nodes"]
    width: Float[Array | np.ndarray, ""]
    shift: int = eqx.field(static=True, default=4)
    fading: float = eqx.field(static=True, default=0.3)
    around: float = eqx.field(static=True, default=0.3)

    @staticmethod
    def of(series: SensorSeries, neighbours: Float[np.ndarray, "nodes nodes"], width: float) -> "Analogues":
        """The days of a series; what was not read is that of the mean day. `width` is in the units of the readings.

        `neighbours` are weights of the sensors that each one hears, [receiver, sender]; they are made to add up to 1.
        """
        days = series.values.reshape(len(series.dates), series.slots, -1)
        days = np.where(np.isnan(days), series.profile(), days)
        near = neighbours / np.maximum(neighbours.sum(1, keepdims=True), 1e-9)
        return Analogues(days, series.days.astype(np.int32), near, np.asarray(width, float))

    def __call__(self, windows: Windows) -> Any:
        """Forecasts (windows, queries, nodes), by the library of the windows."""
        if not isinstance(windows.values, np.ndarray):
            return self._forecast(windows)
        # So many at a time, the last ones padded: all windows share a program.
        parts, forecast = [], eqx.filter_jit(Analogues._forecast)
        for start in range(0, len(windows), _AT_ONCE):
            some = windows[np.minimum(np.arange(start, start + _AT_ONCE), len(windows) - 1)]
            parts.append(np.asarray(forecast(self, jax.tree.map(jnp.asarray, some)), float))
        return np.concatenate(parts)[: len(windows)]

    def _forecast(self, windows: Windows) -> Float[Array, "windows queries nodes"]:
        x, day = filled(windows), windows.day
        asked = (
            jnp.asarray(x),
            windows.times,
            windows.query_times,
            jnp.full(len(x), -2, jnp.int32) if day is None else day,
        )
        # One window after the other: the candidates of many would fill the memory.
        return jax.lax.map(lambda window: window[0][-1] + self._change(*window), asked)

    def _change(
        self, x: Float[Array, "length nodes"], times: Array, query_times: Array, day: Array
    ) -> Float[Array, "queries nodes"]:
        shifts = jnp.arange(-self.shift, self.shift + 1, dtype=jnp.int32)
        past, ahead = (self._at(jnp.round(t).astype(jnp.int32) + shifts[:, None]) for t in (times, query_times))
        counts = self.fading ** np.arange(len(x))[::-1]
        unlike = jnp.einsum("dsln,l->dsn", (past - x) ** 2, jnp.asarray(counts / counts.sum(), x.dtype))
        unlike = (1 - self.around) * unlike + self.around * (unlike @ jnp.asarray(self.neighbours).T)
        other = (jnp.abs(jnp.asarray(self.dates) - day) > 1)[:, None, None]
        least = jnp.min(unlike, axis=(0, 1), where=other, initial=jnp.inf)
        # Without any other day nothing is known of the change.
        weight = jnp.where(
            other, jnp.exp(-(unlike - jnp.where(jnp.isfinite(least), least, 0)) / (2 * self.width**2)), 0
        )
        weight = weight / jnp.maximum(jnp.sum(weight, axis=(0, 1)), 1e-9)
        return jnp.einsum("dsn,dsqn->qn", weight, ahead - past[:, :, -1:])

    def _at(self, steps: Int[Array, "shifts times"]) -> Float[Array, "days shifts times nodes"]:
        """Of every day what was read at some times of day; the day is a circle."""
        days = jnp.asarray(self.days)
        return days[:, steps % days.shape[1]]


class Blend(eqx.Module):
    """Two forecasts of windows as one: `share` of the second, the rest of the first."""

    first: Any
    second: Any
    share: Float[Array | np.ndarray, ""]

    def __call__(self, windows: Windows) -> Any:
        """Forecasts (windows, queries, nodes), by the library of the windows."""
        first, second = self.first(windows), self.second(windows)
        return first + self.share * (second - first)
