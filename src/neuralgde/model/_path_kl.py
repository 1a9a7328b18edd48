"""The divergence between the paths of two drifts that share a diffusion, as one more feature of every node."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._types import Time
from ..field import Field, prepare_graph
from ..graph import Graph


class WithPathKL(eqx.Module):
    """(drift, (1/2) sum over features of ((drift - prior) / diffusion)^2): the last feature adds up the divergence.

    That of the paths from the prior's, by Girsanov's theorem. Stratonovich drifts will do: they differ from Ito's by a
    term of the diffusion, which cancels.
    """

    drift: Field
    diffusion: Field
    prior: Field

    def prepare(self, graph: Graph) -> Graph:
        """The graph as the three fields want it."""
        for field in (self.drift, self.diffusion, self.prior):
            graph = prepare_graph(field, graph)
        return graph

    def __call__(self, t: Time, z: Float[Array, "nodes all"], graph: Graph) -> Float[Array, "nodes all"]:
        state = z[:, :-1]
        f = self.drift(t, state, graph)
        g = self.diffusion(t, state, graph)
        u = (f - self.prior(t, state, graph)) / jnp.maximum(jnp.abs(g), 1e-6)
        return jnp.concatenate([f, jnp.sum(u**2, axis=1, keepdims=True) / 2], axis=1)


class _WithoutNoise(eqx.Module):
    """A diffusion of all features but the last."""

    diffusion: Field

    def prepare(self, graph: Graph) -> Graph:
        return prepare_graph(self.diffusion, graph)

    def __call__(self, t: Time, z: Float[Array, "nodes all"], graph: Graph) -> Float[Array, "nodes all"]:
        return jnp.pad(self.diffusion(t, z[:, :-1], graph), ((0, 0), (0, 1)))


def without_noise(diffusion: Field) -> Field:
    """The diffusion on states that `WithPathKL` has widened: the feature it adds has no noise."""
    return _WithoutNoise(diffusion)
