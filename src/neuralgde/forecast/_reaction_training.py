"""How the latent model of a reaction network is trained on stochastic runs of it.

First each step from one observation to the next by itself, by its likelihood under one long step of the equation: that
is cheap, and finds the rates from any start. Then windows of several steps, by the score of sampled paths, which is
what forecasts are judged by. Straight from random parameters the second stage ends in rates that are all but zero.
"""

import dataclasses
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Key, PRNGKeyArray

from .. import metrics
from .._settings import check_number
from ..graph import Graph, GraphStream
from ..model import LatentPrediction
from ..train import TrainConfig, TrainResult, fit_seeds

# The scores of scaled counts and of their logarithms count about as much as each other with these weights.
_LINEAR, _LOGS = 10.0, 0.3


@dataclasses.dataclass(frozen=True)
class ReactionTraining:
    """Settings of both stages.

    - `warm_steps`, `steps`: of the first and the second stage; 0 leaves the second out.
    - `context`: observations that the encoder sees; `horizon`: those that are forecast in training.
    - `samples`: paths for each window in training; `looks`: how often validation is looked at in the second stage, with
      `validation_samples` paths each.
    - `kl_weight`: of the divergence of the reactions' initial states from their prior.
    """

    warm_steps: int = 800
    warm_rate: float = 2e-2
    warm_batch: int = 512
    steps: int = 300
    rate: float = 1e-2
    batch_size: int = 32
    context: int = 8
    horizon: int = 16
    samples: int = 8
    looks: int = 6
    validation_samples: int = 16
    kl_weight: float = 1e-3

    def __post_init__(self):
        for field in dataclasses.fields(self):
            whole = field.name not in ("warm_rate", "rate", "kl_weight")
            check_number(field.name, getattr(self, field.name), whole=whole, zero=field.name in ("steps", "kl_weight"))


class ScaledRuns(eqx.Module):
    """Runs of a network at equal spacing, scaled to z = (n - low) / span."""

    z: Float[np.ndarray, "runs times species"]
    spacing: float = eqx.field(static=True)

    def windows(
        self, context: int, horizon: int, starts: Any = None, stride: int = 1
    ) -> tuple[Float[np.ndarray, "windows context species"], Bool[np.ndarray, "windows context"], np.ndarray]:
        """Contexts that end at each start, where they begin before the run masked, and what comes at `stride` after."""
        runs, times, _ = self.z.shape
        starts = np.arange(times - horizon) if starts is None else np.asarray(starts)
        back = starts[:, None] + np.arange(1 - context, 1)
        ahead = starts[:, None] + np.arange(stride, horizon + 1, stride)
        contexts = self.z[:, np.maximum(back, 0)].reshape(runs * len(starts), context, -1)
        targets = self.z[:, ahead].reshape(runs * len(starts), ahead.shape[1], -1)
        seen = np.tile(back >= 0, (runs, 1))
        return np.where(seen[..., None], contexts, 0), seen, targets


@eqx.filter_jit
def forecast_reactions(
    shared: Any,
    contexts: Float[Array | np.ndarray, "windows context species"],
    seen: Bool[Array | np.ndarray, "windows context"],
    ahead: tuple[float, ...],
    graph: Graph,
    spacing: float,
    *,
    key: PRNGKeyArray,
    samples: int,
) -> LatentPrediction:
    """Sampled paths of all nodes from the ends of contexts; `ahead` are times after that, the first one 0.

    Times are a tuple and not an array, for the program to know them: so it knows the number of its steps.
    """
    latent = graph.num_nodes - contexts.shape[-1]
    values = jnp.pad(contexts, ((0, 0), (0, 0), (0, latent)))[..., None]
    mask = jnp.pad(jnp.broadcast_to(seen[..., None], contexts.shape), ((0, 0), (0, 0), (0, latent)))
    back = jnp.asarray(spacing * np.arange(1 - contexts.shape[1], 1), contexts.dtype)
    stream = GraphStream.batch(jnp.broadcast_to(back, seen.shape), values, graph, mask[..., None])
    return shared()(stream, ahead, key=key, samples=samples)


