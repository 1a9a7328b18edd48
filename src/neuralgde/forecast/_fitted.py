"""Fitted: all that a Forecaster knows after `fit`, and how it comes about."""

import dataclasses
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from .._errors import InputError
from ..data import Edges, Readings, Windows
from ._calibration import Calibration, calibrate, measured_apart
from ._config import NETWORKS, ForecastConfig
from ._losses import GapWeights
from ._networks import make_network, make_view, train_network
from ._predictors import NetworkPredictor, Predictor, RulePredictor, Spread, by_variable, gap_of
from ._profile import Profile, fit_profile
from ._ridge import Ridge, fit_ridge, last_value
from ._source import Shape, Source, make_graph, make_shape

# Rows that are looked at to calibrate, to choose and to fit regressions, at most.
_MOST_ENDS = 512
_MOST_RIDGE_ENDS = 2500
# Observations that are kept in the model, as many windows' worth.
_TAIL_WINDOWS = 4
_LEAST_ROWS = 20


@dataclasses.dataclass(frozen=True)
class Fitted:
    """A model of a table.

    - `readings`: those of `fit`, or after `load` the last ones of them, which forecasts start from.
    - `static` (sensors, channels): static columns in units of their own, and `static_scale` (2, channels) those units.
    - `training`: curves over the steps, by name, of networks. `splits`: the first stamps of validation and calibration.
    """

    config: ForecastConfig
    readings: Readings
    edges: Edges
    profile: Profile
    shape: Shape
    static: Float[np.ndarray, "sensors static"]
    static_scale: Float[np.ndarray, "2 static"]
    predictor: Predictor
    calibration: Calibration
    splits: tuple[float, float]
    training: dict[str, np.ndarray]
    seconds: float
    notes: tuple[str, ...]

    def source(self, readings: Readings) -> Source:
        """Readings of the same sensors, to make windows of."""
        return Source(readings, self.profile, self.shape, self.static, self.edges)

    @property
    def tail(self) -> Readings:
        """The last readings, and what is known after them: what a saved model keeps."""
        first = self.readings.seen().stamps[-_TAIL_WINDOWS * self.shape.length :][0]
        return self.readings.rows(np.flatnonzero(self.readings.stamps >= first))


def fit_tables(
    config: ForecastConfig,
    readings: Readings,
    edges: Edges,
    *,
    say: Callable[[str], None],
    checkpoint: str | Path | None = None,
    progress: bool | None = None,
) -> Fitted:
    """Split by time, learn what is to be expected, fit the model, and calibrate its intervals on days of their own."""
    began = time.perf_counter()
    notes = [*readings.notes, *edges.notes]
    # Rows without a reading, such as those with what is known in advance alone, are nothing to learn or to count.
    everything, readings = readings, readings.seen()
    shape = make_shape(readings, config.horizon, config.length)
    first, second = split_rows(readings, config, shape)
    train, validation = readings.rows(slice(0, first)), readings.rows(slice(first, second))
    profile, others = fit_profile(train, validation)
    static_scale, static = _static_units(readings.static)
    whole = Source(readings, profile, shape, static, edges)
    fit_source = dataclasses.replace(whole, readings=train, given=others)
    choose_source = dataclasses.replace(whole, readings=validation)
    if config.model in NETWORKS:
        _check_windows({"learn from": fit_source, "choose by": choose_source})
    parts = (first, second - first, len(readings.stamps) - second)
    say(f"{parts[0]} stamps to learn from, {parts[1]} to choose by, {parts[2]} to calibrate intervals on")

    training: dict[str, np.ndarray] = {}
    if config.model != "persistence":
        say("fitting linear regressions")
    if config.model in NETWORKS:
        rules = _rules(config, fit_source, whole, first, second)
        lines = tuple(rule for rule in rules.rules if isinstance(rule, Ridge))
        view, weights = make_view(train, fit_source.base, lines)
        network = make_network(
            config, shape, sensors=len(readings.ids), variables=readings.values.shape[2],
            inputs=readings.values.shape[2] + (0 if whole.inputs is None else whole.inputs.shape[-1]),
            edges=len(edges.senders) > 0, period=readings.clock.period, key=jax.random.key(config.seed),
        )  # fmt: skip
        graph = make_graph(edges, len(readings.ids))
        left = None if config.time_limit is None else max(0.0, 0.85 * config.time_limit - (time.perf_counter() - began))
        if checkpoint is not None and Path(checkpoint).exists():
            say(f"going on from {checkpoint}")
        result = train_network(
            network, config, view, weights, _gap_weights(rules.spread), graph, fit_source, choose_source,
            seconds=left, checkpoint=checkpoint, progress=progress,
        )  # fmt: skip
        taken = int(result.steps)
        if config.time_limit is not None and taken < config.steps:
            notes.append(f"time limit: training was cut to {taken} of {config.steps} steps to keep to it.")
        training = {name: np.asarray(result.history[name], float) for name in ("step", "loss", "validation")}
        predictor: Predictor = NetworkPredictor(result.best, view, graph)
        if not np.isfinite(training["validation"]).any():
            raise InputError("training: the network's forecasts are not finite. Try a smaller rate, or model='ridge'.")
    else:
        predictor = _rules(config, fit_source, whole, first, second)
    say("calibrating intervals")
    calibration = _calibrated(predictor, whole, second, config.seed, notes)
    splits = (float(readings.stamps[first]), float(readings.stamps[second]))
    return Fitted(
        config, everything, edges, profile, shape, static, static_scale, predictor, calibration, splits, training,
        time.perf_counter() - began, tuple(notes),
    )  # fmt: skip


