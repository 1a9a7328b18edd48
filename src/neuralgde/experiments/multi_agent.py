"""Multi-agent trajectory extrapolation: particles that meet as springs with drag (the paper's first experiment)."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from rich.console import Console

from .._errors import InputError, unknown_name
from ..model import persistence
from ..report import Result, Row, write_result
from ..simulate import ParticleSystem
from ._multi_agent_figures import draw_figures
from ._multi_agent_models import MODELS
from ._multi_agent_protocol import score
from ._multi_agent_tables import PERSISTENCE, TRUTH, print_tables
from ._multi_agent_tasks import Task, many_task, predict, single_task, train_models
from ._progress import Progress

# MAPE of the paper's table, at 1, 3, 5, 10, 15, 20 and 50 steps.
_PAPER_STEPS = (1, 3, 5, 10, 15, 20, 50)
_PAPER_MAPE = {
    "Static": (26.12, 160.56, 197.20, 235.21, 261.56, 275.60, 360.39),
    "Neural ODE": (26.12, 52.26, 92.31, 156.26, 238.14, 301.85, 668.47),
    "GCDE": (13.53, 15.22, 18.76, 27.76, 33.90, 42.22, 77.64),
    "GCDE-II": (13.46, 14.75, 17.81, 27.77, 32.28, 40.64, 73.75),
}
# The models that the paper searched settings for, and the fields of the config that hold theirs.
_DENSE = {"Static": "static", "Neural ODE": "neural_ode"}
ADJACENCIES = ("predicted", "nominal")


@dataclasses.dataclass(frozen=True)
class DenseSettings:
    """What the grid decides for a network on the flattened state: hidden units a particle, rate, solver's tolerance.

    Without a tolerance the Neural ODE takes one fixed step a prediction, as the other models do.
    """

    width: int = 8
    rate: float = 1e-2
    tolerance: float | None = None


@dataclasses.dataclass(frozen=True)
class MultiAgentConfig:
    """The paper's system and protocol, and the choices that it leaves open; those are the same for all models.

    **Arguments**

    - `adjacency`: whose positions the graph comes from while extrapolating, "predicted" or "nominal".
    - `extrapolation`: after how many steps the nominal state is fed again.
    - `validation_share`: the last part of the training half, which chooses the best parameters on the way.
    - `train_runs`, `validation_runs`, `test_runs`: the trajectories of the second protocol, which tests on whole
      trajectories that were not seen; `runs_models` take part in it. `control_models` do the same on a system without
      drag, where energy is conserved: what a Hamiltonian network is made for.
    - `grid_…`: the values tried for Static and the Neural ODE, on validation: every width with every rate, then the
      other tolerances for the best. No widths, no search.
    """

    particles: int = 10
    duration: float = 5.0
    dt: float = 1.95e-3
    system: ParticleSystem = dataclasses.field(default_factory=ParticleSystem)
    adjacency: str = "predicted"
    models: tuple[str, ...] = MODELS
    solver: str = "midpoint"
    rate: float = 1e-2
    batch_size: int = 32
    steps: int = 2000
    validation_share: float = 0.1
    extrapolation: tuple[int, ...] = _PAPER_STEPS
    train_runs: int = 20
    validation_runs: int = 4
    test_runs: int = 5
    runs_models: tuple[str, ...] = MODELS
    control_models: tuple[str, ...] = ("HGN", "GMDE-II")
    runs_steps: int = 3000
    runs_extrapolation: tuple[int, ...] = (1, 5, 20, 50)
    static: DenseSettings = DenseSettings()
    neural_ode: DenseSettings = DenseSettings()
    grid_widths: tuple[int, ...] = (8, 16, 32)
    grid_rates: tuple[float, ...] = (3e-2, 1e-2, 3e-3)
    grid_tolerances: tuple[float, ...] = (1e-3, 1e-5)
    grid_seeds: int = 3
    grid_steps: int = 500
    seed: int = 0

    def __post_init__(self):
        if self.adjacency not in ADJACENCIES:
            raise InputError(unknown_name("adjacency", self.adjacency, ADJACENCIES))
        for name in (*self.models, *self.runs_models, *self.control_models):
            if name not in MODELS:
                raise InputError(unknown_name("model", name, MODELS))

    @staticmethod
    def quick() -> "MultiAgentConfig":
        """Small enough to look at in a minute: shorter training, no search, the second protocol for few models."""
        return MultiAgentConfig(
            steps=400,
            train_runs=8,
            validation_runs=2,
            test_runs=2,
            runs_models=("HGN", "GMDE-II"),
            control_models=(),
            runs_steps=500,
            runs_extrapolation=(5, 50),
            grid_widths=(),
        )


def run(
    folder: str | Path,
    *,
    seeds: int = 10,
    quick: bool = False,
    console: Console | None = None,
    config: MultiAgentConfig | None = None,
) -> Result:
    """Simulate, train, extrapolate; write `result.json` and figures into `folder`, and print tables."""
    folder = Path(folder)
    console = console or Console()
    config = config or (MultiAgentConfig.quick() if quick else MultiAgentConfig())
    progress = Progress(console, [1.0] * _count(config))
    console.print(f"simulating {seeds} system(s) of {config.particles} particles for {config.duration:g} s")
    single, many = single_task(config, seeds), many_task(config, seeds, config.system)

    config, grid = _search(config, single, progress)
    rows, predicted = _compare(config, single, config.models, folder, progress, lambda p: p[0, 0])
    more, energy = _compare(config, many, config.runs_models, folder, progress, lambda p: _energy(config, p[:, :, -1]))
    rows += more
    tasks = [single, many]
    if config.control_models:
        system = dataclasses.replace(config.system, beta=0.0)
        tasks.append(many_task(config, seeds, system, ", no drag"))
        more, _ = _compare(config, tasks[-1], config.control_models, folder, progress, lambda p: None)
        rows += more
    energy = {TRUTH: _energy(config, many.unseen[:, :, 1:]), **energy}
    draw_figures(folder, config, single, predicted, rows, energy)

    ends = {name: {"start": float(e[:, 0].mean()), "end": float(e[:, -1].mean())} for name, e in energy.items()}
    details = {**dataclasses.asdict(config), "quick": quick, "grid": grid, "energy": ends}
    result = Result("multi-agent", details, seeds, rows, progress.seconds)
    path = write_result(folder, result)
    print_tables(console, result, tasks)
    console.print(f"{path} and figures beside it, in {result.seconds:.0f} s")
    return result


def _search(config: MultiAgentConfig, task: Task, progress: Progress) -> tuple[MultiAgentConfig, list[dict]]:
    """The config with the settings of the dense networks that have the best mean validation, and all that was tried."""
    task = task.first_seeds(config.grid_seeds)
    tried = []
    for name, field in _DENSE.items():
        found = [_attempt(name, settings, config, task, progress) for settings in _grid(name, config)]
        if not found:
            continue
        # Width and rate first, then the solver: over so short a time the solution hardly depends on it.
        best = _best(found)
        for tolerance in _tolerances(name, config)[1:]:
            found.append(_attempt(name, dataclasses.replace(best, tolerance=tolerance), config, task, progress))
        progress.console.print(f"{name}: chosen {_words(_best(found))}")
        config = dataclasses.replace(config, **{field: _best(found)})
        tried += [{"model": name, **dataclasses.asdict(settings), "validation": value} for value, settings in found]
    return config, tried


def _attempt(
    name: str, settings: DenseSettings, config: MultiAgentConfig, task: Task, progress: Progress
) -> tuple[float, DenseSettings]:
    """Some settings, and the mean over seeds of their best validation."""
    trial = dataclasses.replace(config, **{_DENSE[name]: settings})
    progress.start(f"{name}, {_words(settings)}")
    _, result = train_models(name, trial, task, rate=settings.rate, steps=config.grid_steps)
    # A seed that never had a finite loss has an infinite best validation.
    value = float(np.mean(np.asarray(result.best_validation)))
    progress.end(f"validation {value:.3g}")
    return value, settings


def _best(found: list[tuple[float, DenseSettings]]) -> DenseSettings:
    return min(found, key=lambda pair: pair[0])[1]


def _grid(name: str, config: MultiAgentConfig) -> list[DenseSettings]:
    """Widths and rates, at the first tolerance."""
    if name not in config.models:
        return []
    first = _tolerances(name, config)[0]
    return [DenseSettings(width, rate, first) for width in config.grid_widths for rate in config.grid_rates]


def _tolerances(name: str, config: MultiAgentConfig) -> tuple[float | None, ...]:
    return config.grid_tolerances if name == "Neural ODE" else (None,)


def _count(config: MultiAgentConfig) -> int:
    """How many trainings there will be."""
    compared = (config.models, config.runs_models, config.control_models)
    searched = ((len(_grid(name, config)), len(_tolerances(name, config)) - 1) for name in _DENSE)
    return sum(map(len, compared)) + sum(grid + more for grid, more in searched if grid)


def _words(settings: DenseSettings) -> str:
    tolerance = "" if settings.tolerance is None else f", tolerance {settings.tolerance:g}"
    return f"width {settings.width}n, rate {settings.rate:g}{tolerance}"


def _compare(
    config: MultiAgentConfig,
    task: Task,
    names: tuple[str, ...],
    folder: Path,
    progress: Progress,
    keep: Callable[[np.ndarray], Any],
) -> tuple[tuple[Row, ...], dict[str, Any]]:
    """The rows of persistence and the models, and what is kept of their predictions."""
    predicted = predict(persistence, config, task)
    scores = _score(predicted, task)
    naive = scores["nrmse"].mean(0)
    rows = _rows(PERSISTENCE, scores, task)
    kept = {PERSISTENCE: keep(predicted)}
    for name in names:
        progress.start(f"{name}{task.suffix}")
        settings = getattr(config, _DENSE[name]) if name in _DENSE else config
        log = folder / "logs" / f"{name}{task.suffix}.jsonl"
        models, result = train_models(name, config, task, rate=settings.rate, log=log)
        predicted = predict(models, config, task)
        scores = _score(predicted, task)
        rows += _rows(name, scores, task)
        kept[name] = keep(predicted)
        share = scores["nrmse"].mean(0)[-2] / naive[-2]
        progress.end(f"{task.settings[-2]}: {share:.3f} of persistence's error. {result.summary}")
    return tuple(rows), kept


def _score(predicted: np.ndarray, task: Task) -> dict[str, np.ndarray]:
    """Each metric, (seeds, lengths)."""
    truth = np.asarray(task.unseen)
    found = [[score(p[:, i], y) for i in range(len(task.lengths))] for p, y in zip(predicted, truth, strict=True)]
    return {metric: np.array([[cell[metric] for cell in row] for row in found]) for metric in found[0][0]}


def _rows(name: str, scores: dict[str, np.ndarray], task: Task) -> list[Row]:
    paper: dict[int, float] = {} if task.suffix else dict(zip(_PAPER_STEPS, _PAPER_MAPE.get(name, ()), strict=False))
    return [
        Row.over_seeds(name, setting, metric, values[:, i], paper.get(length) if metric == "mape" else None)
        for metric, values in scores.items()
        for i, (length, setting) in enumerate(zip(task.lengths, task.settings, strict=True))
    ]


def _energy(config: MultiAgentConfig, states: Any) -> np.ndarray:
    """Energy along trajectories (seeds, runs, times, particles, 4), mean over runs: (seeds, times)."""
    return np.asarray(eqx.filter_jit(config.system.energy)(jnp.asarray(states))).mean(1)
