"""Baselines of the repressilator experiment: the training runs' spread, standing still, and recurrent networks."""

from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from .. import metrics
from ..train import TrainConfig, TrainResult, fit_seeds, make_seeds
from ._repressilator_task import RepressilatorTask

if TYPE_CHECKING:
    from .repressilator import RepressilatorConfig

SPREAD, PERSISTENCE, FLOOR = "training spread", "persistence", "true network"
GRU, SAMPLED_GRU = "GRU", "GRU, step by step"


def spread_samples(task: RepressilatorTask, runs: int, ahead: np.ndarray, samples: int, seed: int) -> np.ndarray:
    """Normal numbers with the training runs' mean and deviation at each time, whatever was seen."""
    known = task.after(task.train, ahead)
    normal = np.random.default_rng(seed).standard_normal((samples, runs, *known.shape[1:]))
    return task.clip((known.mean(0) + known.std(0, ddof=1) * normal).astype(known.dtype))


def persistence_samples(task: RepressilatorTask, runs: np.ndarray, ahead: np.ndarray) -> np.ndarray:
    """The last value seen."""
    return np.repeat(runs[None, :, task.half, None], len(ahead), axis=2)


class GaussianGRU(eqx.Module):
    """Reads a window, then gives means and deviations for each later time, all from what it remembers."""

    reader: eqx.nn.GRUCell
    writer: eqx.nn.GRUCell
    head: eqx.nn.MLP

    def __init__(self, species: int, hidden: int, *, key: PRNGKeyArray):
        k_reader, k_writer, k_head = jax.random.split(key, 3)
        self.reader = eqx.nn.GRUCell(species, hidden, key=k_reader)
        self.writer = eqx.nn.GRUCell(1, hidden, key=k_writer)
        self.head = eqx.nn.MLP(hidden, 2 * species, hidden, 1, activation=jnp.tanh, key=k_head)

    def gaussians(self, window: Float[Array, "past species"], times: Float[Array, " times"]) -> tuple[Array, Array]:
        """Means and deviations at `times`, which count from the end of the window in halves of a run."""
        h = _read(self.reader, window)

        def write(h, t):
            h = self.writer(t[None], h)
            mean, raw = jnp.split(self.head(h), 2)
            return h, (mean, jax.nn.softplus(raw - 2) + 1e-3)

        return jax.lax.scan(write, h, times)[1]

    def loss(self, past: Array, after: Array, times: Array) -> Array:
        mean, std = self.gaussians(past, times)
        return jnp.mean(((after - mean) / std) ** 2 / 2 + jnp.log(std))

    def sample(self, past: Array, times: Array, key: PRNGKeyArray) -> Array:
        mean, std = self.gaussians(past, times)
        return mean + std * jax.random.normal(key, mean.shape)


class SteppingGRU(eqx.Module):
    """Gives a normal distribution of the next value from all before, and is fed its own samples where none are left."""

    reader: eqx.nn.GRUCell
    head: eqx.nn.MLP

    def __init__(self, species: int, hidden: int, *, key: PRNGKeyArray):
        k_reader, k_head = jax.random.split(key)
        self.reader = eqx.nn.GRUCell(species, hidden, key=k_reader)
        self.head = eqx.nn.MLP(hidden, 2 * species, hidden, 1, activation=jnp.tanh, key=k_head)

    def _next(self, h: Array, x: Array) -> tuple[Array, Array, Array]:
        h = self.reader(x, h)
        change, raw = jnp.split(self.head(h), 2)
        return h, x + change / 10, jax.nn.softplus(raw - 3) + 1e-4

    def loss(self, past: Array, after: Array, times: Array) -> Array:
        del times
        series = jnp.concatenate([past, after])

        def step(h, x):
            h, mean, std = self._next(h, x)
            return h, (mean, std)

        _, (mean, std) = jax.lax.scan(step, jnp.zeros(self.reader.hidden_size), series[:-1])
        return jnp.mean(((series[1:] - mean) / std) ** 2 / 2 + jnp.log(std))

    def sample(self, past: Array, times: Array, key: PRNGKeyArray) -> Array:
        def step(carry, key):
            h, x = carry
            h, mean, std = self._next(h, x)
            x = jnp.maximum(mean + std * jax.random.normal(key, mean.shape), 0)
            return (h, x), x

        start = (_read(self.reader, past[:-1]), past[-1])
        return jax.lax.scan(step, start, jax.random.split(key, len(times)))[1]


def _read(cell: eqx.nn.GRUCell, window: Array) -> Array:
    return jax.lax.scan(lambda h, x: (cell(x, h), None), jnp.zeros(cell.hidden_size), window)[0]


_KINDS = {GRU: GaussianGRU, SAMPLED_GRU: SteppingGRU}


def train_gru(
    name: str, task: RepressilatorTask, config: "RepressilatorConfig", keys: Any, **options: Any
) -> TrainResult:
    """Trained by the likelihood of the training runs; the best are chosen by the CRPS of validation."""
    species = len(task.span)
    models = make_seeds(lambda key: _KINDS[name](species, config.gru_hidden, key=key), keys)
    pairs = [_pair(task, runs, config) for runs in (task.train, task.validation)]
    return fit_seeds(
        models, _loss, pairs[0],
        TrainConfig(
            steps=config.gru_epochs, rate=config.rate, schedule="one_cycle", end_rate=config.end_rate, clip=1.0,
            log_every=max(1, config.gru_epochs // 50),
        ),
        key=keys, validation=pairs[1], metric_fn=_crps, **options,
    )  # fmt: skip


def _pair(task: RepressilatorTask, runs: np.ndarray, config: "RepressilatorConfig") -> tuple[np.ndarray, ...]:
    ahead = config.ahead
    times = (ahead / ahead[-1]).astype(runs.dtype)
    return task.past(runs)[:, :: config.every], task.after(runs, ahead), times


def _loss(model: Any, batch: Any, key: PRNGKeyArray) -> Array:
    del key
    past, after, times = batch
    return jnp.mean(jax.vmap(lambda p, a: model.loss(p, a, times))(past, after))


def _crps(model: Any, batch: Any, key: PRNGKeyArray) -> Array:
    past, after, times = batch
    return jnp.asarray(metrics.crps_samples(_samples(model, past, times, key, 32), after, fair=True))


def _samples(model: Any, past: Array, times: Array, key: PRNGKeyArray, samples: int) -> Array:
    keys = jax.random.split(key, (samples, len(past)))
    return jax.vmap(lambda ks: jax.vmap(lambda p, k: model.sample(p, times, k))(past, ks))(keys)


@eqx.filter_jit
def _sample(model: Any, past: Array, times: Array, key: PRNGKeyArray, samples: int) -> Array:
    return _samples(model, past, times, key, samples)


def gru_samples(
    model: Any, task: RepressilatorTask, runs: np.ndarray, config: "RepressilatorConfig", ahead: np.ndarray,
    samples: int, key: PRNGKeyArray,
) -> np.ndarray:  # fmt: skip
    """Samples at times `ahead`, (samples, runs, times, species)."""
    times = jnp.asarray(ahead / config.ahead[-1], jnp.float32)
    past = jnp.asarray(task.past(runs)[:, :: config.every])
    return task.clip(np.asarray(_sample(model, past, times, key, samples)))
