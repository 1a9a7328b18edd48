"""Oversmoothing on Cora: classifiers of growing depth, discrete and continuous (the paper's appendix)."""

import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from .._errors import InputError, unknown_name
from ..data import DataError, NodeClassification, load_cora, stochastic_block_model
from ..report import Result, Row, result_table, write_result
from ._cora_figures import draw_figures
from ._cora_models import DEEP, MODELS, SHALLOW
from ._cora_papers import Papers, make_papers, with_spectrum, without_edges
from ._cora_training import Outcome, train_model
from ._progress import Progress

# How long models take, for the time left: in all, and for a unit of length. Compiling is most of a short one's.
_COST = {
    "MLP": (1, 0),
    "GCN": (1, 0),
    "plain GCN": (2, 0.6),
    "residual GCN": (2, 2.5),
    "GCDE": (2, 2),
    "CGNN": (14, 0),
    "GADE": (4, 8),
}


@dataclasses.dataclass(frozen=True)
class Regularisation:
    """What each model has of its own: the rate of dropout, and the decay of weights."""

    dropout: float
    weight_decay: float


# The best of the same nine for each model, by validation at S=1: dropout 0.5, 0.8, 0.9 with decay 5e-4, 5e-3, 1e-2.
_CHOSEN = {
    "MLP": Regularisation(0.5, 1e-2),
    "GCN": Regularisation(0.9, 5e-3),
    "plain GCN": Regularisation(0.9, 5e-4),
    "residual GCN": Regularisation(0.9, 5e-3),
    "GCDE": Regularisation(0.9, 1e-2),
    "CGNN": Regularisation(0.9, 1e-2),
    "GADE": Regularisation(0.9, 5e-3),
}


@dataclasses.dataclass(frozen=True)
class Pace:
    """How models of lengths up to `longest` are trained: Adam's rate, and the number of iterations."""

    longest: float
    rate: float
    iterations: int


# What is best for the GCDE at each length, by validation, and all other models of that length have as well. In a longer
# interval the same parameters act more often, and want smaller steps.
_PACES = (Pace(1.0, 5e-3, 200), Pace(5.0, 3e-3, 300), Pace(math.inf, 3e-3, 400))


@dataclasses.dataclass(frozen=True)
class CoraConfig:
    """What all models share, and how each is regularised.

    **Arguments**

    - `spans`: the integration intervals [0, S]. `step` is that of the Runge-Kutta method, four evaluations each, and a
      discrete model has as many layers as the continuous ones of that length have evaluations.
    - `models`: those with nothing between their two layers are trained once, the others for each length.
    - `regularisation`: by model. Dropout is on words, on the last layer's input, and on what a field sees, there the
      same along a solve.
    - `paces`: rate and iterations by length, in order of `longest`.
    - `look_every`: iterations between looks at the validation papers, whose lowest loss chooses the parameters.
    - `seeds_at_once`: how many are in memory.
    """

    spans: tuple[float, ...] = (1.0, 5.0, 10.0)
    models: tuple[str, ...] = MODELS
    step: float = 1.0
    hidden: int = 32
    regularisation: dict[str, Regularisation] = dataclasses.field(default_factory=lambda: dict(_CHOSEN))
    paces: tuple[Pace, ...] = _PACES
    look_every: int = 5
    seeds_at_once: int = 10
    seed: int = 0

    def __post_init__(self):
        for name in (*self.models, *self.regularisation):
            if name not in MODELS:
                raise InputError(unknown_name("model", name, MODELS))
        if missing := set(self.models) - set(self.regularisation):
            raise InputError(f"regularisation: expected one for each model, found none for {sorted(missing)}.")
        if not self.paces or self.paces[-1].longest < max(self.spans):
            raise InputError(f"paces: expected one for each length, found none for S={max(self.spans):g}.")
        for span in self.spans:
            if span <= 0 or abs(span / self.step - round(span / self.step)) > 1e-6:
                raise InputError(f"spans: expected positive multiples of the step {self.step:g}, got {span:g}.")

    @property
    def tasks(self) -> list[tuple[str, float]]:
        """Models and their lengths, in the order they are run."""
        shallow = [(name, 0.0) for name in SHALLOW if name in self.models]
        return shallow + [(name, span) for name in DEEP if name in self.models for span in self.spans]

    def pace(self, span: float) -> Pace:
        """How models of this length are trained."""
        return next(pace for pace in self.paces if span <= pace.longest)

    @staticmethod
    def quick() -> "CoraConfig":
        """Small enough to look at in a minute or two: shorter intervals, fewer models and iterations."""
        models = (*SHALLOW, "plain GCN", "residual GCN", "GCDE")
        return CoraConfig(spans=(1.0, 5.0), models=models, paces=(Pace(math.inf, 1e-2, 100),))


