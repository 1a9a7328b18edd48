"""Backtests: forecasts from rolling origins, held against what came, beside two naive ones."""

import dataclasses
from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Float
from rich.table import Table

from .. import metrics
from .._errors import InputError
from ..data import Readings
from ._fitted import Fitted
from ._predict import Forecasts, forecast

# In rows of the table; horizons are the usual time that so many take.
_ROWS_AHEAD = (1, 3, 12, 72, 288)
_MOST_ORIGINS = 192
LEVELS = (50.0, 80.0, 90.0)
NAIVE = ("persistence", "time-of-day mean")
BACKTEST_METRICS = ("rmse_sensor", "rmse", "mae", "crps", "coverage_90")


@dataclasses.dataclass(frozen=True)
class Backtest:
    """Forecasts of readings from origins, each for the reading nearest to a horizon.

    - `horizons`: in the units of the clock, and `names` in words. `horizon` (points,): the number of each point's.
    - `made`: the forecasts of all points, with the naive ones. `y` (points, sensors, variables): what came.
    """

    fitted: Fitted
    horizons: tuple[float, ...]
    names: tuple[str, ...]
    horizon: np.ndarray
    made: Forecasts
    y: Float[np.ndarray, "points sensors variables"]

    @property
    def models(self) -> tuple[str, ...]:
        """The model, then what it must beat."""
        return (self.fitted.config.model, *NAIVE)

    @property
    def points(self) -> int:
        """How many readings were forecast."""
        return int((~np.isnan(self.y)).sum())

    def scores(self, chosen: Bool[np.ndarray, " points"] | None = None) -> Float[np.ndarray, "models metrics"]:
        """The metrics of each model over some of the points; NaN where one has none."""
        return self._scores(chosen, None)

    def by_horizon(self) -> Float[np.ndarray, "models metrics horizons"]:
        """The same for each horizon."""
        return np.stack([self._scores(self.horizon == h, None) for h in range(len(self.horizons))], axis=-1)

    def by_series(self, horizon: int | None = None) -> Float[np.ndarray, "models metrics series"]:
        """The same for each sensor and variable, at one horizon or at all."""
        chosen = None if horizon is None else self.horizon == horizon
        return np.stack([self._scores(chosen, k) for k in range(self.y[0].size)], axis=-1)

    def coverage(self, level: float) -> tuple[float, float]:
        """How much of the truth the interval of a level, in percent, covered, in percent, and its mean width."""
        low, high = self.made.interval(level)
        mask = ~np.isnan(self.y)
        share = metrics.coverage(low, high, np.nan_to_num(self.y), mask=mask)
        return 100 * float(share), float(metrics.interval_width(low, high, mask=mask))

    def _scores(self, chosen: np.ndarray | None, series: int | None) -> np.ndarray:
        def some(a: np.ndarray) -> np.ndarray:
            a = a.reshape(len(a), -1)
            a = a if series is None else a[:, series : series + 1]
            return a if chosen is None else a[chosen]

        y = some(self.y)
        mask = ~np.isnan(y)
        y = np.nan_to_num(y)
        out = np.full((3, len(BACKTEST_METRICS)), np.nan)
        if not mask.any():
            return out
        for m, mean in enumerate((self.made.mean, self.made.last, self.made.expected)):
            f = some(mean)
            out[m, 0] = float(metrics.rmse_sensor(f, y, mask=mask))
            out[m, 1] = float(metrics.rmse(f, y, mask=mask))
            out[m, 2] = out[m, 3] = float(metrics.mae(f, y, mask=mask))
        low, high = (some(a) for a in self.made.interval(90))
        out[0, 3] = self._crps(some, y, mask)
        out[0, 4] = 100 * float(metrics.coverage(low, high, y, mask=mask))
        return out

    def _crps(self, some, y: np.ndarray, mask: np.ndarray) -> float:
        """Twice the mean pinball loss over evenly spaced levels, which tends to the score as they become many."""
        levels = np.arange(0.05, 1, 0.05)
        losses = [metrics.pinball(some(self.made.quantile(q)), y, float(q), mask=mask) for q in levels.round(3)]
        return 2 * float(np.mean(losses))

    def table(self) -> dict[str, np.ndarray]:
        """A row for each sensor, variable, horizon and model."""
        readings = self.fitted.readings
        variables = readings.variables
        rows: list[tuple] = []
        for h, name in enumerate(self.names):
            found = self.by_series(h)
            counts = (~np.isnan(self.y[self.horizon == h])).reshape((self.horizon == h).sum(), -1).sum(0)
            for k in range(found.shape[-1]):
                sensor, variable = divmod(k, len(variables))
                for m, model in enumerate(self.models):
                    rows.append((readings.ids[sensor], variables[variable], name, model, counts[k], *found[m, 1:, k]))
        names = ("unique_id", "variable", "horizon", "model", "readings", *BACKTEST_METRICS[1:])
        columns: dict[str, np.ndarray] = {}
        for name, cells in zip(names, zip(*rows, strict=True), strict=True):
            columns[name] = np.array(cells)
        if len(variables) == 1:
            del columns["variable"]
        return columns


