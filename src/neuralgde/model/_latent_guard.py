"""A guard against collapse: a posterior that says nothing, or noise that has gone."""

import dataclasses
from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float, PRNGKeyArray

from .._errors import InputError
from ..field import Field
from ..graph import Graph, GraphStream
from ._distributions import Gaussian
from ._latent import Encoder, LatentGDE

# Below these a part counts as collapsed: nats of a number's divergence, spread of its posterior mean over windows, and
# size of the diffusion.
LEAST_KL = 0.01
LEAST_SPREAD = 0.1
LEAST_DIFFUSION = 1e-3


@dataclasses.dataclass(frozen=True)
class CollapseReport:
    """What a trained latent model makes of its window and of its noise.

    - `kl`: divergence from the prior, in nats, of each number in the initial state, a mean over the windows.
    - `active_share`: the share of these numbers whose posterior differs from the prior and from window to window.
    - `diffusion`: root mean square of the diffusion along the trajectories; None for a deterministic decoder.
    - `noise_share`: the share of the variance at the last time that the noise along the way makes, not the start.
    """

    kl: np.ndarray
    active_share: float
    diffusion: float | None
    noise_share: float | None

    @property
    def posterior_collapsed(self) -> bool:
        return self.active_share == 0

    @property
    def noise_collapsed(self) -> bool:
        return self.diffusion is not None and not self.diffusion > LEAST_DIFFUSION

    @property
    def message(self) -> str:
        """One sentence a collapse, and what usually helps; empty where there is none."""
        parts = []
        if self.posterior_collapsed:
            parts.append(
                f"posterior collapse: no initial value differs from the prior by {LEAST_KL} nats and between windows. "
                "Lower the weight of the divergence, or raise it later (KLSchedule)."
            )
        if self.noise_collapsed:
            parts.append(
                f"noise collapse: the diffusion is {self.diffusion:.2g}, the decoder is deterministic. Lower the scale "
                "of the observation noise, or train on several samples."
            )
        return " ".join(parts)


def collapse_report(
    model: LatentGDE, streams: GraphStream, times: ArrayLike | Sequence[float], *, key: PRNGKeyArray, samples: int = 16
) -> CollapseReport:
    """Look into a model with a batch of two windows or more, from `GraphStream.stack`."""
    if streams.times.ndim != 2 or streams.times.shape[0] < 2:
        raise InputError("streams: expected two windows or more, stacked: what differs between them is what counts.")
    k_start, k_path = jax.random.split(key)
    # One program for both solves: compiling is what takes time here.
    run = eqx.filter_jit(lambda m, s, key: m(s, times, key=key, samples=samples))

    def with_spread(factor: float) -> LatentGDE:
        return eqx.tree_at(lambda m: m.encoder, model, _Shrunk(model.encoder, jnp.asarray(factor)))

    found = run(with_spread(1.0), streams, k_start)
    kl = np.asarray(jnp.mean(found.posterior.kl_to_standard(), axis=0))
    spread = np.asarray(jnp.std(found.posterior.mean, axis=0))
    present = np.logical_or.reduce(np.atleast_2d(model.last_graph(streams).node_mask))[:, None]
    active = np.logical_and(kl > LEAST_KL, spread > LEAST_SPREAD)
    share = float(np.mean(active, where=np.broadcast_to(present, kl.shape)))
    if model.diffusion is None:
        return CollapseReport(kl, share, None, None)

    # The posterior shrunk to its mean: what spread is left, the noise has made.
    from_mean = run(with_spread(1e-6), streams, k_path)
    total, own = (float(jnp.mean(jnp.var(p.states[..., -1, :, :], axis=0))) for p in (found, from_mean))
    size = _diffusion_size(model.diffusion, found.times, found.states, model.last_graph(streams))
    return CollapseReport(kl, share, float(size), own / max(total, 1e-30))


@eqx.filter_jit
def _diffusion_size(diffusion: Field, times: Array, states: Array, graph: Graph) -> Array:
    """Root mean square over samples, windows, times and the nodes that are present."""
    along = eqx.filter_vmap(diffusion, in_axes=(0, 0, None))
    own = graph.senders.ndim == 2
    over_windows = eqx.filter_vmap(along, in_axes=(0, 0, 0 if own else None))
    g = eqx.filter_vmap(over_windows, in_axes=(None, 0, None))(times, states, graph)
    return jnp.sqrt(jnp.mean(g**2, where=jnp.broadcast_to(jnp.atleast_2d(graph.node_mask)[:, None, :, None], g.shape)))


class _Shrunk(eqx.Module):
    """An encoder whose posterior has its spread times a factor."""

    encoder: Encoder
    factor: Float[Array, ""]

    def __call__(self, stream: GraphStream) -> Gaussian:
        posterior = self.encoder(stream)
        return Gaussian(posterior.loc, posterior.scale * self.factor.astype(posterior.scale.dtype))
