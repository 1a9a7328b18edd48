"""Predictors: from windows to means and spreads, by a rule for each variable or by a network."""

import dataclasses
from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from ..data import Windows
from ..graph import Graph
from ..model import Gaussian
from ._losses import forecast_windows
from ._view import View

# A network forecasts so many windows with so many times asked for at once, padded: one program for all uses.
BATCH, QUERIES = 32, 4

Points = Float[np.ndarray, "windows queries sensors variables"]


@runtime_checkable
class Predictor(Protocol):
    """Means and spreads of the forecasts of windows, in the units of the data."""

    def __call__(self, windows: Windows) -> tuple[Points, Points]: ...


@dataclasses.dataclass(frozen=True)
class Spread:
    """How large errors are: `sizes` (groups, sensors, variables), so far ahead as `gaps`, straight between."""

    gaps: Float[np.ndarray, " groups"]
    sizes: Float[np.ndarray, "groups sensors variables"]

    def __call__(self, windows: Windows) -> Points:
        gap = gap_of(windows)
        flat = self.sizes.reshape(len(self.gaps), -1)
        out = np.stack([np.interp(gap, self.gaps, flat[:, k]) for k in range(flat.shape[1])], axis=-1)
        return out.reshape(*gap.shape, *self.sizes.shape[1:])

    @staticmethod
    def fit(error: Points, mask: np.ndarray, gap: Float[np.ndarray, "windows queries"]) -> "Spread":
        """From errors; each sensor's own, as far as it has been seen often enough."""
        edges = np.unique(np.quantile(gap, np.linspace(0, 1, 7)[1:-1]))
        group = np.searchsorted(edges, gap, side="left")
        least = 1e-6 * max(float(np.sqrt(np.mean(error[mask] ** 2))) if mask.any() else 1.0, 1e-12)
        gaps, sizes = [], []
        for g in np.unique(group).tolist():
            some, there = np.where(mask, error, 0)[group == g] ** 2, mask[group == g]
            pooled = some.sum(axis=(0, 1)) / np.maximum(there.sum(axis=(0, 1)), 1)
            # Ten readings' worth of what all sensors have together.
            size = np.sqrt((some.sum(axis=0) + 10 * pooled) / (there.sum(axis=0) + 10))
            gaps.append(float(gap[group == g].mean()))
            sizes.append(np.maximum(size, least))
        return Spread(np.array(gaps), np.stack(sizes))


@dataclasses.dataclass(frozen=True)
class RulePredictor:
    """A rule for each variable, and the size of its errors."""

    rules: tuple[Callable[[Windows], Any], ...]
    spread: Spread

    def __call__(self, windows: Windows) -> tuple[Points, Points]:
        return by_variable(self.rules, windows), self.spread(windows)


@dataclasses.dataclass(frozen=True)
class NetworkPredictor:
    """A network, what it is shown, and the graph."""

    network: Any
    view: View
    graph: Graph

    def __call__(self, windows: Windows) -> tuple[Points, Points]:
        count, queries = windows.query_times.shape
        chunks = -(-queries // QUERIES)
        which = np.repeat(np.arange(count), chunks)
        columns = np.minimum(np.arange(chunks * QUERIES), queries - 1).reshape(chunks, QUERIES)
        columns = np.tile(columns, (count, 1))
        means, spreads = [], []
        for start in range(0, len(which), BATCH):
            at = np.minimum(np.arange(start, start + BATCH), len(which) - 1)
            part = _asked(windows, which[at], columns[at])
            out = _forecast_batch(self.network, self.view, self.graph, jax.tree.map(jnp.asarray, part))
            means.append(np.asarray(out.loc, float))
            spreads.append(np.asarray(out.scale, float))
        shape = (count, chunks * QUERIES, *windows.values.shape[2:])
        mean, std = (np.concatenate(a)[: len(which)].reshape(shape)[:, :queries] for a in (means, spreads))
        return mean, std


@eqx.filter_jit
def _forecast_batch(network: Any, view: View, graph: Graph, windows: Windows) -> Gaussian:
    return forecast_windows(network, view, graph, windows)


def _asked(windows: Windows, which: np.ndarray, columns: np.ndarray) -> Windows:
    """Some windows, each asked for some of its times."""
    names = ("query_times", "targets", "target_mask", "query_base")
    some = windows[which]
    arrays = {
        n: np.asarray(a)[np.arange(len(which))[:, None], columns] for n in names if (a := getattr(some, n)) is not None
    }
    return eqx.tree_at(lambda w: [getattr(w, n) for n in arrays], some, list(arrays.values()))


def by_variable(rules: tuple[Callable, ...], windows: Windows) -> Points:
    """The forecasts of a rule for each variable."""
    return np.stack([np.asarray(rule(windows.feature(v)), float) for v, rule in enumerate(rules)], axis=-1)


def gap_of(windows: Windows) -> Float[np.ndarray, "windows queries"]:
    """How far ahead of the last observation times asked for are, as networks are told it."""
    return np.asarray(windows.query_times, float) - np.asarray(windows.times, float)[:, -1:]
