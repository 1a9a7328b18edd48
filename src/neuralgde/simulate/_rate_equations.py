"""The deterministic rate equations of a reaction network: dx/dt = sum over reactions of change times rate."""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float

from .._errors import InputError
from .._types import Time
from ..graph import Graph
from ..integrate import Solution, solve
from ._network import ReactionNetwork


class RateEquations(eqx.Module):
    """The field of motion of the counts, (species, 1): as any other field, it can be solved and differentiated.

    Species that follow a rule stand still in it: `network.observe` puts their values in.
    """

    network: ReactionNetwork

    def __check_init__(self):
        if self.network.events:
            raise InputError(
                f"event {self.network.events[0].name!r}: the rate equations have no events. Simulate the network with "
                "simulate_reactions, or leave its events out."
            )

    def __call__(self, t: Time, z: Float[Array, "species 1"], graph: Graph | None = None) -> Array:
        """dz/dt."""
        del graph
        rates = self.network.propensities(t, z[:, 0])
        return (rates @ jnp.asarray(self.network.stoichiometry, z.dtype))[:, None]


def solve_rate_equations(network: ReactionNetwork, times: ArrayLike | Sequence[float], **settings: Any) -> Solution:
    """The solution from the initial counts at `times[0]`, states (times, species); `settings` go to `solve`."""
    z0 = jnp.asarray(network.initial, jnp.zeros(()).dtype)[:, None]
    solution = solve(RateEquations(network), z0, np.asarray(times, float), **settings)
    states = network.observe(solution.times, solution.states[..., 0])
    return eqx.tree_at(lambda s: s.states, solution, states)
