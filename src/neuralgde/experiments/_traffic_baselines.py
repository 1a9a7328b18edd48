"""Forecasts of traffic without a network: standing still, the mean day, and linear regressions in closed form."""

import dataclasses
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from ..data import Windows
from ._traffic_protocol import TrafficTask, score

_PENALTIES = (1e-4, 1e-3, 1e-2, 0.03, 0.1, 0.3, 1.0)
# Gaps count up to an hour; beyond, the mean day is all there is to say.
_LONGEST_GAP = 12.0
_NEAREST = 6
_AT_ONCE = 512


def filled(task: TrafficTask, windows: Windows) -> Float[np.ndarray, "windows length nodes"]:
    """Every value of the histories: what a sensor did not see is its mean day, as far off it as when last seen."""
    values, mask = (np.asarray(a)[..., 0] for a in (windows.values, windows.mask))
    mean = task.profile_at(windows.slot)
    out, off = np.empty(values.shape), np.zeros(values[:, 0].shape)
    for k in range(values.shape[1]):
        off = np.where(mask[:, k], values[:, k] - mean[:, k], off)
        out[:, k] = mean[:, k] + off
    return out


@dataclasses.dataclass(frozen=True)
class SensorMean:
    """The mean of each sensor over the training days."""

    task: TrafficTask

    def __call__(self, windows: Windows) -> Float[np.ndarray, "windows queries nodes"]:
        mean = self.task.profile.mean(0)
        return np.broadcast_to(mean, (*windows.query_times.shape, len(mean)))


@dataclasses.dataclass(frozen=True)
class TimeOfDay:
    """The mean of each sensor at the time of day asked for, over the training days."""

    task: TrafficTask

    def __call__(self, windows: Windows) -> Float[np.ndarray, "windows queries nodes"]:
        return self.task.profile_at(windows.query_slot)


@dataclasses.dataclass(frozen=True)
class Persistence:
    """The last value that a sensor has shown; the mean day where a window has none."""

    task: TrafficTask

    def __call__(self, windows: Windows) -> Float[np.ndarray, "windows queries nodes"]:
        values, mask = (np.asarray(a)[..., 0] for a in (windows.values, windows.mask))
        last = self.task.profile_at(windows.slot[:, -1])
        for k in range(values.shape[1]):
            last = np.where(mask[:, k], values[:, k], last)
        return np.broadcast_to(last[:, None], (*windows.query_times.shape, last.shape[-1]))


@dataclasses.dataclass(frozen=True)
class Ridge:
    """The change from the last value as a linear function of features, by least squares with a penalty.

    The features of a sensor: 1, its last value, how far that is off its mean day, how its mean day changes until the
    time asked for, its last changes, the slope of the last one, and of its neighbours (those of the Gaussian graph,
    weighted) how far they are off theirs, and their last change. How far it is off counts once more, times the gap to
    the time asked for. With `rich`, also how far off each of the six nearest sensors is; then all of these times the
    gap and times its root; and each sensor has coefficients of its own.
    """

    task: TrafficTask
    rich: bool
    neighbours: Float[np.ndarray, "nodes nodes"]
    nearest: np.ndarray
    weights: Float[np.ndarray, "..."]
    penalty: float

    def __call__(self, windows: Windows) -> Float[np.ndarray, "windows queries nodes"]:
        changes = [
            np.stack([self._change(part, q) for q in range(part.query_times.shape[1])], axis=1)
            for part in _parts(windows)
        ]
        return filled(self.task, windows)[:, -1:] + np.concatenate(changes)

    def _change(self, windows: Windows, query: int) -> Float[np.ndarray, "windows nodes"]:
        features = self._features(windows, query)
        return np.einsum("wnf,nf->wn", features, np.broadcast_to(self.weights, features.shape[1:]))

    def _features(self, windows: Windows, query: int) -> Float[np.ndarray, "windows nodes features"]:
        x = filled(self.task, windows)
        mean, later = self.task.profile_at(windows.slot), self.task.profile_at(windows.query_slot[:, query])
        past = np.diff(np.asarray(windows.times, float), axis=1)
        off, change = x[:, -1] - mean[:, -1], np.diff(x, axis=1)
        features = [np.ones_like(off), x[:, -1], off, later - mean[:, -1], *np.moveaxis(change, 1, 0)]
        if x.shape[1] > 1:
            last = change[:, -1]
            features += [last / past[:, -1:], last @ self.neighbours.T]
        gap = np.asarray(windows.query_times[:, query, None] - windows.times[:, -1:], float)
        gap = np.minimum(gap, _LONGEST_GAP) / _LONGEST_GAP
        features += [off @ self.neighbours.T]
        if not self.rich:
            return np.stack([*features, off * gap], axis=-1)
        features += list(np.moveaxis(off[:, self.nearest], 2, 0))
        features += [f * gap for f in features] + [f * np.sqrt(gap) for f in features]
        return np.stack(features, axis=-1)


def fit_ridge(task: TrafficTask, train: Sequence[Windows], validation: Windows, *, rich: bool = False) -> Ridge:
    """The regression on windows of the training days, with the penalty that is best on validation windows."""
    near = np.asarray(task.train.graph("gaussian").to_dense(), float)
    near = near / np.maximum(near.sum(1, keepdims=True), 1e-9)
    nearest = np.argsort(task.train.distances, axis=1, kind="stable")[:, 1 : _NEAREST + 1]
    model = Ridge(task, rich, near, nearest, np.zeros(0), 0.0)
    gram, moment = 0.0, 0.0
    for windows in (part for whole in train for part in _parts(whole)):
        for query in range(windows.query_times.shape[1]):
            f = model._features(windows, query)
            y, mask = (np.asarray(a)[:, query, :, 0] for a in (windows.targets, windows.target_mask))
            y = np.where(mask, y - filled(task, windows)[:, -1], 0)
            f = np.where(mask[..., None], f, 0)
            f, y = (np.moveaxis(f, 1, 0), y.T) if rich else (f.reshape(1, -1, f.shape[-1]), y.reshape(1, -1))
            gram, moment = gram + np.swapaxes(f, 1, 2) @ f, moment + np.einsum("swf,sw->sf", f, y)
    # Features have different units: each is measured by its own size, so that one penalty suits all.
    size = np.sqrt(np.maximum(np.einsum("sff->sf", gram), 1e-12))
    gram, moment = gram / (size[:, :, None] * size[:, None, :]), moment / size
    tried = []
    for penalty in _PENALTIES:
        found = np.linalg.solve(gram + penalty * np.eye(size.shape[1]), moment[..., None])[..., 0] / size
        fitted = dataclasses.replace(model, weights=found, penalty=penalty)
        tried.append((score(fitted(validation), validation)["rmse_sensor"], penalty, fitted))
    return min(tried, key=lambda entry: entry[:2])[2]


def _parts(windows: Windows) -> list[Windows]:
    """Some windows at a time: all features of all of them would fill the memory."""
    return [windows[start : start + _AT_ONCE] for start in range(0, len(windows), _AT_ONCE)]
