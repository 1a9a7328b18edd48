"""The latent stochastic model as a forecaster: paths of a graph SDE from an encoded window, as means and spreads."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from ..field import GSDEField
from ..graph import GraphStream
from ..integrate import SolveConfig
from ..model import Gaussian, GraphEncoder, LatentGDE

_SAMPLES = 4
# A step of the solver, in units of the time scale.
_STEP = 0.5


class LatentForecast(eqx.Module):
    """model(stream, query_times): a normal distribution with the mean and the spread of sampled paths, and noise.

    The paths are drawn by numbers that follow from the window, so that a forecast is the same whenever it is made.
    """

    latent: LatentGDE
    time_scale: float = eqx.field(static=True)

    def __init__(self, sensors: int, variables: int, hidden: int, time_scale: float, *, key: PRNGKeyArray):
        k_encoder, k_drift, k_diffusion = jax.random.split(key, 3)
        features = variables + 3
        self.latent = LatentGDE(
            GraphEncoder(variables, features, hidden, time_scale=time_scale, key=k_encoder),
            GSDEField((features, hidden, hidden, features), key=k_drift),
            GSDEField((features, hidden, hidden, features), key=k_diffusion, final_activation=jax.nn.sigmoid),
            observed=tuple(range(sensors)),
            out_size=variables,
            learn_noise=True,
            noise_scale=0.3,
            config=SolveConfig(solver="euler_heun", dt0=_STEP, max_steps=512),
        )
        self.time_scale = time_scale

    @property
    def config(self) -> SolveConfig:
        """How its paths are solved."""
        return self.latent.config

    def __call__(self, stream: GraphStream, query_times: Float[Array, "batch queries"]) -> Gaussian:
        batch = stream.times.shape[0]
        if stream.graphs.senders.ndim == 1:
            graphs = jax.tree.map(lambda a: jnp.broadcast_to(a, (batch, *a.shape)), stream.graphs)
            stream = eqx.tree_at(lambda s: s.graphs, stream, graphs)
        ahead = (query_times - stream.times[:, -1:]) / self.time_scale
        order = jnp.argsort(ahead, axis=1)
        # Times have to increase, and those asked for may be the same.
        apart = 1e-3 * jnp.arange(1, ahead.shape[1] + 1, dtype=ahead.dtype)
        times = jnp.pad(jnp.take_along_axis(ahead, order, axis=1) + apart, ((0, 0), (1, 0)))
        found = self.latent(stream, times, key=_key_of(stream), samples=_SAMPLES)
        paths = found.observations[:, :, 1:]
        back = jnp.argsort(order, axis=1)[None, :, :, None, None]
        paths = jnp.take_along_axis(paths, back, axis=2)
        noise = self.latent.noise().astype(paths.dtype)
        return Gaussian(jnp.mean(paths, axis=0), jnp.sqrt(jnp.var(paths, axis=0) + noise**2))


def _key_of(stream: GraphStream) -> PRNGKeyArray:
    bits = jax.lax.bitcast_convert_type(jnp.sum(stream.values).astype(jnp.float32), jnp.uint32)
    return jax.random.fold_in(jax.random.key(0), bits)
