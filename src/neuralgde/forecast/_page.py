"""What a report page shows of a Forecaster and of a backtest."""

import importlib.metadata

import numpy as np

from ..data import Readings, format_stamps
from ..report import Calibration as PageCalibration
from ..report import Fans, LatentFlow, Network, Page, Scores, SolverStats, Training
from ._backtest import BACKTEST_METRICS, NAIVE, Backtest
from ._calibration import MEASURED
from ._config import NETWORKS
from ._fitted import Fitted
from ._flow import latent_flow
from ._predict import Forecasts, forecast
from ._predictors import NetworkPredictor

_LEVELS = (50.0, 90.0)
_MOST_TIMES = 400
_PAST = 60


def backtest_page(title: str, test: Backtest, *, quantity: str | None = None, made: Forecasts | None = None) -> Page:
    """The page of a backtest; `made` are forecasts to draw, by default each reading from those before it."""
    fitted = test.fitted
    if made is None:
        made = _next_readings(test)
    readings = test.made.readings
    overall, levels = test.scores(), (50.0, 80.0, 90.0, 95.0)
    measured = [test.coverage(level) for level in levels]
    names = series_names(fitted)
    return Page(
        title=title,
        summary=_summary(fitted, test),
        notes=fitted.notes,
        quantity=quantity or ", ".join(fitted.readings.variables),
        fans=_fans(fitted, made, readings),
        scores=Scores(
            test.models, BACKTEST_METRICS, overall, test.names, test.by_horizon(), names, test.by_series(), test.points
        ),
        network=network_of(fitted),
        calibration=PageCalibration(
            levels, np.array([m[0] for m in measured]), test.points, np.array([m[1] for m in measured])
        ),
        training=training_of(fitted),
        latent=latent_of(fitted, readings),
        solver=solver_of(fitted),
        config=fitted.config.to_dict(),
        versions=versions(),
    )


def fit_page(title: str, fitted: Fitted) -> Page:
    """The page of a fit alone: what was said to cover, as measured on the days set aside, and how training went."""
    coverage = fitted.calibration.coverage
    said = coverage[90]
    clock = fitted.readings.clock
    return Page(
        title=title,
        summary=(
            f"{fitted.config.model} of {len(fitted.readings.ids)} sensors, fitted in {fitted.seconds:.0f} s.",
            f"Its 90 % intervals covered {said:.1f} % of {fitted.calibration.points} readings on days set aside.",
            f"Forecasts were learned up to {clock.say(fitted.shape.horizon * clock.step)} ahead.",
        ),
        notes=fitted.notes,
        quantity=", ".join(fitted.readings.variables),
        network=network_of(fitted),
        calibration=PageCalibration(
            tuple(float(level) for level in MEASURED), np.array([coverage[level] for level in MEASURED]),
            fitted.calibration.points,
        ),
        training=training_of(fitted),
        latent=latent_of(fitted, fitted.readings),
        solver=solver_of(fitted),
        config=fitted.config.to_dict(),
        versions=versions(),
    )  # fmt: skip


def series_names(fitted: Fitted) -> tuple[str, ...]:
    """A name for each sensor and variable."""
    variables = fitted.readings.variables
    if len(variables) == 1:
        return fitted.readings.ids
    return tuple(f"{name} {variable}" for name in fitted.readings.ids for variable in variables)


def network_of(fitted: Fitted) -> Network:
    """The graph, with a node for each sensor and variable; edges join the same variable of two sensors."""
    edges, count = fitted.edges, len(fitted.readings.variables)
    each = np.arange(count)
    ends = [(np.asarray(a)[:, None] * count + each).reshape(-1) for a in (edges.senders, edges.receivers)]
    places = None if edges.coordinates is None else np.repeat(edges.coordinates, count, axis=0)
    return Network(series_names(fitted), ends[0], ends[1], np.repeat(edges.weights, count), places, edges.geographic)


