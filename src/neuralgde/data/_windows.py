"""Windows: some observations in a row and what comes after them, as arrays of one shape."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from .._errors import InputError
from ..graph import Graph, GraphStream
from ._sensors import SensorSeries


class Scale(eqx.Module):
    """One mean and one standard deviation for all sensors of a data set; take them from the training days alone."""

    mean: float
    std: float

    @staticmethod
    def of(series: SensorSeries) -> "Scale":
        """That of the readings of a series."""
        mean, std = float(np.nanmean(series.values)), float(np.nanstd(series.values))
        if not (np.isfinite(mean) and std > 0):
            raise InputError(f"series: expected readings that differ, got mean {mean} and standard deviation {std}.")
        return Scale(mean, std)

    def apply(self, x: Any) -> Any:
        """From the units of the data to those of the model."""
        return (x - self.mean) / self.std


class Windows(eqx.Module):
    """Histories of `length` observations, and the truth at the times asked for after them; windows come first.

    - `times` (windows, length): in steps of the series since the midnight before the last observation, so that the time
      of day is the time modulo `period`.
    - `values`, `mask` (windows, length, nodes, features): what was observed; 0 where the mask is False.
    - `query_times` (windows, queries): the times asked for, all after the last observation.
    - `targets`, `target_mask` (windows, queries, nodes, features): the truth at those times, where it is known.
    - `period`: steps a day.
    - `base`, `query_base`: what was to be expected at those times, such as the mean day, where there is such a thing.
    - `inputs` (windows, length, nodes, channels): what else is known in advance at the observations.
    - `era` (windows,): which of the graphs that changed in time holds, where they are given stacked.
    - `day` (windows,): that of the last observation, by its number in the calendar.

    Arrays have one shape whatever the spacing, so one compiled program takes any batch of as many windows. A model gets
    `windows.stream(graph)`.
    """

    times: Float[Array | np.ndarray, "*windows length"]
    values: Float[Array | np.ndarray, "*windows length nodes features"]
    mask: Bool[Array | np.ndarray, "*windows length nodes features"]
    query_times: Float[Array | np.ndarray, "*windows queries"]
    targets: Float[Array | np.ndarray, "*windows queries nodes features"]
    target_mask: Bool[Array | np.ndarray, "*windows queries nodes features"]
    period: int = eqx.field(static=True)
    base: Float[Array | np.ndarray, "*windows length nodes features"] | None = None
    query_base: Float[Array | np.ndarray, "*windows queries nodes features"] | None = None
    inputs: Float[Array | np.ndarray, "*windows length nodes channels"] | None = None
    era: Int[Array | np.ndarray, "*windows"] | None = None
    day: Int[Array | np.ndarray, "*windows"] | None = None

    def __len__(self) -> int:
        """How many windows there are."""
        if self.times.ndim == 1:
            raise InputError("windows: a single window has no length. Ask for that of `times`.")
        return self.times.shape[0]

    def __getitem__(self, which: Any) -> "Windows":
        """Some of the windows, by index, slice or mask; an index gives one window, without the leading axis."""
        if self.times.ndim == 1:
            raise InputError("windows: expected many windows to choose from, got a single one.")
        return jax.tree.map(lambda a: a[which], self)

    @property
    def slot(self) -> Any:
        """The place of each observation in its day, (windows, length), whole numbers."""
        return _slot(self.times, self.period)

    @property
    def gaps(self) -> Any:
        """The time since the observation before, (windows, length - 1 + queries), the first query's last."""
        xp = _library(self.times)
        return xp.diff(xp.concatenate([self.times, self.query_times], axis=-1), axis=-1)

    def scaled(self, scale: Scale) -> "Windows":
        """Values and targets in the units of a model; what was not observed stays 0."""
        xp = _library(self.values)
        values = xp.where(self.mask, scale.apply(self.values), 0)
        targets = xp.where(self.target_mask, scale.apply(self.targets), 0)
        return eqx.tree_at(lambda w: (w.values, w.targets), self, (values, targets))

    def feature(self, f: int) -> "Windows":
        """One of several features."""
        names = ("values", "mask", "targets", "target_mask", "base", "query_base")
        arrays = {name: a[..., f : f + 1] for name in names if (a := getattr(self, name)) is not None}
        return eqx.tree_at(lambda w: [getattr(w, name) for name in arrays], self, list(arrays.values()))

    def stream(self, graph: Graph, inputs: Any = None) -> GraphStream:
        """The history of one window as a stream, or of many as a batch of streams that share the graph.

        `inputs` are known in advance at each observation: (windows, length, channels), or with nodes before channels.
        """
        graphs = None
        if self.era is not None:
            graphs, graph = jax.tree.map(lambda a: a[self.era], graph), jax.tree.map(lambda a: a[0], graph)
        if self.times.ndim == 1:
            return GraphStream(self.times, self.values, graph if graphs is None else graphs, self.mask, inputs)
        first = GraphStream(self.times[0], self.values[0], graph, self.mask[0], None if inputs is None else inputs[0])
        arrays = {"times": self.times, "values": self.values, "mask": self.mask, "inputs": inputs}
        arrays["step_mask"] = np.ones(self.times.shape, bool)
        arrays = {name: jnp.asarray(a) for name, a in arrays.items() if a is not None}
        stream = eqx.tree_at(lambda s: [getattr(s, name) for name in arrays], first, list(arrays.values()))
        return stream if graphs is None else eqx.tree_at(lambda s: s.graphs, stream, graphs)