def split_rows(readings: Readings, config: ForecastConfig, shape: Shape) -> tuple[int, int]:
    """The first rows of validation and of calibration: whole days where there are enough, else shares of the rows."""
    rows = len(readings.stamps)
    if rows < max(_LEAST_ROWS, 2 * shape.length):
        raise InputError(
            f"{readings.end}: expected {max(_LEAST_ROWS, 2 * shape.length)} stamps or more up to here to learn from, "
            f"got {rows}. Give a longer table."
        )
    day = readings.clock.cycle_number(readings.stamps)
    days, starts = np.unique(day, return_index=True)
    if len(days) >= 7:
        counts = [max(1, round(share * len(days))) for share in (config.validation, config.calibration)]
        # At least two days for intervals: one may be a special one.
        counts[1] = max(2, counts[1])
        return int(starts[len(days) - sum(counts)]), int(starts[len(days) - counts[1]])
    first = round(rows * (1 - max(0.15, config.validation) - max(0.2, config.calibration)))
    return first, round(rows * (1 - max(0.2, config.calibration)))


def _check_windows(sources: dict[str, Source]) -> None:
    """Refuse parts of a table in which no window of a network fits."""
    for use, source in sources.items():
        if not len(source.fresh(queries=1, outages=0.0).rows):
            raise InputError(
                f"{source.readings.end}: of the stamps up to here {len(source.readings.stamps)} are to {use}, and a "
                f"network needs {source.shape.length + 1} or more without a break among them. Give a longer table, a "
                "smaller length, or model='ridge'."
            )


def _rules(config: ForecastConfig, learned: Source, whole: Source, first: int, second: int) -> RulePredictor:
    variables = whole.readings.values.shape[2]
    rng = np.random.default_rng(config.seed)
    chosen = _asked(whole, np.arange(first, second - 1), second, rng, _MOST_ENDS)
    rules: tuple[Callable, ...] = (last_value,) * variables
    if config.model != "persistence":
        rules = _lines(config, learned, whole, first, second)
    mask = np.asarray(chosen.target_mask)
    error = by_variable(rules, chosen) - np.asarray(chosen.targets, float)
    return RulePredictor(rules, Spread.fit(error, mask, gap_of(chosen)))


def _gap_weights(spread: Spread) -> GapWeights:
    """By how the errors of the regressions grow, in units of each variable's own."""
    sizes = spread.sizes.mean(axis=1)
    sizes = (sizes / sizes.mean(axis=0)).mean(axis=1)
    return GapWeights(jnp.asarray(spread.gaps, float), jnp.asarray(sizes, float))