def training_of(fitted: Fitted) -> Training | None:
    """The curves of a network's training."""
    if not fitted.training:
        return None
    curves = {name: curve for name, curve in fitted.training.items() if name != "step"}
    best = int(np.nanargmin(curves["validation"]))
    steps = fitted.training["step"].astype(int)
    return Training(steps, curves, int(steps[best]), fitted.seconds)


def latent_of(fitted: Fitted, readings: Readings) -> LatentFlow | None:
    """What the state of a network does over the last readings."""
    flow = latent_flow(fitted, readings)
    if flow is None:
        return None
    return LatentFlow(flow.sensors, page_times(flow.stamps, fitted), flow.states, page_times(flow.observed, fitted))


def solver_of(fitted: Fitted) -> SolverStats | None:
    """How the flow of a network is solved."""
    predictor = fitted.predictor
    if fitted.config.model not in NETWORKS or not isinstance(predictor, NetworkPredictor):
        return None
    config = predictor.network.config
    facts: dict[str, str | int | float] = {"solver": str(config.solver)}
    if getattr(config, "num_steps", None) is not None:
        facts["steps in each interval"] = int(config.num_steps)
    return SolverStats(facts)


def page_times(stamps: np.ndarray, fitted: Fitted) -> np.ndarray:
    """Stamps as a page has them: dates by the wall clock, or numbers."""
    clock = fitted.readings.clock
    return np.round(clock.local(stamps) * 1e6).astype("datetime64[us]") if clock.dates else np.asarray(stamps, float)


def versions() -> dict[str, str]:
    """What made a page."""
    return {name: importlib.metadata.version(name) for name in ("neuralgde", "jax", "equinox", "numpy")}


def _next_readings(test: Backtest) -> Forecasts:
    """Every reading of the end of a backtest, from those before it."""
    readings = test.made.readings
    stamps = readings.stamps[readings.stamps > test.made.origins.min()][-_MOST_TIMES:]
    return forecast(test.fitted, readings, stamps)


def _fans(fitted: Fitted, made: Forecasts, readings: Readings) -> Fans:
    flat = (len(made.stamps), -1)
    ends = [made.interval(level) for level in _LEVELS]
    low, high = (np.stack([pair[side].reshape(flat) for pair in ends]) for side in (0, 1))
    place = np.searchsorted(readings.stamps, made.stamps)
    there = (place < len(readings.stamps)) & (
        readings.stamps[np.minimum(place, len(readings.stamps) - 1)] == made.stamps
    )
    y = np.where(there[:, None, None], readings.values[np.minimum(place, len(readings.stamps) - 1)], np.nan)
    past = readings.stamps < made.stamps[0]
    return Fans(
        series_names(fitted),
        page_times(made.stamps, fitted),
        made.mean.reshape(flat),
        _LEVELS,
        low,
        high,
        y.reshape(flat),
        ~np.isnan(y.reshape(flat)) & (made.stamps <= made.origins.max())[:, None],
        page_times(made.origins, fitted),
        {NAIVE[0]: made.last.reshape(flat), NAIVE[1]: made.expected.reshape(flat)},
        page_times(readings.stamps[past][-_PAST:], fitted),
        readings.values[past][-_PAST:].reshape(int(min(_PAST, past.sum())), -1),
    )


def _summary(fitted: Fitted, test: Backtest) -> tuple[str, ...]:
    scores = test.scores()
    clock = fitted.readings.clock
    first, last = format_stamps(np.array([test.made.stamps.min(), test.made.stamps.max()]), clock)
    best = float(np.nanmin(scores[1:, 1]))
    gain = 100 * (1 - scores[0, 1] / best)
    word = "less" if gain >= 0 else "more"
    return (
        f"{fitted.config.model} forecast {test.points} readings of {len(fitted.readings.ids)} sensors from {first} to "
        f"{last}, none of which it had learned from.",
        f"Its errors (RMSE {scores[0, 1]:.3g}) are {abs(gain):.0f} % {word} than those of the better naive forecast.",
        f"Its 90 % intervals covered {scores[0, 4]:.1f} % of the readings.",
    )
