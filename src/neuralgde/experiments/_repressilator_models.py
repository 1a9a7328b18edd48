"""The latent models of the repressilator experiment: the paper's, stochastic or not, and a larger one of ours."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from ..forecast import ScaledRuns, forecast_reactions, train_reactions
from ..graph import Graph, GraphStream
from ..integrate import SolveConfig
from ..model import LatentGDE, LatentPrediction, NeuralGSDE, TCNEncoder, reaction_gde
from ..train import TrainConfig, TrainResult, fit_seeds, make_seeds
from ._repressilator_task import RepressilatorTask

if TYPE_CHECKING:
    from .repressilator import RepressilatorConfig

LATENT_GSDE, LATENT_GDE, OURS = "Latent GSDE", "Latent GDE", "Latent GSDE+"
# Trajectories solved side by side: more gain nothing, and need more memory.
_AT_ONCE = 1000


def make_paper_model(
    name: str, config: "RepressilatorConfig", nodes: int, species: int, *, key: PRNGKeyArray
) -> LatentGDE:
    """TCN encoder of two layers, networks [GCN, GAT, GCN] of the paper's sizes, one feature a node."""
    k_encoder, k_fields = jax.random.split(key)
    encoder = TCNEncoder(
        nodes, range(species), hidden=config.encoder_hidden, time_scale=config.every / config.time_unit, key=k_encoder
    )
    fields = NeuralGSDE(1, config.hidden, key=k_fields)
    stochastic = name == LATENT_GSDE
    return LatentGDE(
        encoder, fields.drift, fields.diffusion if stochastic else None, observed=range(species), learn_noise=True,
        config=SolveConfig("euler_heun", rtol=1e-3, atol=1e-3) if stochastic else SolveConfig(rtol=1e-3, atol=1e-3),
    )  # fmt: skip


class _Bound(eqx.Module):
    """Minus the ELBO a number forecast, of the second halves given the first."""

    graph: Graph
    back: tuple[float, ...] = eqx.field(static=True)
    ahead: tuple[float, ...] = eqx.field(static=True)
    samples: int = eqx.field(static=True)

    def __call__(self, model: LatentGDE, batch: Any, key: PRNGKeyArray) -> Array:
        past, after = batch
        # The state at the end of the window is drawn too, and what was seen there is a target as well.
        targets = jnp.concatenate([past[:, -1:], after], axis=1)[..., None]
        stream = paper_stream(past, self.graph, self.back)
        bound = model.elbo(stream, (0.0, *self.ahead), targets, key=key, samples=self.samples)
        return -jnp.mean(bound.value) / targets[0].size


def paper_stream(past: Array, graph: Graph, back: tuple[float, ...]) -> GraphStream:
    """Windows of observed nodes, on the graph that has the latent ones too."""
    latent = graph.num_nodes - past.shape[-1]
    values = jnp.pad(past, ((0, 0), (0, 0), (0, latent)))[..., None]
    mask = jnp.broadcast_to(jnp.arange(graph.num_nodes)[:, None] < past.shape[-1], values.shape)
    times = jnp.broadcast_to(jnp.asarray(back, past.dtype), past.shape[:2])
    return GraphStream.batch(times, values, graph, mask)


