"""Latent neural graph differential equations: encode a window, sample initial values, unroll them on a larger graph."""

from collections.abc import Callable, Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Bool, Float, Int, PRNGKeyArray

from .._errors import InputError
from ..field import Field
from ..graph import Graph, GraphStream
from ..integrate import Solution, SolveConfig, solve, solve_sde
from ._distributions import Gaussian
from ._latent_encoders import last_step, node_numbers, positive
from ._neural_gsde import SDE_CONFIG
from ._path_kl import WithPathKL, without_noise

Encoder = Callable[[GraphStream], Gaussian]


class LatentPrediction(eqx.Module):
    """Sampled trajectories of all nodes, `states`, and of the observed ones, `observations`.

    `posterior` is the distribution of the states at the first time, `path_kl` the divergence of each path from the
    prior's, None where there is no prior drift, and `status` compares to `Status`, one for each trajectory.
    """

    times: Float[Array, "*batch times"]
    states: Float[Array, "samples *batch times nodes features"]
    observations: Float[Array, "samples *batch times observed out"]
    posterior: Gaussian
    path_kl: Float[Array, "samples *batch"] | None
    status: Int[Array, "..."]


class Elbo(eqx.Module):
    """The evidence lower bound in nats, one for each sample of a batch, and the terms it is made of."""

    value: Float[Array, "*batch"]
    log_likelihood: Float[Array, "*batch"]
    kl: Float[Array, "*batch"]
    path_kl: Float[Array, "*batch"]