def _lines(config: ForecastConfig, learned: Source, whole: Source, first: int, second: int) -> tuple[Ridge, ...]:
    """A regression for each variable, learned on the training rows, its penalty chosen on those after them."""
    rng = np.random.default_rng(config.seed)
    train = _asked(learned, np.arange(whole.shape.length - 1, first - 1), first, rng, _MOST_RIDGE_ENDS)
    chosen = _asked(whole, np.arange(first, second - 1), second, rng, _MOST_ENDS)
    variables = whole.readings.values.shape[2]
    return tuple(fit_one_ridge(whole.edges, train.feature(v), chosen.feature(v)) for v in range(variables))


def fit_one_ridge(edges: Edges, train: Windows, chosen: Windows) -> Ridge:
    """The regression for times near and far, with the penalty that is best on the windows to choose by."""
    sensors = train.values.shape[2]
    weights = np.zeros((sensors, sensors))
    np.add.at(weights, (edges.receivers, edges.senders), edges.weights)
    y, mask = (np.asarray(a)[..., 0] for a in (chosen.targets, chosen.target_mask))

    def error(ridge: Ridge) -> float:
        return float(np.mean((ridge(chosen) - y)[mask] ** 2)) if mask.any() else ridge.penalty

    return fit_ridge("fading", weights, edges.nearest(sensors), [train], error)


def _calibrated(predictor: Predictor, whole: Source, second: int, seed: int, notes: list[str]) -> Calibration:
    rows = np.arange(second, len(whole.readings.stamps) - 1)
    windows = _asked(whole, rows, len(whole.readings.stamps), np.random.default_rng(seed), _MOST_ENDS)
    mean, std = predictor(windows)
    day = whole.readings.clock.cycle_number(whole.readings.stamps[_some(rows, _MOST_ENDS)])
    mask = np.asarray(windows.target_mask)
    if not measured_apart(mask, day):
        notes.append(
            "too few readings are set aside to measure what intervals cover on others than they are calibrated on: the "
            "coverage is that of the same readings, and looks better than it is."
        )
    return calibrate(mean, std, np.asarray(windows.targets, float), mask, gap_of(windows), day)


def _asked(whole: Source, ends: np.ndarray, stop: int, rng: np.random.Generator, most: int) -> Windows:
    """Windows that end at some of the rows, asked for the next one and three near or far, before `stop`."""
    ends = _some(ends, most)
    far = np.searchsorted(whole.steps, whole.steps[ends] + whole.shape.horizon, side="right") - 1
    most_ahead = np.maximum(np.minimum(far, stop - 1) - ends, 1)[:, None]
    draws = rng.random((len(ends), 4)) * np.array([0, 1, 1, 1])
    offsets = np.clip(np.floor(np.exp(draws * np.log(most_ahead + 1))), 1, most_ahead).astype(int)
    return whole.rows_ahead(ends, offsets)


def _some(rows: np.ndarray, most: int) -> np.ndarray:
    return rows[np.linspace(0, len(rows) - 1, min(most, len(rows))).astype(int)]


def _static_units(static: Float[np.ndarray, "sensors static"]) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of static columns, and the columns in those units, 0 where they are missing."""
    if not static.shape[1]:
        return np.empty((2, 0)), static
    mean, std = np.nanmean(static, axis=0), np.nanstd(static, axis=0)
    std = np.where(std > 0, std, 1.0)
    return np.stack([mean, std]), np.nan_to_num((static - mean) / std)


def summary(fitted: Fitted) -> dict[str, Any]:
    """What was fitted, in numbers and words, for people and scripts."""
    readings, clock = fitted.readings, fitted.readings.clock
    return {
        "model": fitted.config.model,
        "sensors": len(readings.ids),
        "variables": list(readings.variables),
        "edges": len(fitted.edges.senders),
        "step": clock.say(clock.step),
        "zone": clock.zone,
        "horizon": clock.say(fitted.shape.horizon * clock.step),
        "coverage": {str(level): round(value, 1) for level, value in fitted.calibration.coverage.items()},
        "coverage_points": fitted.calibration.points,
        "seconds": round(fitted.seconds, 1),
        "notes": list(fitted.notes),
    }
