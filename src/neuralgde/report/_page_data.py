"""Page: everything that a report page shows, as plain arrays and words."""

import dataclasses
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int, Shaped

from .._errors import InputError
from ._result import Row

# Dates as datetime64, without a zone (in the user's own), or numbers.
Times = Shaped[np.ndarray, " times"]


@dataclasses.dataclass(frozen=True)
class Fans:
    """Forecasts with their intervals, and what came. NaN where there is no value.

    - `nodes`: their names, in the order of every `nodes` axis on the page. A table with several value columns has an
      entry for each node and column.
    - `times`: increasing.
    - `levels`: in percent, increasing, such as (50, 90); `lower` and `upper` are the ends of the central interval.
    - `y`: the truth, where it is known.
    - `seen`: True where the truth was among what the model had been given, before the forecast or after it, so that the
      page can draw readings the model saw otherwise than those that were held back.
    - `origins`: when each forecast was made, that is, the last time the model had seen.
    - `baselines`: naive forecasts of the same points, by name.
    - `past_times`, `past`: readings before the first forecast, to start the charts with.
    """

    nodes: tuple[str, ...]
    times: Times
    mean: Float[np.ndarray, "times nodes"]
    levels: tuple[float, ...] = ()
    lower: Float[np.ndarray, "levels times nodes"] | None = None
    upper: Float[np.ndarray, "levels times nodes"] | None = None
    y: Float[np.ndarray, "times nodes"] | None = None
    seen: Bool[np.ndarray, "times nodes"] | None = None
    origins: Times | None = None
    baselines: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)
    past_times: Shaped[np.ndarray, " past"] | None = None
    past: Float[np.ndarray, "past nodes"] | None = None

    def __post_init__(self):
        shape = (len(self.times), len(self.nodes))
        expect_shapes("Fans", shape, mean=self.mean, y=self.y, seen=self.seen, **self.baselines)
        expect_shapes("Fans", (len(self.levels), *shape), lower=self.lower, upper=self.upper)
        expect_shapes("Fans", shape[:1], origins=self.origins)
        if bool(self.levels) != (self.lower is not None) or (self.lower is None) != (self.upper is None):
            raise InputError("Fans: levels, lower and upper go together: give all three, or none.")
        if (self.past is None) != (self.past_times is None):
            raise InputError("Fans: past and past_times go together: give both, or none.")
        if self.past is not None and self.past_times is not None:
            expect_shapes("Fans", (len(self.past_times), shape[1]), past=self.past)


@dataclasses.dataclass(frozen=True)
class Scores:
    """How far forecasts are from the truth. The first of `models` is the one judged, the others are what it must beat.

    `metrics` are names such as "mae", "rmse", "crps", "coverage_90"; the first one decides. NaN where there is
    no value. `horizons` are words such as "15 min". `nodes` are names, those of the fan charts where there are any.
    `points` is how many readings `overall` was measured on.
    """

    models: tuple[str, ...]
    metrics: tuple[str, ...]
    overall: Float[np.ndarray, "models metrics"]
    horizons: tuple[str, ...] = ()
    by_horizon: Float[np.ndarray, "models metrics horizons"] | None = None
    nodes: tuple[str, ...] = ()
    by_node: Float[np.ndarray, "models metrics nodes"] | None = None
    points: int | None = None

    def __post_init__(self):
        shape = (len(self.models), len(self.metrics))
        if not all(shape):
            raise InputError(f"Scores: expected at least one model and one metric, got {shape[0]} and {shape[1]}.")
        expect_shapes("Scores", shape, overall=self.overall)
        expect_shapes("Scores", (*shape, len(self.horizons)), by_horizon=self.by_horizon)
        expect_shapes("Scores", (*shape, len(self.nodes)), by_node=self.by_node)


@dataclasses.dataclass(frozen=True)
class Network:
    """The graph, its nodes in the order of the fan charts.

    `coordinates` are (x, y), or (longitude, latitude) with `geographic`; without any the page makes its own layout.
    """

    nodes: tuple[str, ...]
    senders: Int[np.ndarray, " edges"]
    receivers: Int[np.ndarray, " edges"]
    weights: Float[np.ndarray, " edges"] | None = None
    coordinates: Float[np.ndarray, "nodes 2"] | None = None
    geographic: bool = False

    def __post_init__(self):
        expect_shapes("Network", (len(self.senders),), receivers=self.receivers, weights=self.weights)
        expect_shapes("Network", (len(self.nodes), 2), coordinates=self.coordinates)
        ends = np.concatenate([self.senders, self.receivers])
        if ends.size and not 0 <= ends.min() <= ends.max() < len(self.nodes):
            raise InputError(
                f"Network: edges name nodes {ends.min()} to {ends.max()}, but there are {len(self.nodes)}."
            )