def backtest(fitted: Fitted, readings: Readings, after: float, horizons: Sequence[float] | None = None) -> Backtest:
    """Forecast the readings after a stamp, from origins that roll over them; the model stays as it is."""
    clock = readings.clock
    readings = readings.seen()
    stamps = readings.stamps
    origins = np.flatnonzero(stamps >= after)
    if len(origins) < 2:
        raise InputError(
            f"{readings.end}: expected readings up to here that are later than those the model was fitted to, at two "
            "stamps or more, got fewer. Give later ones, or no model, to fit one to the first days."
        )
    origins = origins[:-1]
    usual = float(np.median(np.diff(stamps)))
    farthest = fitted.shape.horizon * clock.step
    if horizons is None:
        horizons = [n * usual for n in _ROWS_AHEAD if n * usual <= farthest * 1.01 and n < len(origins)] or [usual]
    for h in horizons:
        if not h > 0:
            raise InputError(f"horizons: expected positive lengths of time, got {h}.")
    chosen = origins[np.linspace(0, len(origins) - 1, min(_MOST_ORIGINS, len(origins))).astype(int)]
    target, start, which = [], [], []
    for k, h in enumerate(horizons):
        # The next reading is what comes next, however far away; the others are the nearest to their horizon.
        if k == 0 and h <= usual:
            at, near = chosen + 1, np.ones(len(chosen), bool)
        else:
            wanted = stamps[chosen] + h
            at = _nearest(stamps, wanted)
            near = (at == chosen + 1) | (np.abs(stamps[at] - wanted) <= max(0.5 * h, usual))
            # At the end of the readings the nearest ones are nearer than the horizon.
            near &= (at > chosen) & (wanted <= stamps[-1] + usual / 2)
        target.append(at[near])
        start.append(chosen[near])
        which.append(np.full(int(near.sum()), k))
    rows, starts = np.concatenate(target), np.concatenate(start)
    if not len(rows):
        raise InputError(
            f"horizons: expected lengths of time up to {clock.say(float(stamps[-1] - stamps[origins[0]]))}, which the "
            f"readings to test on take, got {', '.join(clock.say(h) for h in horizons)}. Give shorter ones, or later "
            "readings."
        )
    made = forecast(fitted, readings, stamps[rows], origins=stamps[starts], known=readings.known[rows])
    names = tuple(clock.say(h) for h in horizons)
    return Backtest(fitted, tuple(horizons), names, np.concatenate(which), made, readings.values[rows])


def backtest_table(test: Backtest) -> Table:
    """The scores as a table that fits a terminal: models down, horizons across, then all together."""
    found, overall = test.by_horizon(), test.scores()
    table = Table(title=f"RMSE of {test.points} readings by how far ahead, and what 90 % intervals covered")
    table.add_column("forecast", no_wrap=True)
    for name in (*test.names, "all", "covered"):
        table.add_column(name, justify="right", no_wrap=True)
    for m, model in enumerate(test.models):
        cells = [f"{value:.3g}" for value in (*found[m, 1], overall[m, 1])]
        table.add_row(model, *cells, "" if np.isnan(overall[m, 4]) else f"{overall[m, 4]:.1f} %")
    return table


def _nearest(stamps: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    right = np.clip(np.searchsorted(stamps, wanted), 1, len(stamps) - 1)
    return np.where(wanted - stamps[right - 1] < stamps[right] - wanted, right - 1, right)
