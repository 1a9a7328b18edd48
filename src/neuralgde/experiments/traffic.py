"""Traffic forecasting from undersampled speeds, PeMSD7(M) (the paper's second experiment), and England's movements."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from rich.console import Console

from .._errors import InputError, unknown_name
from .._settings import check_number
from ..data import DataError, SensorSeries, Windows, load_england, load_pemsd7m
from ..forecast import Blend, Ridge, expected, last_value
from ..report import Result, Row, write_result
from ..simulate import simulate_freeway
from ..train import make_seeds
from ._progress import Progress
from ._traffic_baselines import SensorMean, find_analogues, fit_blend, fit_traffic_ridge
from ._traffic_england import EnglandTask, naive_rows
from ._traffic_england_models import EnglandConfig, train_england
from ._traffic_figures import draw_figures
from ._traffic_models import MODELS, OURS, make_model, recipe
from ._traffic_protocol import Forecast, TrafficTask, errors_by_gap, evaluate, rows_of
from ._traffic_tables import print_tables
from ._traffic_training import Outcome, train_models

# MAPE and RMSE of the paper's table, by the share of snapshots kept.
_PAPER = {
    "GRU": {0.3: (27.14, 13.25), 0.7: (27.24, 13.28), 1.0: (27.20, 13.29)},
    "GCGRU": {0.3: (23.60, 11.97), 0.7: (21.33, 11.20), 1.0: (20.92, 10.87)},
    "GCDE-GRU": {0.3: (22.95, 11.67), 0.7: (20.94, 10.95), 1.0: (20.46, 10.76)},
}
# How models compare in time, for what is left: the flow costs more than all the rest.
_COST = {"GRU": 0.3, "GCGRU": 1.0, "GCDE-GRU": 2.5, "GCGRU+": 1.0, "GCDE-GRU+": 2.5}
_RIDGE_VIEWS = 3
_ENGLAND = "England"


@dataclasses.dataclass(frozen=True)
class TrafficConfig:
    """The paper's protocol and the settings of our models.

    **Arguments**

    - `keeps`: the shares of snapshots that are kept, in training, validation and test alike.
    - `days`: to train, validate and test on, from the first.
    - `length`: observations in a window.
    - `repeats`: undersamplings of the test days; `regime_repeats`: of those unlike training.
    - `paper_epochs`: of the paper's models, with its optimiser and schedule.
    - `steps`, `rate`: of ours, which see new windows at every step.
    - `hidden`, `operator`, `rank`, `embedding`, `time_scale`: as in `gcde_gru`. `flow_steps`: of our flow, by Heun's
      method, in each interval.
    - `queries`: times that ours are asked for in each window that they are trained on.
    - `mean_day`: whether ours are shown how far readings are off the mean day.
    - `smooth`: how many times of day the mean day is smoothed over.
    - `regression`: whether ours forecast what the regression per sensor misses, which needs the mean day.
    - `alike`: whether that regression is blended with what followed on training days that looked alike.
    - `outages`: the share of sensors that go out in the windows that ours are trained on.
    - `looks`: how often a training looks at the validation windows.
    - `england`: settings of the second data set, None to leave it out.
    """

    keeps: tuple[float, ...] = (1.0, 0.7, 0.5, 0.3)
    days: tuple[int, int, int] = (24, 5, 5)
    length: int = 5
    models: tuple[str, ...] = MODELS
    repeats: int = 20
    regime_repeats: int = 5
    batch_size: int = 32
    paper_epochs: int = 40
    steps: int = 640
    rate: float = 3e-3
    hidden: int = 46
    operator: tuple[str, ...] = ("self", "gcn", "learned")
    rank: int = 10
    embedding: int = 8
    time_scale: float = 4.0
    flow_steps: int = 1
    queries: int = 4
    mean_day: bool = True
    smooth: int = 7
    regression: bool = True
    alike: bool = True
    outages: float = 0.1
    looks: int = 20
    england: EnglandConfig | None = dataclasses.field(default_factory=EnglandConfig)
    seed: int = 0

    def __post_init__(self):
        for name in self.models:
            if name not in MODELS:
                raise InputError(unknown_name("model", name, MODELS))
        if self.regression and not self.mean_day:
            raise InputError("regression: it forecasts from the mean day, and mean_day is off. Switch both off, or on.")
        for name in ("looks", "repeats", "regime_repeats"):
            check_number(name, getattr(self, name), whole=True)
        for keep in self.keeps:
            if not 0 < keep <= 1:
                raise InputError(f"keeps: expected shares above 0, up to 1, such as 0.3, got {keep}.")

    @staticmethod
    def quick() -> "TrafficConfig":
        """Small enough to look at in a few minutes: one share, few days and epochs, two pairs of models."""
        return TrafficConfig(
            keeps=(0.3,), days=(10, 5, 5), models=("GCGRU", "GCDE-GRU", "GCGRU+", "GCDE-GRU+"), repeats=2,
            regime_repeats=1, paper_epochs=2, steps=24, looks=3,
            england=EnglandConfig(models=("GCDE-GRU",), steps=20),
        )  # fmt: skip


def run(
    folder: str | Path,
    *,
    seeds: int = 3,
    quick: bool = False,
    console: Console | None = None,
    config: TrafficConfig | None = None,
    keeps: Sequence[float] | None = None,
) -> Result:
    """Train, choose by validation, test; write `result.json` and figures into `folder`, and print tables."""
    folder = Path(folder)
    console = console or Console()
    config = config or (TrafficConfig.quick() if quick else TrafficConfig())
    config = config if keeps is None else dataclasses.replace(config, keeps=tuple(keeps))
    series = _load(console, sum(config.days))
    costs = [cost for _ in config.keeps for cost in (0.3, *(_COST[name] for name in config.models))]
    progress = Progress(console, [*costs, 0.5, *([] if config.england is None else [1.0])])

    task = TrafficTask.of(series, config.days, config.length, config.smooth)
    rows: list[Row] = []
    gaps: dict[str, dict[str, Any]] = {}
    outcomes: list[Outcome] = []
    naive: dict[float, dict[str, Forecast]] = {}
    for keep in config.keeps:
        setting = f"keep {keep:g}"
        naive[keep], regression, more, gaps[setting] = _naive(task, keep, config, progress)
        rows += more
        for name in config.models:
            outcome, more, by_gap = _trained(name, task, keep, regression, config, seeds, folder, progress)
            outcomes.append(outcome)
            rows += more
            gaps[setting][name] = by_gap
    rows += _regimes(task, config, naive, outcomes, progress)
    rows += _england(config, seeds, folder, progress)
    draw_figures(folder, task, config, outcomes, gaps)

    details = {**dataclasses.asdict(config), "quick": quick, "data": series.name, "error_by_gap": gaps}
    details["validation"] = [
        {"model": o.model, "setting": o.setting, "rmse_sensor": o.validation.tolist()} for o in outcomes
    ]
    result = Result("traffic", details, seeds, tuple(rows), progress.seconds)
    path = write_result(folder, result)
    print_tables(console, result, series.name)
    console.print(f"{path} and figures beside it, in {result.seconds:.0f} s")
    return result


def only(config: TrafficConfig, models: Sequence[str]) -> TrafficConfig:
    """The same settings for some of the models, among which "England" stands for the second data set."""
    for name in models:
        if name not in (*MODELS, _ENGLAND):
            raise InputError(unknown_name("model", name, (*MODELS, _ENGLAND)))
    england = (config.england or EnglandConfig()) if _ENGLAND in models else None
    return dataclasses.replace(config, models=tuple(name for name in MODELS if name in models), england=england)


def _load(console: Console, days: int) -> SensorSeries:
    """The first days of PeMSD7(M), or what stands in for it, which is then said."""
    try:
        series = load_pemsd7m()
    except DataError as error:
        made = simulate_freeway(days=days, weekends=False)
        series = SensorSeries(
            made.speeds, made.dates, made.network.distances, made.network.names, "a simulated freeway"
        )
        console.print(f"PeMSD7(M) cannot be had: {error}", markup=False, highlight=False)
        console.print(
            f"[bold]{series.name.capitalize()} stands in. What follows is no result on PeMSD7(M).[/bold]",
            highlight=False,
        )
    console.print(
        f"{series.name}: {series.values.shape[1]} sensors, {days} of {len(series.dates)} days from {series.dates[0]}",
        highlight=False,
    )
    return series


def _naive(
    task: TrafficTask, keep: float, config: TrafficConfig, progress: Progress
) -> tuple[dict[str, Forecast], Ridge | Blend, list[Row], dict[str, Any]]:
    """What needs no network, of that what ours start from, and rows and errors by gap."""
    progress.start(f"baselines, keep {keep:g}")
    train = [task.windows("train", keep, seed) for seed in range(1 if keep == 1 else _RIDGE_VIEWS)]
    validation = task.windows("validation", keep, seed=0)
    regression = fit_traffic_ridge(task, train, validation, rich=True)
    alike = find_analogues(task)
    blend = fit_blend(regression, alike, validation)
    forecasts: dict[str, Forecast] = {
        "sensor mean": SensorMean(task),
        "time of day": expected,
        "persistence": last_value,
        "ridge": fit_traffic_ridge(task, train, validation),
        "ridge per sensor": regression,
        "days alike": alike,
        "ridge and days alike": blend,
    }
    test = task.test_windows(keep, config.repeats)
    rows, gaps, shown = [], {}, ""
    for name, forecast in forecasts.items():
        predicted = [forecast(windows)[None] for windows in test]
        scores = evaluate(_made(predicted, 0), test)
        rows += rows_of(name, f"keep {keep:g}", scores)
        gaps[name] = errors_by_gap(_made(predicted, 0), test)
        shown += f"{name} {scores['rmse_sensor'].mean():.3f}, "
    progress.end(f"{shown[:-2]} mph.")
    return forecasts, blend if config.alike else regression, rows, gaps


def _trained(
    name: str,
    task: TrafficTask,
    keep: float,
    regression: Ridge | Blend,
    config: TrafficConfig,
    seeds: int,
    folder: Path,
    progress: Progress,
) -> tuple[Outcome, list[Row], dict[int, tuple[float, int]]]:
    """A model's outcome, its rows and its errors by gap."""
    setting = f"keep {keep:g}"
    progress.start(f"{name}, {setting}")
    train = task.windows("train", keep, seed=0)
    how = recipe(name, config, keep, len(train))
    nodes, inputs = task.train.values.shape[1], int(how.mean_day)
    keys = jax.vmap(lambda seed: jax.random.key(seed))(config.seed + jnp.arange(seeds))
    models = make_seeds(
        lambda key: make_model(name, config, nodes=nodes, period=task.train.slots, inputs=inputs, key=key), keys
    )
    outcome = train_models(
        name, setting, models, task, task.train.graph(how.graph), how, keep=keep, regression=regression,
        key=jax.vmap(lambda key: jax.random.fold_in(key, 1))(keys), log=folder / "logs" / f"{name}, {setting}.jsonl",
    )  # fmt: skip
    test = task.test_windows(keep, config.repeats)
    predicted = [outcome.trained(windows) for windows in test]
    paper: dict[str, float] = dict(zip(("mape", "rmse_sensor"), _PAPER.get(name, {}).get(keep, ()), strict=False))
    rows = _model_rows(name, setting, predicted, test, paper)
    error = ", ".join(f"{row.model} {row.mean:.3f}" for row in rows if row.metric == "rmse_sensor")
    progress.end(f"validation {outcome.validation.mean():.3f}, test {error} mph. {outcome.summary}")
    return outcome, rows, errors_by_gap(_made(predicted, 0), test)