def train_paper_model(
    name: str, task: RepressilatorTask, config: "RepressilatorConfig", keys: Any, **options: Any
) -> TrainResult:
    """All training windows at every step, as the paper does; the best on the way are chosen by validation."""
    nodes, species = task.graph.num_nodes, len(task.span)
    models = make_seeds(lambda key: make_paper_model(name, config, nodes, species, key=key), keys)
    pairs = [
        (task.past(runs)[:, :: config.every], task.after(runs, config.ahead)) for runs in (task.train, task.validation)
    ]
    ahead = tuple((config.ahead / config.time_unit).tolist())
    return fit_seeds(
        models,
        _Bound(task.graph, config.back, ahead, config.elbo_samples),
        pairs[0],
        TrainConfig(
            epochs=config.epochs, rate=config.rate, schedule="one_cycle", peak_step=config.peak_epoch,
            end_rate=config.end_rate, clip=10.0, log_every=max(1, config.epochs // 20),
        ),
        key=keys,
        validation=pairs[1],
        in_turn=True,
        **options,
    )  # fmt: skip


def train_ours(task: RepressilatorTask, config: "RepressilatorConfig", keys: Any, **options: Any) -> TrainResult:
    """On all windows of the training runs, in the two stages of `train_reactions`."""
    graph = task.network.graph(signed=True)
    low, span = task.low.tolist(), task.span.tolist()
    models = make_seeds(lambda key: reaction_gde(graph, low, span, time_scale=config.time_scale, key=key), keys)
    train, validation = ScaledRuns(task.train, 1.0), ScaledRuns(task.validation, 1.0)
    return train_reactions(models, graph, train, validation, config.ours, key=keys, **options)


def predict(
    name: str, model: Any, task: RepressilatorTask, past: np.ndarray, config: "RepressilatorConfig",
    ahead: np.ndarray, samples: int, key: PRNGKeyArray,
) -> LatentPrediction:  # fmt: skip
    """Paths of all nodes at 0 and at times `ahead` after the windows `past`."""
    if name == OURS:
        context = past[:, -config.ours.context :]
        seen = np.ones(context.shape[:2], bool)
        graph = task.network.graph(signed=True)
        times = (0.0, *map(float, ahead))
        return forecast_reactions(model, context, seen, times, graph, 1.0, key=key, samples=samples)
    times = tuple((np.array([0.0, *ahead]) / config.time_unit).tolist())
    return _predict(model, jnp.asarray(past[:, :: config.every]), task.graph, config.back, times, key, samples)


@eqx.filter_jit
def _predict(model, past, graph, back, times, key, samples) -> LatentPrediction:
    return model(paper_stream(past, graph, back), times, key=key, samples=samples)


def predict_in_parts(
    name: str, model: Any, task: RepressilatorTask, runs: np.ndarray, config: "RepressilatorConfig", ahead: np.ndarray,
    samples: int, key: PRNGKeyArray,
) -> Iterator[tuple[int, LatentPrediction]]:  # fmt: skip
    """Paths of so many runs at a time, and how many of them count.

    The last part is filled up, and so are few runs, to the most that any part of the task has: all share a program.
    """
    past = task.past(runs)
    most = max(map(len, (task.test, task.calibration, task.figures, runs)))
    size = max(1, min(most, _AT_ONCE // samples))
    for i, first in enumerate(range(0, len(runs), size)):
        part = past[np.minimum(np.arange(first, first + size), len(runs) - 1)]
        found = predict(name, model, task, part, config, ahead, samples, jax.random.fold_in(key, i))
        yield min(size, len(runs) - first), found


def latent_samples(
    name: str, model: Any, task: RepressilatorTask, runs: np.ndarray, config: "RepressilatorConfig", ahead: np.ndarray,
    samples: int, key: PRNGKeyArray,
) -> np.ndarray:  # fmt: skip
    """Samples of what is observed at times `ahead`, (samples, runs, times, species)."""
    k_path, k_noise = jax.random.split(key)
    parts = []
    for count, found in predict_in_parts(name, model, task, runs, config, ahead, samples, k_path):
        parts.append(np.asarray(found.observations)[:, :count, 1:, :, 0])
    observed = np.concatenate(parts, axis=1)
    if name != OURS:
        # What is observed is the state and its noise; ours is trained without any.
        # Drawn on the host, where nothing has to be compiled for it.
        noise = np.random.default_rng(np.asarray(jax.random.key_data(k_noise))).standard_normal(observed.shape)
        observed = observed + noise * np.asarray(model.noise())[:, 0]
    return task.clip(observed)
