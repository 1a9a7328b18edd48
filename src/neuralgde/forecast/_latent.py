"""The latent stochastic model as a forecaster: paths of a graph SDE from an encoded window, as means and spreads."""

import dataclasses
import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from ..field import GSDEField
from ..graph import Graph, GraphStream
from ..integrate import SolveConfig
from ..model import Gaussian, GraphEncoder, LatentGDE

# Paths to train on, and to forecast by: the mean of few is off by a good part of their spread.
TRAINING_SAMPLES, SAMPLES = 4, 16
# A step of the solver, in units of the time scale.
_STEP = 0.5


class LatentForecast(eqx.Module):
    """model(stream, query_times): a normal distribution with the mean and the spread of sampled paths, and noise.

    Paths are solved at equal steps and are straight between. Their noise follows from the time that the window ends at.
    So a forecast is the same whenever it is made and whatever else is asked for, and other readings move it by
    themselves, and not by other noise.
    """

    latent: LatentGDE
    time_scale: float = eqx.field(static=True)
    steps: int = eqx.field(static=True)
    samples: int = eqx.field(static=True, default=SAMPLES)

    @property
    def config(self) -> SolveConfig:
        """How its paths are solved."""
        return self.latent.config

    def __call__(self, stream: GraphStream, query_times: Float[Array, "batch queries"]) -> Gaussian:
        ahead = (query_times - stream.times[:, -1:]) / (_STEP * self.time_scale)
        one_graph = stream.graphs.senders.ndim == 1
        windows = eqx.tree_at(lambda s: s.graphs, stream, None)
        return eqx.filter_vmap(self._forecast, in_axes=(0, None if one_graph else 0, 0))(windows, stream.graphs, ahead)

    def _forecast(self, window: GraphStream, graph: Graph, ahead: Float[Array, " queries"]) -> Gaussian:
        """At times in steps after the window."""
        window = eqx.tree_at(lambda s: s.graphs, window, graph, is_leaf=lambda x: x is None)
        # A tuple, for the program to know how many steps there are.
        times = tuple(_STEP * k for k in range(self.steps + 1))
        found = self.latent(window, times, key=_key_of(window), samples=self.samples).observations
        before = jnp.clip(jnp.floor(ahead).astype(jnp.int32), 0, self.steps - 1)
        share = jnp.clip(ahead - before.astype(ahead.dtype), 0, 1)[:, None, None]
        paths = (1 - share) * found[:, before] + share * found[:, before + 1]
        noise = self.latent.noise().astype(paths.dtype)
        return Gaussian(jnp.mean(paths, axis=0), jnp.sqrt(jnp.var(paths, axis=0) + noise**2))


def make_latent(
    sensors: int, variables: int, hidden: int, time_scale: float, farthest: float, *, key: PRNGKeyArray
) -> LatentForecast:
    """A new one; `farthest` is the latest time after a window that will be asked for."""
    k_encoder, k_drift, k_diffusion = jax.random.split(key, 3)
    features = variables + 3
    latent = LatentGDE(
        GraphEncoder(variables, features, hidden, time_scale=time_scale, key=k_encoder),
        GSDEField((features, hidden, hidden, features), key=k_drift),
        GSDEField((features, hidden, hidden, features), key=k_diffusion, final_activation=jax.nn.sigmoid),
        observed=tuple(range(sensors)),
        out_size=variables,
        learn_noise=True,
        noise_scale=0.3,
        config=SolveConfig(solver="euler_heun", dt0=_STEP),
    )
    return LatentForecast(latent, time_scale, math.ceil(farthest / (_STEP * time_scale)))


def with_samples(network: Any, samples: int) -> Any:
    """A network that draws so many paths, if it draws any."""
    return dataclasses.replace(network, samples=samples) if isinstance(network, LatentForecast) else network


def _key_of(window: GraphStream) -> PRNGKeyArray:
    bits = jax.lax.bitcast_convert_type(window.times[-1].astype(jnp.float32), jnp.uint32)
    return jax.random.fold_in(jax.random.key(0), bits)
