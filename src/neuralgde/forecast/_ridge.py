"""Forecasts of windows without a network: standing still, what was to be expected, and ridge regressions."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ..data import Windows

_PENALTIES = (1e-4, 1e-3, 1e-2, 0.03, 0.1, 0.3, 1.0)
# Gaps count up to an hour of 5-minute steps; beyond, the mean day is all there is to say.
_LONGEST_GAP = 12.0
# How fast what is known fades, in steps, for regressions that are asked for times near and far.
_FADING = (3.0, 12.0, 48.0)
_AT_ONCE = 128

Points = Float[np.ndarray, "windows queries nodes"]


def filled(windows: Windows) -> Float[Array | np.ndarray, "windows length nodes"]:
    """Every value of the histories: what a sensor did not see is its base, as far off it as when last seen."""
    xp = _library(windows)
    values, mask, mean = windows.values[..., 0], windows.mask[..., 0], _base(windows)[0][..., 0]
    out, off = [], xp.zeros_like(mean[:, 0])
    for k in range(values.shape[1]):
        off = xp.where(mask[:, k], values[:, k] - mean[:, k], off)
        out.append(mean[:, k] + off)
    return xp.stack(out, axis=1)


def expected(windows: Windows) -> Points:
    """What was to be expected at the times asked for."""
    return np.asarray(_base(windows)[1][..., 0], float)


def last_value(windows: Windows) -> Points:
    """The last value that a sensor has shown; what was to be expected then where a window has none."""
    values, mask = (np.asarray(a)[..., 0] for a in (windows.values, windows.mask))
    last = np.asarray(_base(windows)[0], float)[:, -1, :, 0]
    for k in range(values.shape[1]):
        last = np.where(mask[:, k], values[:, k], last)
    return np.broadcast_to(last[:, None], (*windows.query_times.shape, last.shape[-1]))


class Ridge(eqx.Module):
    """The change from the last value as a linear function of features, by least squares with a penalty.

    The features of a sensor: 1, its last value, how far that is off its base, how its base changes until the time asked
    for, its last changes, the slope of the last one, and of its neighbours, weighted, how far they are off theirs, and
    their last change. Then there are three kinds:

    - "plain": how far it is off counts once more, times the gap to the time asked for.
    - "rich": also how far off each of the nearest sensors is; then all of these times the gap and times its root; and
      each sensor has coefficients of its own.
    - "fading": as rich, but times exp(-gap / 3, 12 and 48 steps), for times asked for that are near and far.

    It takes windows of NumPy or of JAX, and there belongs to compiled programs.
    """

    neighbours: Float[Array | np.ndarray, "nodes nodes"]
    nearest: Int[Array | np.ndarray, "nodes nearest"]
    weights: Float[Array | np.ndarray, "..."]
    kind: str = eqx.field(static=True)
    penalty: float = eqx.field(static=True)

    def __call__(self, windows: Windows) -> Any:
        """Forecasts (windows, queries, nodes), by the library of the windows."""
        if _library(windows) is jnp:
            return filled(windows)[:, -1:] + self._change(windows)
        return filled(windows)[:, -1:] + np.concatenate([self._change(part) for part in _parts(windows)])

    def _change(self, windows: Windows) -> Float[Array | np.ndarray, "windows queries nodes"]:
        features = self.features(windows)
        xp = _library(windows)
        return xp.einsum("wqnf,nf->wqn", features, xp.broadcast_to(self.weights, features.shape[2:]))

    def features(self, windows: Windows) -> Float[Array | np.ndarray, "windows queries nodes features"]:
        """Those of every time asked for."""
        xp = _library(windows)
        x = filled(windows)
        mean, later = (a[..., 0] for a in _base(windows))
        past = xp.diff(windows.times, axis=1)
        off, change = x[:, -1] - mean[:, -1], xp.diff(x, axis=1)
        before = [xp.ones_like(off), x[:, -1], off, *xp.moveaxis(change, 1, 0)]
        if x.shape[1] > 1:
            last = change[:, -1]
            before += [last / past[:, -1:], last @ self.neighbours.T]
        before += [off @ self.neighbours.T]
        if self.kind != "plain":
            before += list(xp.moveaxis(off[:, self.nearest], 2, 0))
        shape = (*windows.query_times.shape, off.shape[1])
        features = [later - mean[:, -1:], *(xp.broadcast_to(f[:, None], shape) for f in before)]
        gap = (windows.query_times - windows.times[:, -1:])[..., None]
        near = xp.minimum(gap, _LONGEST_GAP) / _LONGEST_GAP
        if self.kind == "plain":
            return xp.stack([*features, off[:, None] * near], axis=-1)
        factors = [near, xp.sqrt(near)] if self.kind == "rich" else [xp.exp(-gap / fading) for fading in _FADING]
        features += [f * factor for factor in factors for f in features]
        return xp.stack(features, axis=-1)


def shares(neighbours: Float[np.ndarray, "nodes nodes"]) -> Float[np.ndarray, "nodes nodes"]:
    """Weights of the sensors that each one hears, [receiver, sender], made to add up to 1."""
    return neighbours / np.maximum(neighbours.sum(1, keepdims=True), 1e-9)


def fit_ridge(
    kind: str,
    neighbours: Float[np.ndarray, "nodes nodes"],
    nearest: Int[np.ndarray, "nodes nearest"],
    train: Sequence[Windows],
    score: Callable[[Ridge], float],
) -> Ridge:
    """The regression on training windows, with the penalty of the lowest score, which looks at validation windows.

    `neighbours` are weights of the sensors that each one hears, [receiver, sender]; they are made to add up to 1.
    """
    model = Ridge(shares(neighbours), nearest, np.zeros(0), kind, 0.0)
    gram, moment = 0.0, 0.0
    for windows in (part for whole in train for part in _parts(whole)):
        f = model.features(windows)
        y, mask = (np.asarray(a)[..., 0] for a in (windows.targets, windows.target_mask))
        y = np.where(mask, y - filled(windows)[:, -1:], 0)
        f = np.where(mask[..., None], f, 0)
        if kind == "plain":
            f, y = f.reshape(1, -1, f.shape[-1]), y.reshape(1, -1)
        else:
            f, y = (
                np.moveaxis(f, 2, 0).reshape(f.shape[2], -1, f.shape[-1]),
                np.moveaxis(y, 2, 0).reshape(y.shape[2], -1),
            )
        gram, moment = gram + np.swapaxes(f, 1, 2) @ f, moment + np.einsum("swf,sw->sf", f, y)
    # Features have different units: each is measured by its own size, so that one penalty suits all.
    size = np.sqrt(np.maximum(np.einsum("sff->sf", gram), 1e-12))
    gram, moment = gram / (size[:, :, None] * size[:, None, :]), moment / size
    tried = []
    for penalty in _PENALTIES:
        found = np.linalg.solve(gram + penalty * np.eye(size.shape[1]), moment[..., None])[..., 0] / size
        fitted = dataclasses.replace(model, weights=found, penalty=penalty)
        tried.append((score(fitted), penalty, fitted))
    return min(tried, key=lambda entry: entry[:2])[2]


def _base(windows: Windows) -> tuple[Array | np.ndarray, Array | np.ndarray]:
    if windows.base is None or windows.query_base is None:
        xp = _library(windows)
        return xp.zeros_like(windows.values), xp.zeros_like(windows.targets)
    return windows.base, windows.query_base


def _library(windows: Windows) -> Any:
    return np if isinstance(windows.values, np.ndarray) else jnp


def _parts(windows: Windows) -> list[Windows]:
    """Some windows at a time: all features of all of them would fill the memory."""
    return [windows[start : start + _AT_ONCE] for start in range(0, len(windows), _AT_ONCE)]