@dataclasses.dataclass(frozen=True)
class Calibration:
    """Intervals held against the truth: how often each level (in percent) was said to cover, and did (in percent).

    `points` is how many readings that was measured on; `width` is the intervals' mean width.
    """

    levels: tuple[float, ...]
    measured: Float[np.ndarray, " levels"]
    points: int | None = None
    width: Float[np.ndarray, " levels"] | None = None

    def __post_init__(self):
        expect_shapes("Calibration", (len(self.levels),), measured=self.measured, width=self.width)


@dataclasses.dataclass(frozen=True)
class Training:
    """Curves over the steps of training, by name; the values that a step has none of are NaN.

    `chosen` is the step whose parameters were kept.
    """

    steps: Shaped[np.ndarray, " events"]
    curves: dict[str, np.ndarray]
    chosen: int | None = None
    seconds: float | None = None

    def __post_init__(self):
        expect_shapes("Training", (len(self.steps),), **self.curves)


@dataclasses.dataclass(frozen=True)
class LatentFlow:
    """The state z(t) of a few nodes while it flows, and jumps where something was observed.

    A time stands twice where the state jumps: before, then after. `observed` are the times of the jumps.
    """

    nodes: tuple[str, ...]
    times: Times
    states: Float[np.ndarray, "times nodes features"]
    observed: Shaped[np.ndarray, " jumps"]

    def __post_init__(self):
        if self.states.ndim != 3 or self.states.shape[:2] != (len(self.times), len(self.nodes)):
            raise InputError(
                f"LatentFlow: expected states of shape ({len(self.times)}, {len(self.nodes)}, features), as times and "
                f"nodes say, got {self.states.shape}."
            )


@dataclasses.dataclass(frozen=True)
class SolverStats:
    """What the solver did: `facts` by name ("solver", "steps", "evaluations"), and the steps of each interval.

    `gaps` are the lengths of the intervals between observations, in the words of `gap_unit`, and `steps` how many steps
    each of them took.
    """

    facts: dict[str, str | int | float]
    gaps: Float[np.ndarray, " intervals"] | None = None
    steps: Shaped[np.ndarray, " intervals"] | None = None
    gap_unit: str = ""

    def __post_init__(self):
        if (self.gaps is None) != (self.steps is None):
            raise InputError("SolverStats: gaps and steps go together: give both, or none.")
        if self.gaps is not None:
            expect_shapes("SolverStats", (len(self.gaps),), steps=self.steps)


@dataclasses.dataclass(frozen=True)
class Page:
    """A report page. Every part but the title may be missing, and the page then goes without it.

    `summary` are sentences for its beginning, and `notes` what the reader has to know of the data (a sensor left out,
    no edges given). `quantity` names what is forecast, with its unit: "speed (mph)". `rows` and `figures` (PNG files by
    caption) show an experiment.
    """

    title: str
    summary: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    quantity: str = "value"
    fans: Fans | None = None
    scores: Scores | None = None
    network: Network | None = None
    calibration: Calibration | None = None
    training: Training | None = None
    latent: LatentFlow | None = None
    solver: SolverStats | None = None
    config: dict[str, Any] = dataclasses.field(default_factory=dict)
    versions: dict[str, str] = dataclasses.field(default_factory=dict)
    rows: tuple[Row, ...] = ()
    figures: dict[str, bytes] = dataclasses.field(default_factory=dict)

    def __post_init__(self):
        if self.fans is not None and self.network is not None and self.fans.nodes != self.network.nodes:
            raise InputError("Page: expected the nodes of the network to be those of the fan charts, in their order.")


def expect_shapes(what: str, shape: tuple[int, ...], **arrays: np.ndarray | None) -> None:
    """Refuse arrays of other shapes by name."""
    for name, array in arrays.items():
        if array is not None and array.shape != shape:
            raise InputError(f"{what}: expected {name} of shape {shape}, got {array.shape}.")
