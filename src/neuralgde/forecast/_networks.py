"""Networks that forecast: how they are built for a table, and how they are trained."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from .._arrays import on_device
from ..data import Readings
from ..graph import Graph
from ..integrate import HybridConfig
from ..model import HybridGDE, gcde_gru, gcgru
from ..train import TrainConfig, TrainResult, fit
from ._config import ForecastConfig
from ._fresh import FreshWindows, warp
from ._latent import SAMPLES, TRAINING_SAMPLES, make_latent, with_samples
from ._losses import GapWeights, SensorError, WindowLoss
from ._ridge import Ridge
from ._source import Shape, Source
from ._view import View

# A learned adjacency has a number for every pair of sensors.
_MOST_LEARNED = 2000
_MOST_VALIDATION = 384
_MAKERS: dict[str, Callable[..., HybridGDE]] = {"gcde-gru": gcde_gru, "gcgru": gcgru}


def make_network(
    config: ForecastConfig, shape: Shape, *, sensors: int, variables: int, inputs: int, edges: bool, period: int,
    key: PRNGKeyArray,
) -> Any:  # fmt: skip
    """A new network for so many sensors, variables and inputs; `period` is in steps, 1 where nothing repeats."""
    if config.model == "latent-gsde":
        farthest = float(warp(np.array(shape.horizon), shape.reach))
        return make_latent(sensors, variables, max(2, config.hidden // 2), shape.time_scale, farthest, key=key)
    # One step of Heun's method an interval takes half the time of the model's usual two.
    more = {"config": HybridConfig(num_steps=1)} if config.model == "gcde-gru" else {}
    operator = ("self", "gcn", "learned") if sensors <= _MOST_LEARNED else ("self", "gcn")
    network = _MAKERS[config.model](
        variables,
        config.hidden,
        key=key,
        inputs=inputs,
        operator=operator if edges else ("self",),
        # Forecasts start from those of the regressions, which start from the last value.
        residual=False,
        period=float(period) if period > 1 else None,
        time_scale=shape.time_scale,
        num_nodes=sensors,
        rank=min(config.rank, sensors),
        embedding=min(config.embedding, sensors),
        head="gaussian",
        **more,
    )
    return start_small(network)


def start_small(network: HybridGDE) -> HybridGDE:
    """The network of `gcde_gru` or `gcgru`, whose forecasts are next to nothing at first: what it adds to, stands."""
    return eqx.tree_at(lambda n: n.readout.layer.mlp.layers[-1].weight, network, replace_fn=lambda w: 0.05 * w)


def make_view(train: Readings, base: np.ndarray, lines: tuple[Ridge, ...]) -> tuple[View, np.ndarray | None]:
    """How readings are scaled: by one scale, or each sensor by its own where sizes differ much; and its weights.

    The weights make the errors of sensors with scales of their own alike.
    """
    values = train.values
    lines = lines_on_device(lines)
    std = np.nanstd(values, axis=0)
    off = np.nanstd(values - base, axis=0)
    low, high = np.percentile(std[std > 0], [10, 90]) if (std > 0).any() else (1.0, 1.0)
    if high > 5 * low or values.shape[-1] > 1:
        typical = np.where(std > 0, std, 1.0)
        off = np.where(off > 1e-3 * typical, off, typical)
        weights = float(np.mean(typical)) / typical
        return _view(np.nanmean(values, axis=0), typical, off, lines), weights
    mean, all_std = np.nanmean(values), float(np.nanstd(values)) or 1.0
    all_off = float(np.nanstd(values - base))
    return _view(mean, all_std, all_off if all_off > 1e-3 * all_std else all_std, lines), None


def _view(mean: Any, std: Any, off: Any, lines: tuple[Ridge, ...]) -> View:
    mean, std, off = (jnp.asarray(a, float) for a in (mean, std, off))
    return View(mean, std, off, lines)


def lines_on_device(lines: tuple[Any, ...]) -> tuple[Any, ...]:
    """Regressions, or other forecasts of windows, as compiled programs take them."""

    def put(a: np.ndarray) -> Array:
        return on_device(a, {"i": np.int32, "b": bool}.get(a.dtype.kind, float))

    return jax.tree.map(put, lines)


def train_network(
    network: Any,
    config: ForecastConfig,
    view: View,
    sensors: np.ndarray | None,
    gaps: GapWeights,
    graph: Graph,
    train: Source,
    validation: Source,
    *,
    seconds: float | None = None,
    checkpoint: str | Path | None = None,
    progress: bool | None = None,
) -> TrainResult:
    """Train a network on fresh windows, and keep the best on windows of the validation rows."""
    fresh = train.fresh(queries=config.queries, outages=config.outages)
    rows = fresh.rows
    looked_at = validation.fresh(queries=2, outages=0.0)
    ends = looked_at.rows
    ends = ends[np.linspace(0, len(ends) - 1, min(_MOST_VALIDATION, len(ends))).astype(int)]
    # Compiled as one program: by itself each of its many operations would be one.
    windows = eqx.filter_jit(FreshWindows.__call__)(looked_at, jnp.asarray(ends), jax.random.key(config.seed))
    training = TrainConfig(
        steps=config.steps, batch_size=min(config.batch_size, len(rows)), rate=config.rate, schedule="one_cycle",
        clip=1.0, log_every=max(1, config.steps // 40),
    )  # fmt: skip
    result = fit(
        with_samples(network, TRAINING_SAMPLES),
        WindowLoss(graph, view, fresh, gaps),
        rows,
        training,
        key=jax.random.key(config.seed + 1),
        validation=windows,
        metric_fn=SensorError(graph, view, None if sensors is None else jnp.asarray(sensors, float), gaps),
        checkpoint=checkpoint,
        progress=progress,
        time_limit=seconds,
    )
    return dataclasses.replace(result, best=with_samples(result.best, SAMPLES))
