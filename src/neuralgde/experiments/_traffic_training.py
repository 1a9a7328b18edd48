"""How a model is trained on traffic and forecasts it: what it is shown of a window, and batches of windows."""

import dataclasses
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..data import SensorSeries, Windows
from ..forecast import (
    FORECAST_BATCH,
    Blend,
    FreshWindows,
    Ridge,
    SensorError,
    View,
    WindowLoss,
    forecast_windows,
    lines_on_device,
)
from ..graph import Graph
from ..train import fit_seeds
from ._traffic_models import Recipe
from ._traffic_protocol import TrafficTask


def view_of(task: TrafficTask, mean_day: bool, regression: Ridge | Blend | None = None) -> View:
    """Readings by one scale, or with a mean day how far they are off it, both from the training days."""
    scale = (jnp.asarray(task.scale.mean, float), jnp.asarray(task.scale.std, float))
    if not mean_day:
        return View(*scale, None)
    off = task.train.values - task.base("train")
    lines = () if regression is None else lines_on_device((regression,))
    return View(*scale, jnp.asarray(np.nanstd(off), float), lines)


def fresh_windows(
    series: SensorSeries,
    keep: float,
    length: int,
    *,
    base: Float[np.ndarray, "rows sensors"] | None = None,
    queries: int = 1,
    outages: float = 0.0,
) -> FreshWindows:
    """Windows of a series, undersampled anew whenever they are asked for; none reaches over days that are missing."""
    return FreshWindows.of(
        series.values[..., None], series.steps, series.steps % series.slots, period=series.slots, length=length,
        keep=keep, queries=queries, outages=outages, base=None if base is None else base[..., None],
        day=np.repeat(series.day_numbers, series.slots),
    )  # fmt: skip


class Trained(eqx.Module):
    """Models of several seeds with what they need to forecast."""

    models: Any
    view: View
    graph: Graph

    def __call__(self, windows: Windows) -> Float[np.ndarray, "seeds windows queries nodes"]:
        """Forecasts in the units of the data, of every seed."""
        # So many at a time, the last ones padded: undersamplings differ in length, and share a program.
        out = []
        for start in range(0, len(windows), FORECAST_BATCH):
            some = windows[np.minimum(np.arange(start, start + FORECAST_BATCH), len(windows) - 1)]
            out.append(_forecast_seeds(self.models, self.view, self.graph, jax.tree.map(jnp.asarray, some)))
        return np.concatenate([np.asarray(part) for part in out], axis=1)[:, : len(windows), ..., 0]


@eqx.filter_jit
def _forecast_seeds(models: Any, view: View, graph: Graph, windows: Windows) -> Array:
    # In turn: one model keeps the machine busy.
    arrays, static = eqx.partition(models, eqx.is_array)
    return jax.lax.map(lambda a: forecast_windows(eqx.combine(a, static), view, graph, windows), arrays)


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
    regression: Ridge | Blend,
    key: Array,
    log: Path | None = None,
) -> Outcome:
    """Train models of several seeds on the training days undersampled to `keep`, and keep the best on validation."""
    view = view_of(task, how.mean_day, regression if how.regression else None)
    data: Any = task.windows("train", keep, seed=0)
    a_pass, source = len(data) / (how.train.batch_size or len(data)), None
    if how.fresh:
        source = fresh_windows(
            task.train, keep, task.length, base=task.base("train"), queries=how.queries, outages=how.outages
        )
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
