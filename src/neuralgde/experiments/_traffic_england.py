"""England: tomorrow's cases and tomorrow's edges, on a graph that changes every day."""

import dataclasses

import numpy as np
from jaxtyping import Bool, Float

from .. import metrics
from ..data import EnglandMobility
from ..report import Row

CASES, EDGES = "next-day cases", "next-day edges"


@dataclasses.dataclass(frozen=True)
class EnglandTask:
    """Days to train, to validate and to test on, in order; what is known on a day is that day and those before it.

    `pairs` are those that have an edge on some training day: edges are asked for among them alone, because almost all
    others never have one.
    """

    data: EnglandMobility
    train_days: int
    validation_days: int
    pairs: Bool[np.ndarray, "regions regions"]

    @staticmethod
    def of(data: EnglandMobility, train_days: int = 40, validation_days: int = 7) -> "EnglandTask":
        """The days after those of training and validation are the test."""
        return EnglandTask(data, train_days, validation_days, np.any(data.movements[:train_days] > 0, axis=0))

    @property
    def validation(self) -> range:
        return range(self.train_days, self.train_days + self.validation_days)

    @property
    def test(self) -> range:
        return range(self.train_days + self.validation_days, len(self.data.dates))

    @property
    def flows(self) -> Float[np.ndarray, "days pairs"]:
        """log(1 + people who move) for each pair: movements run from tens to hundreds of thousands."""
        return np.log1p(self.data.movements[:, self.pairs])

    def score_cases(self, name: str, predicted: Float[np.ndarray, "days regions"], days: range) -> list[Row]:
        """Rows for forecasts of the cases of some days."""
        y = self.data.cases[list(days)]
        return [
            Row.over_seeds(name, CASES, metric, [float(getattr(metrics, metric)(predicted, y))])
            for metric in ("rmse", "mae")
        ]

    def score_edges(
        self, name: str, flows: Float[np.ndarray, "days pairs"], present: Bool[np.ndarray, "days pairs"], days: range
    ) -> list[Row]:
        """Rows for forecasts of the edges of some days: the error of flows, and how often presence is right."""
        y = self.flows[list(days)]
        found = {
            "rmse": metrics.rmse(flows, y),
            "mae": metrics.mae(flows, y),
            "accuracy": metrics.accuracy(present.astype(float), (y > 0).astype(float)),
        }
        return [Row.over_seeds(name, EDGES, metric, [float(value)]) for metric, value in found.items()]


def naive_rows(task: EnglandTask) -> list[Row]:
    """Tomorrow as today, and tomorrow as the mean of the last 7 days."""
    rows = []
    for name, back in (("persistence", 1), ("7-day mean", 7)):
        cases, flows, present = (
            np.stack([values[day - back : day].mean(0) for day in task.test])
            for values in (task.data.cases, task.flows, (task.flows > 0).astype(float))
        )
        rows += task.score_cases(name, cases, task.test)
        rows += task.score_edges(name, flows, present > 0.5, task.test)
    return rows
