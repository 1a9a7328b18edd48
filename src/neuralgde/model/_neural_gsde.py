"""Neural graph stochastic differential equations, with the paper's networks."""

from collections.abc import Callable, Sequence

import equinox as eqx
import jax
from jaxtyping import Array, ArrayLike, Float, PRNGKeyArray

from ..field import Field, GSDEField
from ..graph import Graph
from ..integrate import Solution, SolveConfig, solve_sde

SDE_CONFIG = SolveConfig(solver="euler_heun", rtol=1e-3, atol=1e-3)


class NeuralGSDE(eqx.Module):
    """dZ = f_G(t, Z) dt + g_G(t, Z) ∘ dB from Z_0 = x: both networks are [GCN, GAT, GCN], g ends in a sigmoid.

    A batch, x of shape (batch, nodes, features), has a path and steps for each sample, as in `solve_sde`. Where a solve
    fails the states are NaN; `solve` gives the cause.
    """

    drift: Field
    diffusion: Field
    config: SolveConfig = eqx.field(static=True)

    def __init__(
        self,
        features: int = 1,
        hidden: int = 3,
        heads: int = 1,
        *,
        key: PRNGKeyArray,
        activation: Callable[[Array], Array] = jax.nn.tanh,
        config: SolveConfig = SDE_CONFIG,
    ):
        widths = (features, hidden, hidden, features)
        k_drift, k_diffusion = jax.random.split(key)
        self.drift = GSDEField(widths, heads, activation=activation, key=k_drift)
        self.diffusion = GSDEField(
            widths, heads, activation=activation, final_activation=jax.nn.sigmoid, key=k_diffusion
        )
        self.config = config

    def __call__(
        self,
        x: Float[Array, "*batch nodes features"],
        times: ArrayLike | Sequence[float],
        graph: Graph,
        *,
        key: PRNGKeyArray,
    ) -> Float[Array, "*batch times nodes features"]:
        """The states at `times` along the path of `key`."""
        return self.solve(x, times, graph, key=key).states

    def solve(
        self,
        x: Float[Array, "*batch nodes features"],
        times: ArrayLike | Sequence[float],
        graph: Graph,
        *,
        key: PRNGKeyArray,
    ) -> Solution:
        """The same, with a status for each trajectory that compares to `Status`, and the counts of the solver."""
        options = self.config.kwargs()
        return solve_sde(self.drift, self.diffusion, x, times, graph, key=key, throw=False, **options)
