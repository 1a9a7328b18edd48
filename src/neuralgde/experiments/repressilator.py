"""Forecasts of a stochastic gene network, the repressilator, with uncertainty (the paper's third experiment)."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from rich.console import Console

from .._errors import InputError, unknown_name
from ..conformal import fit_conformal
from ..forecast import ReactionTraining
from ..metrics import coverage, interval_width
from ..report import Result, Row, write_result
from ..train import TrainResult, take_seed
from ._progress import Progress
from ._repressilator_baselines import (
    FLOOR,
    GRU,
    PERSISTENCE,
    SAMPLED_GRU,
    SPREAD,
    gru_samples,
    persistence_samples,
    spread_samples,
    train_gru,
)
from ._repressilator_figures import Paths, attention_paths, coverage_curve, draw_figures
from ._repressilator_guard import guard
from ._repressilator_models import (
    LATENT_GDE,
    LATENT_GSDE,
    OURS,
    latent_samples,
    train_ours,
    train_paper_model,
)
from ._repressilator_tables import print_tables
from ._repressilator_task import GROUPS, LEVELS, RepressilatorTask, intervals, purpose_key, score

MODELS = (GRU, SAMPLED_GRU, LATENT_GDE, LATENT_GSDE, OURS)
CONFORMAL = f"{OURS}, conformal"
# How pieces of work compare in time, for what is left.
_COST = {GRU: 0.5, SAMPLED_GRU: 0.5, LATENT_GDE: 2.0, LATENT_GSDE: 4.0, OURS: 6.0}


@dataclasses.dataclass(frozen=True)
class RepressilatorConfig:
    """The paper's data, model and training, and the settings of the rest.

    **Arguments**

    - `until`: how long runs are, in minutes; the first half is seen, the second forecast. `beyond`: the end of the
      extrapolation.
    - `every`: minutes between the times that are forecast, and between those that all models but ours are given.
    - `test_runs`, `samples`: fresh runs, and sampled paths for each. `floor_samples`: those of the true network.
      `extrapolation_runs`, `extrapolation_samples`: the same beyond the end.
    - `time_unit`: minutes in a unit of the paper's models' time.
    - `epochs`, `peak_epoch`, `rate`, `end_rate`, `hidden`: the paper's. `elbo_samples`: paths for each window.
    - `time_scale`, `ours`: settings of the larger model.
    """

    train_runs: int = 10
    validation_runs: int = 32
    calibration_runs: int = 60
    figure_runs: int = 10
    test_runs: int = 500
    until: int = 300
    beyond: int = 450
    every: int = 3
    samples: int = 100
    floor_samples: int = 40
    extrapolation_runs: int = 100
    extrapolation_samples: int = 50
    models: tuple[str, ...] = MODELS
    time_unit: float = 30.0
    epochs: int = 1000
    peak_epoch: int = 300
    rate: float = 1e-2
    end_rate: float = 4e-4
    hidden: int = 3
    encoder_hidden: int = 32
    elbo_samples: int = 1
    gru_hidden: int = 32
    gru_epochs: int = 1000
    time_scale: float = 10.0
    ours: ReactionTraining = dataclasses.field(default_factory=ReactionTraining)
    seed: int = 0

    def __post_init__(self):
        for name in self.models:
            if name not in MODELS:
                raise InputError(unknown_name("model", name, MODELS))

    @property
    def ahead(self) -> np.ndarray:
        """The times that are forecast, in minutes after the half."""
        return np.arange(self.every, self.until // 2 + 1, self.every, dtype=float)

    @property
    def further(self) -> np.ndarray:
        """Those of the extrapolation, which go on from `ahead`."""
        return np.arange(self.until // 2 + self.every, self.beyond - self.until // 2 + 1, self.every, dtype=float)

    @property
    def at_once(self) -> bool:
        """Whether all test runs are extrapolated, with the same samples: then one program does both."""
        return self.extrapolation_runs >= self.test_runs and self.extrapolation_samples == self.samples

    @property
    def tested(self) -> np.ndarray:
        """The times that test runs are forecast at."""
        return np.concatenate([self.ahead, self.further]) if self.at_once else self.ahead

    @property
    def back(self) -> tuple[float, ...]:
        """The times of what is seen, in the paper's models' units, the last one 0."""
        return tuple((np.arange(-(self.until // 2), 1, self.every) / self.time_unit).tolist())

    @staticmethod
    def quick() -> "RepressilatorConfig":
        """Small enough to look at in a minute or two: short training, fewer runs and samples.

        The paper's models are left out: they learn nothing in so short a time.
        """
        return RepressilatorConfig(
            validation_runs=12, calibration_runs=25, figure_runs=4, test_runs=25, samples=40, floor_samples=20,
            extrapolation_runs=25, extrapolation_samples=40, models=(GRU, OURS), gru_epochs=300,
            ours=ReactionTraining(warm_steps=500, steps=40, batch_size=24, looks=2),
        )  # fmt: skip


def run(
    folder: str | Path,
    *,
    seeds: int = 3,
    quick: bool = False,
    console: Console | None = None,
    config: RepressilatorConfig | None = None,
) -> Result:
    """Simulate, train, choose by validation, test; write `result.json` and figures into `folder`, and print tables."""
    folder = Path(folder)
    console = console or Console()
    config = config or (RepressilatorConfig.quick() if quick else RepressilatorConfig())
    progress = Progress(console, [1.0, *(_COST[name] * (1 + seeds) for name in config.models), 1.0])
    progress.start("simulating, and baselines that need no training")
    task = RepressilatorTask.of(config)
    scores, far = _naive(task, config)
    best = min((SPREAD, PERSISTENCE), key=lambda name: float(scores[name]["crps"].mean()))
    progress.end(f"CRPS: {best} {scores[best]['crps'].mean():.4f}, {FLOOR} {scores[FLOOR]['crps'].mean():.4f}.")

    trained: dict[str, TrainResult] = {}
    paths: dict[str, Paths] = {}
    notes: dict[str, Any] = {}
    curves: dict[str, dict[str, np.ndarray]] = {}
    ends: dict[str, list] = {}
    for name in config.models:
        progress.start(name)
        trained[name] = result = _train(name, task, config, seeds, folder)
        tested = _tested(name, result.best, task, config, seeds)
        scores[name], far[name], curves[name] = tested.near, tested.far, tested.curve
        near = tested.near
        ends[name] = tested.ends
        said = [
            f"test CRPS {near['crps'].mean():.4f}, 90 % cover {near['coverage_90'][:, GROUPS['proteins']].mean():.3f}"
        ]
        said.append(f"of proteins. {result.summary} Training took {result.seconds:.0f} s.")
        notes[name] = {
            "validation": np.atleast_1d(np.asarray(result.best_validation, float)).tolist(),
            "seconds": result.seconds,
        }
        if name in (LATENT_GDE, LATENT_GSDE, OURS):
            report = guard(name, take_seed(result.best, 0), task, config)
            notes[name]["guard"] = report
            said.append(report["message"] or "No collapse.")
            paths[name] = attention_paths(name, result.best, task, config, seeds)
        progress.end(" ".join(said))

    progress.start("calibration and figures")
    if OURS in trained:
        scores[CONFORMAL] = _conformal(trained[OURS].best, ends[OURS], task, config)
    draw_figures(folder, task, config, paths, curves)
    progress.end("done.")

    rows = _rows(scores, "") + _rows(far, f", {config.until}-{config.beyond}")
    widths = {
        name: {f"width_{level}": found[f"width_{level}"].mean(0).tolist() for level in LEVELS}
        for name, found in scores.items()
        if "width_90" in found
    }
    details = {**dataclasses.asdict(config), "quick": quick, "models_trained": notes, "widths": widths}
    details |= {"low": task.low.tolist(), "span": task.span.tolist(), "species": list(task.network.species)}
    result = Result("repressilator", details, seeds, rows, progress.seconds)
    path = write_result(folder, result)
    print_tables(console, result)
    console.print(f"{path} and figures beside it, in {result.seconds:.0f} s")
    return result


Scores = dict[str, dict[str, np.ndarray]]


def _naive(task: RepressilatorTask, config: RepressilatorConfig) -> tuple[Scores, Scores]:
    """Scores by species, with a leading axis of one, of what needs no training."""
    ahead, further = config.ahead, config.further
    truth, unit = task.after(task.test, ahead), 1 / task.span
    spread = spread_samples(task, len(task.test), ahead, config.samples, config.seed)
    longer = task.test[: config.extrapolation_runs]
    both = np.concatenate([ahead, further])
    floor = task.floor(task.test, config.tested, config.floor_samples, config.seed)
    beyond = floor if config.at_once else task.floor(longer, both, config.floor_samples, config.seed + 1)
    floor = floor[:, :, : len(ahead)]
    far_truth = task.after(longer, further)
    near = {
        SPREAD: score(spread, truth, unit),
        PERSISTENCE: score(persistence_samples(task, task.test, ahead), truth, unit),
        FLOOR: score(floor, truth, unit),
    }
    far = {
        PERSISTENCE: score(persistence_samples(task, longer, further), far_truth, unit),
        FLOOR: score(beyond[:, :, len(ahead) :], far_truth, unit),
    }
    return _with_axis(near), _with_axis(far)


def _with_axis(scores: Scores) -> Scores:
    return {name: {metric: v[None] for metric, v in found.items()} for name, found in scores.items()}


def _train(name: str, task: RepressilatorTask, config: RepressilatorConfig, seeds: int, folder: Path) -> TrainResult:
    log = folder / "logs" / f"{name}.jsonl"
    keys = jax.vmap(lambda seed: purpose_key(seed, "parameters"))(config.seed + jnp.arange(seeds))
    if name in (GRU, SAMPLED_GRU):
        return train_gru(name, task, config, keys, log=log)
    if name == OURS:
        return train_ours(task, config, keys, log=log)
    return train_paper_model(name, task, config, keys, log=log)


def _sampler(name: str, model: Any, task: RepressilatorTask, config: RepressilatorConfig, seed: int) -> Callable:
    """samples(runs, ahead, number), with a key of the seed."""
    key = purpose_key(config.seed + seed, "samples")
    if name in (GRU, SAMPLED_GRU):
        return lambda runs, ahead, number: gru_samples(model, task, runs, config, ahead, number, key)
    return lambda runs, ahead, number: latent_samples(name, model, task, runs, config, ahead, number, key)


@dataclasses.dataclass(frozen=True)
class _Tested:
    """Scores of each seed and species up to the end of the runs, and beyond; the first seed's shares inside intervals;
    and for each seed the intervals' ends by level.
    """

    near: dict[str, np.ndarray]
    far: dict[str, np.ndarray]
    curve: dict[str, np.ndarray]
    ends: list[dict[int, tuple[np.ndarray, np.ndarray]]]


def _tested(name: str, models: Any, task: RepressilatorTask, config: RepressilatorConfig, seeds: int) -> _Tested:
    ahead, further, unit = config.ahead, config.further, 1 / task.span
    truth = task.after(task.test, ahead)
    longer = task.test[: config.extrapolation_runs]
    near, far, ends, curve = [], [], [], {}
    for seed in range(seeds):
        sample = _sampler(name, take_seed(models, seed), task, config, seed)
        both = sample(task.test, config.tested, config.samples)
        samples = both[:, :, : len(ahead)]
        near.append(score(samples, truth, unit))
        ends.append({level: intervals(samples, level) for level in LEVELS})
        curve = curve or coverage_curve(samples, truth)
        if not config.at_once:
            both = sample(longer, np.concatenate([ahead, further]), config.extrapolation_samples)
        far.append(score(both[:, :, len(ahead) :], task.after(longer, further), unit))
    return _Tested(_stacked(near), _stacked(far), curve, ends)


def _stacked(found: list[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    return {metric: np.stack([f[metric] for f in found]) for metric in found[0]}


def _conformal(models: Any, ends: list, task: RepressilatorTask, config: RepressilatorConfig) -> dict[str, np.ndarray]:
    """Coverage of the intervals of the test, corrected species by species on runs kept for it."""
    ahead = config.ahead
    kept, fresh = (task.after(runs, ahead) for runs in (task.calibration, task.test))
    found = []
    for seed, of_test in enumerate(ends):
        sample = _sampler(OURS, take_seed(models, seed), task, config, seed)
        samples = sample(task.calibration, config.tested, config.samples)[:, :, : len(ahead)]
        figures: dict[str, list] = {f"{what}_{level}": [] for what in ("coverage", "width") for level in LEVELS}
        for level in LEVELS:
            low, high = intervals(samples, level)
            for s in range(len(task.span)):
                gaps = [np.broadcast_to(ahead, truth.shape[:2]) for truth in (kept, fresh)]
                correct = fit_conformal(low[..., s], high[..., s], kept[..., s], gaps[0], level=level / 100)
                below, above = (end[..., s] for end in of_test[level])
                below, above = correct(below, above, gaps[1])
                figures[f"coverage_{level}"].append(coverage(below, above, fresh[..., s]))
                figures[f"width_{level}"].append(interval_width(below, above))
        found.append({metric: np.array(values) for metric, values in figures.items()})
    return _stacked(found)


def _rows(scores: Scores, suffix: str) -> tuple[Row, ...]:
    """Rows of groups of species and, up to the end of the runs, of each species."""
    groups = dict(GROUPS)
    if not suffix:
        groups |= {name: (i,) for i, name in enumerate(("PX", "PY", "PZ", "X", "Y", "Z"))}
    return tuple(
        Row.over_seeds(model, group + suffix, metric, values[:, list(places)].mean(1))
        for model, found in scores.items()
        for group, places in groups.items()
        for metric, values in found.items()
        if not metric.startswith("width")
    )
