"""How a model is trained on traffic and forecasts it: what it is shown of a window, and batches of windows."""

import dataclasses
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from ..data import Scale, SensorSeries, Windows
from ..graph import Graph
from ..train import fit_seeds
from ._traffic_models import Recipe
from ._traffic_protocol import TrafficTask

# Windows a forecast takes at once; the last ones are padded, so that there is one program.
_FORECAST_BATCH = 128


class View(eqx.Module):
    """What a model is shown: readings by one scale, or with a mean day how far they are off it, and the day itself.

    The mean day is that of the training days. It is known for all times, so also for those asked for.
    """

    scale: Scale
    day: Float[Array, "slots nodes"] | None
    off_std: float

    @staticmethod
    def of(task: TrafficTask, mean_day: bool) -> "View":
        if not mean_day:
            return View(task.scale, None, 1.0)
        off = task.train.values - np.tile(task.profile, (len(task.train.dates), 1))
        return View(task.scale, jnp.asarray(task.scale.apply(task.profile), float), float(np.nanstd(off)))

    @property
    def inputs(self) -> int:
        """Channels of inputs known in advance."""
        return 0 if self.day is None else 1

    def show(self, windows: Windows) -> tuple[Windows, Array | None]:
        """The window in the units of the model, and its inputs."""
        windows = windows.scaled(self.scale)
        if self.day is None:
            return windows, None
        ratio = self.scale.std / self.off_std
        day, later = self.day[windows.slot][..., None], self.day[windows.query_slot][..., None]
        values = jnp.where(windows.mask, (windows.values - day) * ratio, 0)
        targets = jnp.where(windows.target_mask, (windows.targets - later) * ratio, 0)
        return eqx.tree_at(lambda w: (w.values, w.targets), windows, (values, targets)), day

    def read(self, predicted: Array, windows: Windows) -> Array:
        """Forecasts in the units of the data."""
        if self.day is not None:
            predicted = predicted * (self.off_std / self.scale.std) + self.day[windows.query_slot][..., None]
        return self.scale.invert(predicted)


class FreshWindows(eqx.Module):
    """Windows of the training days, undersampled anew whenever they are asked for.

    Seen from a snapshot that is kept, the number of steps to the one kept before it is geometric, and so is that to the
    one after. So gaps drawn backwards from any row make a window of a new undersampling that ends there, and gaps drawn
    forwards as many targets as are wanted, each of which might have been the next. A share `outages` of sensors goes
    out somewhere in the window and stays out, so that a model learns what to do without them; the truth of all counts.
    """

    values: Float[Array, "rows nodes 1"]
    there: Bool[Array, "rows nodes 1"]
    steps: Int[Array, " rows"]
    first: Int[Array, " rows"]
    last: Int[Array, " rows"]
    keep: Float[Array, ""]
    outages: Float[Array, ""]
    length: int = eqx.field(static=True)
    queries: int = eqx.field(static=True)
    period: int = eqx.field(static=True)

    @staticmethod
    def of(series: SensorSeries, keep: float, length: int, *, queries: int = 1, outages: float = 0.0) -> "FreshWindows":
        there = ~np.isnan(series.values)
        # The ends of the stretch without a missing day that each row is in.
        stretch = np.cumsum(np.diff(series.steps, prepend=series.steps[0]) > 1)
        ends = np.append(np.flatnonzero(np.diff(stretch, prepend=-1)), len(stretch))
        return FreshWindows(
            jnp.asarray(np.where(there, series.values, 0), float)[..., None],
            jnp.asarray(there)[..., None],
            jnp.asarray(series.steps, jnp.int32),
            jnp.asarray(ends[stretch], jnp.int32),
            jnp.asarray(ends[stretch + 1] - 1, jnp.int32),
            jnp.asarray(keep, float),
            jnp.asarray(outages, float),
            length,
            queries,
            series.slots,
        )

    @property
    def rows(self) -> Int[np.ndarray, " windows"]:
        """The rows that windows may end at."""
        rows, first, last = np.arange(len(self.steps)), np.asarray(self.first), np.asarray(self.last)
        return rows[(rows - first >= self.length - 1) & (rows < last)].astype(np.int32)

    def __call__(self, rows: Int[Array, " batch"], key: PRNGKeyArray) -> Windows:
        """Windows that end at rows; where one would reach over a break, it counts for nothing: no target is there."""
        k_before, k_after, k_out, k_when = jax.random.split(key, 4)
        before, after = self._gaps(k_before, rows, self.length - 1), self._gaps(k_after, rows, self.queries)
        back = jnp.pad(jnp.cumsum(before, axis=1), ((0, 0), (1, 0)))[:, ::-1]
        past, ahead = rows[:, None] - back, rows[:, None] + after
        fits = (past[:, :1] >= self.first[rows][:, None]) & (ahead <= self.last[rows][:, None])
        # Times are by the gaps, so that they are in order where a row is not the one that was meant.
        now = self.steps[rows][:, None] % self.period
        past, ahead = jnp.maximum(past, 0), jnp.minimum(ahead, len(self.steps) - 1)
        mask = self.there[past] & ~self._out(k_out, k_when, rows)[..., None]
        dtype = self.values.dtype
        return Windows(
            times=(now - back).astype(dtype),
            values=jnp.where(mask, self.values[past], 0),
            mask=mask,
            query_times=(now + after).astype(dtype),
            targets=self.values[ahead],
            target_mask=self.there[ahead] & fits[:, :, None, None],
            period=self.period,
        )

    def _gaps(self, key: PRNGKeyArray, rows: Array, count: int) -> Int[Array, "batch count"]:
        draws = jax.random.uniform(key, (rows.shape[0], count), minval=1e-7)
        # Where all are kept the logarithm below is -inf, and every gap 1.
        return 1 + jnp.floor(jnp.log(draws) / jnp.log1p(-self.keep)).astype(jnp.int32)

    def _out(self, k_out: PRNGKeyArray, k_when: PRNGKeyArray, rows: Array) -> Bool[Array, "batch length nodes"]:
        shape = (rows.shape[0], self.values.shape[1])
        since = jax.random.randint(k_when, shape, 0, self.length)
        since = jnp.where(jax.random.uniform(k_out, shape) < self.outages, since, self.length)
        return jnp.arange(self.length)[:, None] >= since[:, None]