class LatentGDE(eqx.Module):
    """Z_0 ~ q(Z_0 | encoder(window)), dZ = drift dt [+ diffusion ∘ dB] on the augmented graph, Y_t = Z_t^y + noise.

    - `encoder`: takes a window, a `GraphStream` on the augmented graph, whose values at latent nodes are missing, and
      gives a `Gaussian` over the initial values of all nodes: `TCNEncoder`, `GraphEncoder` or one's own.
    - `drift`, `diffusion`: fields; without a diffusion the decoder is an ordinary differential equation.
    - `observed`: the numbers of the observed nodes, Z^y; all others are latent, Z^l. Of their features the first
      `out_size` are what is observed.
    - `noise_scale`: the scale of the observation's normal distribution; with `learn_noise` where it starts from, one
      for each observed node and feature.
    - `prior_drift`: adds the divergence of the paths from those of this drift, with the same diffusion, to the ELBO.

    A batch of windows comes stacked, from `GraphStream.stack`, with times of all or of each. Windows on one graph, from
    `GraphStream.batch`, share what is computed from it, and are faster.
    """

    encoder: Encoder
    drift: Field
    diffusion: Field | None
    prior_drift: Field | None
    log_noise: Float[Array, "observed out"] | None
    noise_scale: float = eqx.field(static=True)
    observed: tuple[int, ...] = eqx.field(static=True)
    out_size: int = eqx.field(static=True)
    config: SolveConfig = eqx.field(static=True)

    def __init__(
        self,
        encoder: Encoder,
        drift: Field,
        diffusion: Field | None = None,
        *,
        observed: Sequence[int],
        out_size: int = 1,
        noise_scale: float = 0.1,
        learn_noise: bool = False,
        prior_drift: Field | None = None,
        config: SolveConfig | None = None,
    ):
        if prior_drift is not None and diffusion is None:
            raise InputError("prior_drift: paths of an ordinary differential equation have none. Give a diffusion too.")
        self.observed = node_numbers(observed)
        self.encoder, self.drift, self.diffusion, self.prior_drift = encoder, drift, diffusion, prior_drift
        self.noise_scale = positive(noise_scale, "noise_scale")
        shape = (len(self.observed), out_size)
        self.log_noise = jnp.full(shape, float(np.log(noise_scale))) if learn_noise else None
        self.out_size = out_size
        self.config = config or (SolveConfig() if diffusion is None else SDE_CONFIG)

    def __call__(
        self, stream: GraphStream, times: ArrayLike | Sequence[float], *, key: PRNGKeyArray, samples: int = 1
    ) -> LatentPrediction:
        """Trajectories at `times`, the first of which is where the initial values are drawn."""
        posterior = self.posterior(stream)
        k_start, k_path = jax.random.split(key)
        z0 = posterior.sample(k_start, samples)
        if max(self.observed) >= z0.shape[-2]:
            raise InputError(f"observed: expected nodes of the graph, 0..{z0.shape[-2] - 1}, got {max(self.observed)}.")
        times = jnp.asarray(times, z0.dtype)
        each = jnp.broadcast_to(times, (*z0.shape[:-2], times.shape[-1]))
        sol = self._decode(z0, each, self.last_graph(stream), k_path)
        states = sol.states.reshape(*z0.shape[:-2], *sol.states.shape[1:])
        path_kl = None
        if self.prior_drift is not None:
            path_kl = jnp.sum(states[..., -1, :, -1], axis=-1)
            states = states[..., :-1]
        status = jnp.broadcast_to(sol.status, (z0[..., 0, 0].size,)).reshape(z0.shape[:-2])
        return LatentPrediction(each[0], states, self._observe(states), posterior, path_kl, status)

    def posterior(self, stream: GraphStream) -> Gaussian:
        """The distribution of the initial values given the window."""
        if stream.times.ndim == 1:
            return self.encoder(stream)
        if not _on_one_graph(stream):
            return eqx.filter_vmap(self.encoder)(stream)
        rest = eqx.tree_at(lambda s: s.graphs, stream, None)
        put = eqx.tree_at
        return eqx.filter_vmap(
            lambda window, graph: self.encoder(put(lambda s: s.graphs, window, graph, is_leaf=lambda x: x is None)),
            in_axes=(0, None),
        )(rest, stream.graphs)

    def noise(self) -> Float[Array, "observed out"]:
        """The scale of the observation noise."""
        if self.log_noise is None:
            return jnp.full((len(self.observed), self.out_size), self.noise_scale)
        return jnp.exp(self.log_noise)

    def elbo(
        self,
        stream: GraphStream,
        times: ArrayLike | Sequence[float],
        targets: Float[Array, "*batch times observed out"],
        mask: Bool[Array, "*batch times observed out"] | None = None,
        *,
        key: PRNGKeyArray,
        samples: int = 1,
        kl_weight: float | Array = 1.0,
    ) -> Elbo:
        """The bound for `targets` at `times`, a mean over the samples; `mask` says which targets there are.

        `kl_weight` multiplies both divergences, see `KLSchedule`. Trajectories that failed make it NaN.
        """
        found = self(stream, times, key=key, samples=samples)
        scale = self.noise().astype(found.states.dtype)
        if mask is not None:
            # What is missing may be NaN, which in a gradient no later mask would stop.
            targets = jnp.where(mask, targets, 0)
        errors = (targets - found.observations) / scale
        log_density = -(errors**2) / 2 - jnp.log(scale) - np.log(2 * np.pi) / 2
        if mask is not None:
            log_density = jnp.where(mask, log_density, 0)
        log_likelihood = jnp.mean(jnp.sum(log_density, axis=(-3, -2, -1)), axis=0)
        present = self.last_graph(stream).node_mask[..., None]
        kl = jnp.sum(jnp.where(present, found.posterior.kl_to_standard(), 0), axis=(-2, -1))
        path_kl = jnp.zeros_like(kl) if found.path_kl is None else jnp.mean(found.path_kl, axis=0)
        return Elbo(log_likelihood - kl_weight * (kl + path_kl), log_likelihood, kl, path_kl)

    def attention(
        self, states: Float[Array, "times nodes features"], times: ArrayLike | Sequence[float], graph: Graph
    ) -> tuple[Float[Array, "times slots heads"], ...]:
        """The attention of each attention layer of the drift along one trajectory, self loops last."""
        attention = getattr(self.drift, "attention", None)
        if attention is None:
            raise InputError("drift: expected a field with attention, such as GSDEField or GADE, to look into.")
        times = jnp.asarray(times, states.dtype)
        return eqx.filter_vmap(attention, in_axes=(0, 0, None))(times, states, graph)

    def last_graph(self, stream: GraphStream) -> Graph:
        """The last graph of the window, which the decoder runs on; one for each window of a batch, or theirs."""
        if stream.times.ndim == 1:
            return stream.graph_at(last_step(stream))
        if _on_one_graph(stream):
            return stream.graphs
        return eqx.filter_vmap(lambda s: s.graph_at(last_step(s)))(stream)

    def _observe(self, states: Array) -> Array:
        return states[..., np.array(self.observed), : self.out_size]

    def _decode(self, z0: Array, times: Array, graph: Graph, key: PRNGKeyArray) -> Solution:
        """All samples of all windows in one batch."""
        samples = z0.shape[0]
        if graph.senders.ndim == 2:
            graph = jax.tree.map(lambda x: jnp.tile(x, (samples, *[1] * (x.ndim - 1))), graph)
        z0, times = z0.reshape(-1, *z0.shape[-2:]), times.reshape(-1, times.shape[-1])
        options = self.config.kwargs()
        if self.diffusion is None:
            return solve(self.drift, z0, times, graph, throw=False, **options)
        drift, diffusion = self.drift, self.diffusion
        if self.prior_drift is not None:
            drift, diffusion = WithPathKL(drift, diffusion, self.prior_drift), without_noise(diffusion)
            z0 = jnp.pad(z0, ((0, 0), (0, 0), (0, 1)))
        return solve_sde(drift, diffusion, z0, times, graph, key=key, throw=False, **options)


def _on_one_graph(stream: GraphStream) -> bool:
    """Whether the windows of a batch share a graph that does not change, as `GraphStream.batch` makes them."""
    return stream.times.ndim == 2 and stream.graphs.senders.ndim == 1


class KLSchedule(eqx.Module):
    """The weight of the divergences: `first` until step `wait`, then rising linearly to `last` over `rise` steps."""

    first: float = 0.0
    last: float = 1.0
    wait: int = 0
    rise: int = 100

    def __check_init__(self):
        if self.rise < 1 or self.wait < 0:
            raise InputError(f"wait and rise: expected 0 or more and 1 or more steps, got {self.wait} and {self.rise}.")

    def __call__(self, step: int | Int[Array, ""]) -> Float[Array, ""]:
        share = jnp.clip((jnp.asarray(step, float) - self.wait) / self.rise, 0, 1)
        return self.first + (self.last - self.first) * share
