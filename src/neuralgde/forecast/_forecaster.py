"""Forecaster: tables in, tables out."""

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .._errors import InputError
from ..data import Columns, Readings, join, make_frame, read_edges, read_series, read_table, read_times, to_dates
from ._backtest import Backtest, backtest
from ._config import ForecastConfig
from ._explain import changed, effects
from ._extend import extend
from ._file import load_fitted, save_fitted
from ._fitted import Fitted, fit_tables, summary
from ._impute import impute
from ._predict import Forecasts, forecast, known_at

_ENDS = (("lo", -1), ("hi", 1))


class Forecaster:
    """Forecasts of the readings of sensors on a graph, at any times, with intervals.

    ```python
    f = Forecaster(model="gcde-gru", seed=0).fit(series, edges)
    f.predict(["2024-03-31 08:05", "2024-03-31 09:00"], level=(80, 95))
    ```

    Tables are frames of pandas or polars, or files; frames that come out are of the kind that went in, and dictionaries
    of arrays where files did, with dates in UTC where they had a zone. The options are those of `ForecastConfig`.
    """

    def __init__(self, model: str = "gcde-gru", *, seed: int = 0, **options: Any):
        self.config = ForecastConfig.from_dict({"model": model, "seed": seed, **options})
        self._fitted: Fitted | None = None
        self._backend: Any = None

    def fit(
        self,
        series: Any,
        edges: Any = None,
        *,
        coordinates: Any = None,
        checkpoint: str | Path | None = None,
        progress: bool | None = None,
        say: Callable[[str], None] | None = None,
    ) -> "Forecaster":
        """Learn from a table of readings and a table of edges.

        **Arguments**

        - `series`: long, with the columns unique_id, ds, y or others that `ForecastConfig` names; wide, a column of
          stamps and one for each sensor; or a matrix without names, (times, sensors).
        - `edges`: the columns source, target, perhaps weight, and perhaps start and end; or a matrix.
        - `coordinates`: of the sensors, latitude and longitude or x and y; they make the edges where none are given.
        - `checkpoint`: a file that training is saved to on the way, and goes on from where it exists.
        - `progress`: None shows a bar on a terminal, True also prints elsewhere, False is quiet. `say` is called with
          a sentence at each stage.
        """
        config = self.config
        table = read_table(series, "series")
        columns = Columns(config.id, config.time, config.values, config.known, config.static)
        readings = read_series(table, columns, zone=config.zone, period=config.period)
        return self._fit(table.backend, readings, edges, coordinates, checkpoint=checkpoint, progress=progress, say=say)

    def _fit(
        self,
        backend: Any,
        readings: Readings,
        edges: Any,
        coordinates: Any,
        *,
        checkpoint: str | Path | None = None,
        progress: bool | None = None,
        say: Callable[[str], None] | None = None,
    ) -> "Forecaster":
        self._backend = backend
        found = read_edges(
            edges, readings.ids, coordinates=coordinates, undirected=self.config.undirected, clock=readings.clock,
            silent=readings.silent,
        )  # fmt: skip
        self._fitted = fit_tables(
            self.config, readings, found, say=say or (lambda _: None), checkpoint=checkpoint, progress=progress
        )
        return self

    @property
    def fitted(self) -> Fitted:
        """What was learned."""
        if self._fitted is None:
            raise InputError("this Forecaster has not been fitted. Call fit(series, edges) first, or load one.")
        return self._fitted

    @property
    def coverage(self) -> dict[int, float]:
        """Of central intervals, the percent promised and the percent of readings that were inside, as measured."""
        return dict(self.fitted.calibration.coverage)

    @property
    def summary(self) -> dict[str, Any]:
        """What was fitted, in numbers and words."""
        return summary(self.fitted)

    # Forecasts

    def predict(
        self,
        times: Any,
        history: Any = None,
        level: Sequence[float] | float = (80, 95),
        *,
        quantiles: Sequence[float] | None = None,
        num_samples: int | None = None,
        future: Any = None,
        edges: Any = None,
    ) -> Any:
        """Forecasts at `times`, whatever they are: unique_id, ds, mean, and lo-80, hi-80 and so on for each level.

        **Arguments**

        - `times`: dates or numbers, as the stamps of the table. Each is forecast from the readings before it.
        - `history`: readings since the fit, as a table of the same kind, which are taken in without learning again.
          Sensors that were not there are forecast too where `edges` joins them to others.
        - `level`: of central intervals, in percent. `quantiles`: columns q-0.1 and so on, for probabilities.
        - `num_samples`: columns sample-1 and so on, each of which is one path over all times and sensors together.
        - `future`: a table of the columns known in advance at the times asked for.

        With several value columns there is a row for each, named in the column `variable`.
        """
        made = self.forecasts(times, history, future=future, edges=edges)
        return self._frame(made, level, quantiles, num_samples)

    def forecasts(self, times: Any, history: Any = None, *, future: Any = None, edges: Any = None) -> Forecasts:
        """As `predict`, as arrays."""
        fitted, readings = self._with(history, edges)
        stamps = np.unique(read_times(times, readings.clock))
        known = None if future is None else self._future(fitted, future, stamps)
        return forecast(fitted, readings, stamps, known=known)

    def times(self, every: float, until: float | str, history: Any = None) -> np.ndarray:
        """Times every so often after the last reading, up to so long after it or up to a date.

        Lengths are in the units of the table, seconds for dates.
        """
        _, readings = self._with(history)
        clock, last = readings.clock, float(readings.seen().stamps[-1])
        end = float(read_times([until], clock, "until")[0]) if isinstance(until, str) else last + until
        count = int(np.floor((end - last) / every + 1e-9))
        if count < 1:
            raise InputError(f"until: expected a time at least {clock.say(every)} after the last reading, got {until}.")
        stamps = last + every * np.arange(1, count + 1)
        return to_dates(stamps, clock) if clock.dates else stamps

    def impute(self, series: Any = None, level: Sequence[float] | float = (80, 95)) -> Any:
        """The readings that are missing between the first and the last of their sensor, with intervals.

        `series` is a table as for `fit`, by default that of the fit. What came after a gap and what the neighbours
        showed in it is used as well. Rows are those without a reading at stamps that some sensor has.
        """
        fitted = self.fitted
        readings = fitted.readings if series is None else self._read(series).with_sensors(fitted.readings.ids)
        found = impute(fitted, fitted.source(readings))
        sensor, row, variable = np.nonzero(np.moveaxis(found.missing, 0, 1))
        columns: dict[str, np.ndarray] = {
            id_name(fitted): np.array(readings.ids, dtype=object)[sensor],
            stamp_name(fitted): readings.stamps[row],
        }
        if len(readings.variables) > 1:
            columns["variable"] = np.array(readings.variables, dtype=object)[variable]
        at = (row, sensor, variable)
        columns["mean"] = found.mean[at]
        for one in (level,) if isinstance(level, int | float) else tuple(level):
            columns |= {f"{end}-{one:g}": found.quantile(0.5 + sign * one / 200)[at] for end, sign in _ENDS}
        return make_frame(columns, readings.clock, self._backend, stamp_name(fitted))

    def backtest(
        self,
        series: Any,
        edges: Any = None,
        *,
        coordinates: Any = None,
        test: float = 0.15,
        horizons: Sequence[float] | None = None,
        **fitting: Any,
    ) -> Backtest:
        """Forecasts from rolling origins, held against what came, per sensor and horizon, beside two naive ones.

        A Forecaster that was fitted is tested on the readings of `series` after those it knows. One that was not is
        fitted first to all but the last share `test` of the days. `horizons` are lengths of time in the units of the
        table, seconds for dates. `fitting` are further arguments of `fit`.
        """
        if self._fitted is not None:
            own = self.fitted.readings
            new = self._read(series).with_sensors(own.ids)
            return backtest(self.fitted, join(own, new), float(own.seen().stamps[-1]), horizons)
        if not 0 < test < 0.9:
            raise InputError(f"test: expected a share of the days, such as 0.15, got {test}.")
        table = read_table(series, "series")
        config = self.config
        columns = Columns(config.id, config.time, config.values, config.known, config.static)
        readings = read_series(table, columns, zone=config.zone, period=config.period)
        cut = _cut(readings.seen(), test)
        self._fit(table.backend, _known(readings.before(cut)), edges, coordinates, **fitting)
        return backtest(self.fitted, readings.with_sensors(self.fitted.readings.ids), cut, horizons)

    # Looking into it

    def explain(self, sensor: str, time: Any, history: Any = None) -> Any:
        """Which sensors move the forecast of one at a time, the strongest first: source, edge, effect.

        The effect is how much the forecast rises where the sensor's readings, all that the forecast looks at, are one
        standard deviation higher. `edge` says whether the graph joins the two.
        """
        fitted, readings = self._with(history)
        (stamp,) = read_times([time], readings.clock, "time")
        return make_frame(effects(fitted, readings, sensor, float(stamp)), readings.clock, self._backend)

    def what_if(
        self,
        times: Any,
        *,
        cut: Sequence[tuple[str, str]] = (),
        silence: Sequence[str] = (),
        history: Any = None,
        level: Sequence[float] | float = (80, 95),
    ) -> Any:
        """Forecasts as from `predict`, with edges (source, target) cut or with sensors that show nothing."""
        fitted, readings = self._with(history)
        stamps = np.unique(read_times(times, readings.clock))
        made = changed(fitted, readings, stamps, cut=list(cut), silence=[str(name) for name in silence])
        return self._frame(made, level, None, None)

    # Files

    def save(self, path: str | Path) -> None:
        """Write the model to one file: weights, scales, graph, columns, clock, settings, and the last readings."""
        save_fitted(path, self.fitted)

    @staticmethod
    def load(path: str | Path) -> "Forecaster":
        """The model in a file that `save` wrote."""
        fitted = load_fitted(path)
        made = Forecaster()
        made.config, made._fitted = fitted.config, fitted
        return made

    # Parts

    def _with(self, history: Any, edges: Any = None) -> tuple[Fitted, Readings]:
        """The model, and all readings it knows with those of `history`, its own sensors in its own order."""
        fitted = self.fitted
        if history is None:
            return fitted, fitted.readings
        new = self._read(history)
        strangers = [name for name in new.ids if name not in fitted.readings.ids]
        if strangers and edges is None:
            raise InputError(
                f"history: sensor {strangers[0]!r} was not there when the model was fitted. Give edges= that join it "
                "to others, or drop its rows."
            )
        if not strangers:
            return fitted, join(fitted.readings, new.with_sensors(fitted.readings.ids))
        ids = [*fitted.readings.ids, *strangers]
        readings = join(fitted.readings.with_sensors(ids), new.with_sensors(ids))
        found = read_edges(edges, ids, undirected=fitted.config.undirected, clock=readings.clock)
        return extend(fitted, readings, found), readings

    def _read(self, history: Any) -> Readings:
        fitted = self.fitted
        table = read_table(history, "history")
        self._backend = table.backend
        own = fitted.readings
        columns = own.columns if own.columns.layout == "long" else dataclasses.replace(own.columns, values=own.ids)
        if columns.layout == "matrix":
            raise InputError("history: the model was fitted to a matrix without stamps, and cannot take in more.")
        return read_series(table, columns, zone=fitted.config.zone, clock=own.clock)

    def _future(self, fitted: Fitted, future: Any, stamps: np.ndarray) -> np.ndarray:
        own = fitted.readings
        if not own.columns.known:
            raise InputError(
                "future: the model was fitted without columns known in advance. Fit it with known=, or --known."
            )
        columns = dataclasses.replace(own.columns, values=own.columns.known, static=())
        found = read_series(read_table(future, "future"), columns, zone=fitted.config.zone, clock=own.clock)
        if columns.layout == "wide":
            # There they are columns of their own, the same for every sensor.
            return np.repeat(known_at(found, stamps)[:, :1], len(own.ids), axis=1)
        return known_at(found.with_sensors(own.ids), stamps)

    def _frame(self, made: Forecasts, level: Any, quantiles: Sequence[float] | None, num_samples: int | None) -> Any:
        return make_frame(
            forecast_columns(made, level, quantiles, num_samples),
            made.fitted.readings.clock,
            self._backend,
            stamp_name(made.fitted),
        )