def run(
    folder: str | Path,
    *,
    seeds: int = 10,
    quick: bool = False,
    console: Console | None = None,
    config: CoraConfig | None = None,
) -> Result:
    """Train, choose by validation, test; write `result.json` and figures into `folder`, and print a table."""
    folder = Path(folder)
    console = console or Console()
    config = config or (CoraConfig.quick() if quick else CoraConfig())
    progress = Progress(console, [_cost(*task) for task in config.tasks])
    data = _load(console)
    papers = make_papers(data)
    outcomes = []
    for name, span in config.tasks:
        if name == "CGNN" and papers.spectrum is None:
            console.print("the spectrum of the graph, for the closed form")
            papers = with_spectrum(papers)
        outcome = _train(name, span, config, papers, seeds, folder / "logs", progress)
        outcomes.append(outcome)
    rows = tuple(Row.over_seeds(o.model, o.setting, "accuracy", o.accuracy) for o in outcomes)
    draw_figures(folder, outcomes, data.name)
    result = Result("cora", _details(config, quick, data, outcomes), seeds, rows, progress.seconds)
    path = write_result(folder, result)
    _print_tables(console, result, data.name)
    console.print(f"{path} and figures beside it, in {result.seconds:.0f} s")
    return result


def _cost(name: str, span: float) -> float:
    fixed, per_unit = _COST[name]
    return fixed + per_unit * span


def _load(console: Console) -> NodeClassification:
    try:
        data = load_cora()
    except DataError as error:
        data = stochastic_block_model()
        console.print(f"Cora cannot be had: {error}", markup=False, highlight=False)
        console.print(
            f"[bold]A {data.name} of Cora's sizes stands in. What follows is no result on Cora.[/bold]", highlight=False
        )
    counts = (len(part) for part in (data.train, data.val, data.test))
    console.print(
        f"{data.name}: {data.graph.num_nodes} papers, {data.graph.num_edges // 2} citations; "
        "{} to train, {} to validate, {} to test".format(*counts),
        highlight=False,
    )
    return data


def _train(
    name: str, span: float, config: CoraConfig, papers: Papers, seeds: int, logs: Path, progress: Progress
) -> Outcome:
    progress.start(name if name in SHALLOW else f"{name}, S={span:g}")
    papers = without_edges(papers) if name == "MLP" else papers
    # A spectrum that is not used would be one more argument of the compiled programs.
    papers = papers if name == "CGNN" else dataclasses.replace(papers, spectrum=None)
    outcome = train_model(name, span, config, papers, seeds, logs)
    progress.end(f"validation {100 * outcome.validation.mean():.1f} %. {outcome.trouble}".rstrip())
    return outcome


def _details(config: CoraConfig, quick: bool, data: NodeClassification, outcomes: Sequence[Outcome]) -> dict:
    found = [
        {
            "model": o.model,
            "setting": o.setting,
            "validation_accuracy": float(o.validation.mean()),
            "energy_start": float(o.energy[0].mean()),
            "energy_end": float(o.energy[-1].mean()),
        }
        for o in outcomes
    ]
    return {**dataclasses.asdict(config), "quick": quick, "data": data.name, "models_found": found}


def _print_tables(console: Console, result: Result, name: str) -> None:
    percent = [dataclasses.replace(row, mean=100 * row.mean, std=100 * row.std) for row in result.rows]
    title = f"Test accuracy on {name} in percent, mean ± sd over {result.seeds} seed(s)"
    console.print(result_table(percent, "accuracy", title))
    console.print("The paper draws its accuracies and prints no figures to set beside these.")
    for line in compare(result):
        console.print(line, highlight=False)


def compare(result: Result) -> list[str]:
    """The paper's claims in differences of mean test accuracy, as far as the result has the models for them."""
    mean = {(row.model, row.setting): 100 * row.mean for row in result.rows}
    first, last = (f"S={span:g}" for span in (min(result.config["spans"]), max(result.config["spans"])))
    pairs = (
        (("GCDE", first), ("GCN", "2 layers")),
        (("GCDE", last), ("GCDE", first)),
        (("residual GCN", last), ("residual GCN", first)),
        (("plain GCN", last), ("GCN", "2 layers")),
    )
    return [
        f"{a[0]} at {a[1]} against {b[0]} at {b[1]}: {mean[a] - mean[b]:+.1f} points"
        for a, b in pairs
        if a in mean and b in mean and a != b
    ]
