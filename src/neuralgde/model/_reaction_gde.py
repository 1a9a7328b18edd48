"""The latent stochastic model of a reaction network, on its graph of species and reactions."""

from collections.abc import Sequence

import equinox as eqx
import jax
from jaxtyping import PRNGKeyArray

from ..field import ReactionDiffusion, ReactionDrift, ReactionRates
from ..graph import Graph
from ..integrate import SolveConfig
from ._latent import LatentGDE
from ._latent_encoders import LastValueEncoder, TCNEncoder


def reaction_gde(
    graph: Graph,
    low: Sequence[float],
    span: Sequence[float],
    *,
    spacing: float = 1.0,
    time_scale: float = 10.0,
    hidden: int = 8,
    key: PRNGKeyArray,
) -> eqx.nn.Shared:
    """A `LatentGDE` of counts scaled to (n - low) / span, one number a node, whose drift and diffusion share the rates.

    - `graph`: species first, then reactions, as `ReactionNetwork.graph(signed=True)` has them.
    - `spacing`: the time between observations, of which the solver takes two steps.
    - `time_scale`: as in `ReactionRates`.

    Call it to get the model: `reaction_gde(…)()(stream, times, key=key)`. What is shared is trained once.
    """
    k_rates, k_encoder = jax.random.split(key)
    rates = ReactionRates(graph, low, span, hidden, time_scale=time_scale, key=k_rates)
    observed = range(len(span))
    inside = TCNEncoder(
        graph.num_nodes, observed, hidden=16, kernel_size=2, dilations=(1, 2), time_scale=spacing, key=k_encoder
    )
    model = LatentGDE(
        LastValueEncoder(inside, observed),
        ReactionDrift(rates, time_scale),
        ReactionDiffusion(rates, time_scale),
        observed=observed,
        config=SolveConfig(solver="euler_heun", dt0=spacing / 2),
    )
    return eqx.nn.Shared(
        model,
        where=lambda m: (m.diffusion.rates, m.diffusion.log_time),
        get=lambda m: (m.drift.rates, m.drift.log_time),
    )