def _cut(readings: Readings, test: float) -> float:
    """The first stamp of the last share of the days, or of the rows where there are few days."""
    day = readings.clock.cycle_number(readings.stamps)
    days = np.unique(day)
    if len(days) >= 5:
        return float(readings.stamps[day >= days[-max(1, round(test * len(days)))]][0])
    return float(readings.stamps[int(len(readings.stamps) * (1 - test))])


def _known(readings: Readings) -> Readings:
    """The sensors that have a reading; the others are silent."""
    empty = np.flatnonzero(np.isnan(readings.values).all(axis=(0, 2))).tolist()
    silent = [readings.ids[i] for i in empty]
    if not silent:
        return readings
    some = readings.with_sensors([name for name in readings.ids if name not in silent])
    return dataclasses.replace(some, silent=(*readings.silent, *silent))


def id_name(fitted: Fitted) -> str:
    """What the column of sensors is called in tables that go out."""
    columns = fitted.readings.columns
    return (columns.id if columns.layout == "long" else None) or "unique_id"


def stamp_name(fitted: Fitted) -> str:
    """What the column of stamps is called in tables that go out: as in the long table that came in, else ds."""
    columns = fitted.readings.columns
    return (columns.time if columns.layout == "long" else None) or "ds"


def forecast_columns(
    made: Forecasts,
    level: Sequence[float] | float = (80, 95),
    quantiles: Sequence[float] | None = None,
    num_samples: int | None = None,
) -> dict[str, np.ndarray]:
    """The columns of a table of forecasts: sensor after sensor, in the order of time."""
    fitted = made.fitted
    readings = fitted.readings
    variables = readings.variables
    times, sensors, count = made.mean.shape
    levels = (level,) if isinstance(level, int | float) else tuple(level)

    def down(a: np.ndarray) -> np.ndarray:
        return np.moveaxis(a, 0, 1).reshape(-1)

    columns = {
        id_name(fitted): np.repeat(np.array(readings.ids, dtype=object), times * count),
        stamp_name(fitted): np.tile(np.repeat(made.stamps, count), sensors),
    }
    if count > 1:
        columns["variable"] = np.tile(np.array(variables, dtype=object), sensors * times)
    columns["mean"] = down(made.mean)
    for one in levels:
        low, high = made.interval(one)
        columns |= {f"lo-{one:g}": down(low), f"hi-{one:g}": down(high)}
    for q in quantiles or ():
        columns[f"q-{q:g}"] = down(made.quantile(q))
    if num_samples is not None:
        paths = made.draw(num_samples, fitted.config.seed)
        columns |= {f"sample-{i + 1}": down(path) for i, path in enumerate(paths)}
    return columns
