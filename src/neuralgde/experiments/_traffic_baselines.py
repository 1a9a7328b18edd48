"""Forecasts of traffic without a network: each sensor's mean, and linear regressions in closed form."""

import dataclasses
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from ..data import Windows
from ..forecast import Analogues, Blend, Ridge, fit_ridge
from ._traffic_protocol import Forecast, TrafficTask, score

_NEAREST = 6
# How unlike days may be that count as alike, in mph.
_WIDTH = 3.0
_SHARES = np.linspace(0, 1, 11)


@dataclasses.dataclass(frozen=True)
class SensorMean:
    """The mean of each sensor over the training days."""

    task: TrafficTask

    def __call__(self, windows: Windows) -> Float[np.ndarray, "windows queries nodes"]:
        mean = self.task.profile.mean(0)
        return np.broadcast_to(mean, (*windows.query_times.shape, len(mean)))


def fit_traffic_ridge(task: TrafficTask, train: Sequence[Windows], validation: Windows, *, rich: bool = False) -> Ridge:
    """The regression on windows of the training days, with the penalty that is best on validation windows.

    Neighbours are those of the Gaussian graph; with `rich` each sensor has coefficients of its own.
    """
    neighbours = np.asarray(task.train.graph("gaussian").to_dense(), float)
    nearest = np.argsort(task.train.distances, axis=1, kind="stable")[:, 1 : _NEAREST + 1]

    def error(model: Ridge) -> float:
        return score(model(validation), validation)["rmse_sensor"]

    return fit_ridge("rich" if rich else "plain", neighbours, nearest, train, error)


def find_analogues(task: TrafficTask) -> Analogues:
    """What followed on training days that looked alike; neighbours are those of the Gaussian graph."""
    return Analogues.of(task.train, np.asarray(task.train.graph("gaussian").to_dense(), float), _WIDTH)


def fit_blend(first: Forecast, second: Forecast, validation: Windows) -> Blend:
    """As much of the second forecast as is best on validation windows."""

    def error(share: float) -> float:
        return score(a + share * (b - a), validation)["rmse_sensor"]

    a, b = first(validation), second(validation)
    return Blend(first, second, np.asarray(min(_SHARES, key=error)))