def _library(x: Any) -> Any:
    """NumPy for host arrays, which need no compiled program for each new shape, else JAX."""
    return np if isinstance(x, np.ndarray) else jnp


def _slot(times: Any, period: int) -> Any:
    return _library(times).round(times).astype(np.int32) % period


def window_rows(
    series: SensorSeries,
    kept: Bool[np.ndarray, "rows *sensors"],
    *,
    length: int = 5,
    queries: int = 1,
    across_midnight: bool = True,
) -> Int[np.ndarray, "windows rows_of_window"]:
    """The rows of each window: `length` kept snapshots in a row, then the next `queries` kept ones.

    A snapshot of which any sensor is kept counts as kept. Windows go on over midnight into the next day, unless
    `across_midnight` is False, and never over days that are missing, such as a weekend: what lies between is not known.
    """
    for name, value in (("length", length), ("queries", queries)):
        if value < 1:
            raise InputError(f"{name}: expected 1 or more, got {value}.")
    if kept.shape not in (series.values.shape, series.values.shape[:1]):
        raise InputError(f"kept: expected shape {series.values.shape} or its first axis, got {kept.shape}.")
    rows = np.flatnonzero(kept if kept.ndim == 1 else kept.any(1))
    if len(rows) < length + queries:
        return np.empty((0, length + queries), int)
    found = np.lib.stride_tricks.sliding_window_view(rows, length + queries)
    stretch = _stretches(series, across_midnight)
    return found[stretch[found[:, 0]] == stretch[found[:, -1]]]


def make_windows(
    series: SensorSeries,
    kept: Bool[np.ndarray, "rows *sensors"] | None = None,
    *,
    length: int = 5,
    queries: int = 1,
    across_midnight: bool = True,
    base: Float[np.ndarray, "rows sensors"] | None = None,
) -> Windows:
    """The windows of a series of which only some readings are kept, all of them by default.

    The target is the next snapshot that is kept, so a model has to know how far ahead it is: `query_times`. All
    readings of that snapshot count as truth, also those of sensors that are not kept. `base` is what was to be expected
    of every row.
    """
    kept = np.ones(len(series.values), bool) if kept is None else kept
    rows = window_rows(series, kept, length=length, queries=queries, across_midnight=across_midnight)
    past, ahead = rows[:, :length], rows[:, length:]
    there = ~np.isnan(series.values)
    seen = there & (kept if kept.ndim == 2 else kept[:, None])
    steps = series.steps
    midnight = steps[past[:, -1:]] // series.slots * series.slots
    dtype = jax.dtypes.canonicalize_dtype(float)
    return Windows(
        times=(steps[past] - midnight).astype(dtype),
        values=np.where(seen[past], series.values[past], 0).astype(dtype)[..., None],
        mask=seen[past][..., None],
        query_times=(steps[ahead] - midnight).astype(dtype),
        targets=np.where(there[ahead], series.values[ahead], 0).astype(dtype)[..., None],
        target_mask=there[ahead][..., None],
        period=series.slots,
        base=None if base is None else base[past][..., None],
        query_base=None if base is None else base[ahead][..., None],
        day=series.day_numbers[past[:, -1] // series.slots].astype(np.int32),
    )


def _stretches(series: SensorSeries, across_midnight: bool) -> Int[np.ndarray, " rows"]:
    """A number for each row; two rows have the same where no day is missing between them."""
    breaks = np.diff(series.dates) > np.timedelta64(1, "D") if across_midnight else np.ones(len(series.dates) - 1, bool)
    return np.repeat(np.concatenate([[0], np.cumsum(breaks)]), series.slots)