def _model_rows(
    name: str,
    setting: str,
    predicted: Sequence[np.ndarray],
    test: Sequence[Windows],
    paper: dict[str, float] | None = None,
) -> list[Row]:
    """Rows of a model: the mean over its seeds, and for ours, where there are several, what they say together."""
    rows = rows_of(name, setting, _over_seeds(predicted, test), paper)
    seeds = len(predicted[0])
    if name in OURS and seeds > 1:
        together = [p.mean(0, keepdims=True) for p in predicted]
        rows += rows_of(f"{name}, mean of {seeds}", setting, _over_seeds(together, test))
    return rows


def _over_seeds(predicted: Sequence[np.ndarray], test: Sequence[Windows]) -> dict[str, np.ndarray]:
    """Each metric for every seed and undersampling, of forecasts with a leading axis of seeds."""
    scores = [evaluate(_made(predicted, seed), test) for seed in range(len(predicted[0]))]
    return {metric: np.concatenate([s[metric] for s in scores]) for metric in scores[0]}


def _made(predicted: Sequence[np.ndarray], seed: int) -> Forecast:
    """Forecasts of one seed that were made before, in the order of the windows."""
    order = iter(predicted)
    return lambda windows: next(order)[seed]


def _regimes(
    task: TrafficTask,
    config: TrafficConfig,
    naive: dict[float, dict[str, Forecast]],
    outcomes: Sequence[Outcome],
    progress: Progress,
) -> list[Row]:
    """Rows where the test is unlike training, for what was trained at the smallest share: where does a flow help?"""
    keep = min(config.keeps)
    progress.start(f"regimes unlike training, models of keep {keep:g}")
    rows = []
    for regime, test in task.regimes(config.regime_repeats).items():
        for name in ("time of day", "persistence", "ridge per sensor", "ridge and days alike"):
            rows += rows_of(name, regime, evaluate(naive[keep][name], test))
        for outcome in outcomes:
            if outcome.model in OURS and outcome.setting == f"keep {keep:g}":
                predicted = [outcome.trained(windows) for windows in test]
                rows += _model_rows(outcome.model, regime, predicted, test)
    progress.end(", ".join(dict.fromkeys(row.setting for row in rows)) + ".")
    return rows


def _england(config: TrafficConfig, seeds: int, folder: Path, progress: Progress) -> list[Row]:
    if config.england is None:
        return []
    progress.start(_ENGLAND)
    try:
        task = EnglandTask.of(load_england())
    except DataError as error:
        progress.end(f"left out: {error}")
        return []
    rows = naive_rows(task)
    rows += train_england(task, config.england, seeds, config.seed, folder / "logs")
    progress.end("next-day cases and edges.")
    return rows