class WindowLoss(eqx.Module):
    """The mean squared error, in the units of the model. A batch is windows, or the target rows of fresh ones."""

    graph: Graph
    view: View
    fresh: FreshWindows | None

    def __call__(self, model: Any, batch: Any, key: PRNGKeyArray) -> Float[Array, ""]:
        windows = batch if self.fresh is None else self.fresh(batch, key)
        shown, inputs = self.view.show(windows)
        error = model(shown.stream(self.graph, inputs), shown.query_times) - shown.targets
        count = jnp.maximum(jnp.sum(shown.target_mask), 1).astype(error.dtype)
        return jnp.sum(jnp.where(shown.target_mask, error, 0) ** 2) / count


class SensorError(eqx.Module):
    """`rmse_sensor` of forecasts, in the units of the data, on all windows: what models are chosen by."""

    graph: Graph
    view: View

    def __call__(self, model: Any, windows: Windows, key: PRNGKeyArray) -> Float[Array, ""]:
        del key
        predicted = _forecast(model, self.view, self.graph, windows)
        squares = jnp.where(windows.target_mask, (predicted - windows.targets) ** 2, 0)
        count = jnp.maximum(jnp.sum(windows.target_mask, axis=(0, 1)), 1).astype(squares.dtype)
        return jnp.mean(jnp.sqrt(jnp.sum(squares, axis=(0, 1)) / count))


def _forecast(model: Any, view: View, graph: Graph, windows: Windows) -> Array:
    """Forecasts of all windows, some at a time: all at once would need much memory."""

    def some(part: Windows) -> Array:
        shown, inputs = view.show(part)
        return view.read(model(shown.stream(graph, inputs), shown.query_times), part)

    size = min(_FORECAST_BATCH, len(windows))
    parts = -(-len(windows) // size)
    rows = jnp.minimum(jnp.arange(parts * size), len(windows) - 1).reshape(parts, size)
    out = jax.lax.map(lambda chosen: some(windows[chosen]), rows)
    return out.reshape(parts * size, *out.shape[2:])[: len(windows)]


class Trained(eqx.Module):
    """Models of several seeds with what they need to forecast."""

    models: Any
    view: View
    graph: Graph

    def __call__(self, windows: Windows) -> Float[np.ndarray, "seeds windows queries nodes"]:
        """Forecasts in the units of the data, of every seed."""
        # So many at a time, the last ones padded: undersamplings differ in length, and share a program.
        out = []
        for start in range(0, len(windows), _FORECAST_BATCH):
            some = windows[np.minimum(np.arange(start, start + _FORECAST_BATCH), len(windows) - 1)]
            out.append(_forecast_seeds(self.models, self.view, self.graph, jax.tree.map(jnp.asarray, some)))
        return np.concatenate([np.asarray(part) for part in out], axis=1)[:, : len(windows), ..., 0]


@eqx.filter_jit
def _forecast_seeds(models: Any, view: View, graph: Graph, windows: Windows) -> Array:
    # In turn: one model keeps the machine busy.
    arrays, static = eqx.partition(models, eqx.is_array)
    return jax.lax.map(lambda a: _forecast(eqx.combine(a, static), view, graph, windows), arrays)


@dataclasses.dataclass(frozen=True)
class Outcome:
    """A model after training: its forecasts, and how it went.

    `epochs` (events,) and `curve` (events, seeds) are the validation error on the way, `validation` (seeds,) the best.
    """

    model: str
    setting: str
    trained: Trained
    epochs: Float[np.ndarray, " events"]
    curve: Float[np.ndarray, "events seeds"]
    validation: Float[np.ndarray, " seeds"]
    summary: str


def train_models(
    name: str,
    setting: str,
    models: Any,
    task: TrafficTask,
    graph: Graph,
    how: Recipe,
    *,
    keep: float,
    key: Array,
    log: Path | None = None,
) -> Outcome:
    """Train models of several seeds on the training days undersampled to `keep`, and keep the best on validation."""
    view = View.of(task, how.mean_day)
    data: Any = task.windows("train", keep, seed=0)
    a_pass, source = len(data) / (how.train.batch_size or len(data)), None
    if how.fresh:
        source = FreshWindows.of(task.train, keep, task.length, queries=how.queries, outages=how.outages)
        data = source.rows
    result = fit_seeds(
        models,
        WindowLoss(graph, view, source),
        data,
        how.train,
        key=key,
        validation=task.windows("validation", keep, seed=0),
        metric_fn=SensorError(graph, view),
        log=log,
        in_turn=True,
    )
    best = result.best_validation
    return Outcome(
        name,
        setting,
        Trained(result.best, view, graph),
        np.asarray(result.history["step"], float) / a_pass,
        np.asarray(result.history["validation"], float).reshape(len(result.history["step"]), -1),
        np.zeros(0) if best is None else np.asarray(best, float),
        result.summary,
    )
