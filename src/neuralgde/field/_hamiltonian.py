"""Hamiltonian graph networks (Sanchez-Gonzalez et al. 2019)."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._types import Time
from ..graph import Graph
from ._checks import split_halves
from ._protocol import Breakpoints, Field, breakpoints_of, prepare_graph


class HamiltonianField(eqx.Module):
    """z = (q, p) side by side: dq/dt = dH/dp, dp/dt = -dH/dq, so that H stays as it is along a trajectory.

    H is the sum over present nodes of what `energy(t, z, graph)` gives, a graph network of the kind that fields are:
    `HamiltonianField(GMDE(widths=(2 * d, 32, 1), key=k))`. Its activation should be smooth.
    """

    energy: Field

    @property
    def breakpoints(self) -> Breakpoints:
        return breakpoints_of(self.energy)

    def prepare(self, graph: Graph) -> Graph:
        """The graph as the energy wants it."""
        return prepare_graph(self.energy, graph)

    def hamiltonian(self, t: Time, z: Float[Array, "nodes features"], graph: Graph) -> Float[Array, ""]:
        """H(q, p)."""
        return jnp.sum(jnp.where(graph.node_mask[:, None], self.energy(t, z, graph), 0))

    def __call__(self, t: Time, z: Float[Array, "nodes features"], graph: Graph) -> Float[Array, "nodes features"]:
        gradient = jax.grad(self.hamiltonian, argnums=1)(t, z, graph)
        dh_dq, dh_dp = split_halves(gradient, "HamiltonianField", "positions q and momenta p")
        return jnp.concatenate([dh_dp, -dh_dq], axis=1)