class Score(eqx.Module):
    """Scores of paths sampled from the ends of contexts: the loss of the second stage, and without `training` the CRPS
    alone, in shares of the span, which validation goes by.
    """

    graph: Graph
    spacing: float = eqx.field(static=True)
    samples: int = eqx.field(static=True)
    stride: int = eqx.field(static=True, default=1)
    kl_weight: float = eqx.field(static=True, default=0.0)
    training: bool = eqx.field(static=True, default=True)

    def __call__(self, shared: Any, batch: Any, key: PRNGKeyArray) -> Array | tuple[Array, dict[str, Array]]:
        contexts, seen, targets = batch
        ahead = tuple((self.spacing * self.stride * np.arange(targets.shape[1] + 1)).tolist())
        found = forecast_reactions(
            shared, contexts, seen, ahead, self.graph, self.spacing, key=key, samples=self.samples
        )
        rates = shared().drift.rates
        low, span = (jnp.asarray(numbers, targets.dtype) for numbers in (rates.low, rates.span))
        least = -low / span
        sampled = jnp.maximum(found.observations[:, :, 1:, :, 0], least)
        crps = jnp.asarray(metrics.crps_samples(sampled, targets, fair=True))
        if not self.training:
            return crps
        logs = [jnp.log1p(low + span * z) for z in (sampled, targets)]
        loss = _LINEAR * crps + _LOGS * jnp.asarray(metrics.crps_samples(*logs, fair=True))
        kl = jnp.mean(found.posterior.kl_to_standard()[:, targets.shape[-1] :])
        return loss + self.kl_weight * kl, {"crps": crps, "kl": kl}


class Transitions(eqx.Module):
    """The loss of the first stage: minus the log likelihood of each step under one of Euler's, reactions at rest."""

    graph: Graph
    spacing: float = eqx.field(static=True)

    def __call__(self, shared: Any, batch: Any, key: PRNGKeyArray) -> Array:
        del key
        before, after = batch
        model = shared()
        graph = model.drift.prepare(self.graph)
        # Half a molecule: counts are whole, and where nothing fires nothing could be explained without it.
        blur = 0.5 * jnp.minimum(1.0 / jnp.asarray(model.drift.rates.span, before.dtype), 0.1)

        def one(now, then):
            z = jnp.pad(now, (0, graph.num_nodes - now.size))[:, None]
            f, g = (field(0.0, z, graph)[: now.size, 0] for field in (model.drift, model.diffusion))
            variance = g**2 * self.spacing + blur**2
            return jnp.mean((then - now - f * self.spacing) ** 2 / variance + jnp.log(variance)) / 2

        return jnp.mean(jax.vmap(one)(before, after))


def train_reactions(
    models: Any,
    graph: Graph,
    train: ScaledRuns,
    validation: ScaledRuns | None,
    settings: ReactionTraining,
    *,
    key: Key[Array, " seeds"],
    log: Path | None = None,
    progress: bool | None = None,
) -> TrainResult:
    """Train models with a leading seed axis through both stages; the best are chosen by validation in the second.

    Validation forecasts the second half of runs from their first.
    """
    now, then = (z.reshape(-1, z.shape[-1]) for z in (train.z[:, :-1], train.z[:, 1:]))
    warm = fit_seeds(
        models,
        Transitions(graph, train.spacing),
        (now, then),
        TrainConfig(
            steps=settings.warm_steps, batch_size=min(settings.warm_batch, len(now)), rate=settings.warm_rate,
            schedule="one_cycle", clip=1.0,
        ),
        key=key,
        log=None if log is None else log.with_suffix(".warm.jsonl"),
        progress=progress,
    )  # fmt: skip
    if not settings.steps:
        return warm
    horizon = min(settings.horizon, train.z.shape[1] - 1)
    windows = train.windows(settings.context, horizon)
    look = None if validation is None else half_windows(validation, settings.context)
    metric = None
    if validation is not None:
        stride = half_stride(validation.z.shape[1])
        metric = Score(graph, train.spacing, settings.validation_samples, stride, training=False)
    return fit_seeds(
        warm.model,
        Score(graph, train.spacing, settings.samples, kl_weight=settings.kl_weight),
        windows,
        TrainConfig(
            steps=settings.steps, batch_size=min(settings.batch_size, len(windows[0])), rate=settings.rate,
            schedule="one_cycle", end_rate=settings.rate / 25, clip=1.0,
            log_every=max(1, settings.steps // settings.looks),
        ),
        key=key,
        validation=look,
        metric_fn=metric,
        log=log,
        progress=progress,
        in_turn=True,
    )  # fmt: skip


def half_stride(times: int) -> int:
    """Every how many observations the second half of a run is forecast: at about fifty."""
    return max(1, (times - 1) // 2 // 50)


def half_windows(runs: ScaledRuns, context: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The last observations of the first half of each run, and the second half."""
    middle = (runs.z.shape[1] - 1) // 2
    stride = half_stride(runs.z.shape[1])
    return runs.windows(context, (runs.z.shape[1] - 1 - middle) // stride * stride, [middle], stride)
