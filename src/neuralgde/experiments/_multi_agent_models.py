"""The models of the multi-agent experiment, by the names they have in its tables."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from .._types import Time
from ..field import GADE, GCDE, GMDE, Field, HamiltonianField, LearnedAugment, SecondOrder
from ..graph import Graph
from ..integrate import SolveConfig
from ..model import NeuralGDE, Static, neural_ode
from ..nn._init import glorot

if TYPE_CHECKING:
    from .multi_agent import MultiAgentConfig

FEATURES = 4


class RelativeGMDE(eqx.Module):
    """dz_v/dt = own(z_v) + sum over edges u -> v of m(z_u - z_v), m(d) = σ(d W + b) W_out.

    A GMDE whose messages depend on how two nodes stand to each other and not on where they are, and add up, as forces
    do. Without b and with an odd σ, m(-d) = -m(d): to every action there is a reaction.
    """

    own: Callable[[Float[Array, " in"]], Float[Array, " out"]]
    message_weight: Float[Array, "in hidden"]
    message_bias: Float[Array, " hidden"] | None
    out_weight: Float[Array, "hidden out"]
    activation: Callable[[Array], Array] = eqx.field(static=True)

    def __init__(
        self,
        own: Callable,
        widths: tuple[int, int, int],
        *,
        key: PRNGKeyArray,
        activation: Callable[[Array], Array] = jax.nn.tanh,
        use_bias: bool = False,
    ):
        in_size, hidden, out_size = widths
        k_message, k_out = jax.random.split(key)
        self.own = own
        self.message_weight = glorot(k_message, (in_size, hidden))
        self.message_bias = jnp.zeros(hidden) if use_bias else None
        self.out_weight = glorot(k_out, (hidden, out_size))
        self.activation = activation

    def __call__(self, t: Time, z: Float[Array, "nodes in"], graph: Graph) -> Float[Array, "nodes out"]:
        del t
        # d W is a difference of products over nodes, and the sum over edges comes before the product with W_out.
        projected = z @ self.message_weight
        difference = graph.at_senders(projected) - graph.at_receivers(projected)
        if self.message_bias is not None:
            difference = difference + self.message_bias
        messages = jnp.where(graph.active_edges[:, None], self.activation(difference), 0)
        return jax.vmap(self.own)(z) + graph.sum_to_receivers(messages) @ self.out_weight


def make_model(name: str, config: "MultiAgentConfig", *, key: PRNGKeyArray) -> Any:
    """A new model; `model(z, times, graph)` predicts the particles' states."""
    return _MAKERS[name](config, key)


def _solved(config: "MultiAgentConfig", field: Field, encoder=None, readout=None) -> NeuralGDE:
    # One fixed step a prediction: a learned field is as smooth as it needs to be to fit so short a time.
    return NeuralGDE(encoder, field, readout, SolveConfig(config.solver, dt0=config.dt, adjoint="direct"))


def _static(config: "MultiAgentConfig", key: PRNGKeyArray) -> Static:
    return Static(config.particles, FEATURES, width=config.static.width, key=key)


def _neural_ode(config: "MultiAgentConfig", key: PRNGKeyArray) -> NeuralGDE:
    settings = config.neural_ode
    solver = SolveConfig(config.solver, dt0=config.dt, adjoint="direct")
    if settings.tolerance is not None:
        solver = SolveConfig("tsit5", rtol=settings.tolerance, atol=settings.tolerance / 100, first_step=config.dt)
    return neural_ode(config.particles, FEATURES, width=settings.width, config=solver, key=key)


def _gcde(config: "MultiAgentConfig", key: PRNGKeyArray) -> NeuralGDE:
    return _solved(config, GCDE((FEATURES, 16, 16, FEATURES), activation=jax.nn.softplus, key=key))


def _gcde_2(config: "MultiAgentConfig", key: PRNGKeyArray) -> NeuralGDE:
    """The paper's: the four features of a node are x, and four added ones v."""
    k_encoder, k_field = jax.random.split(key)
    field = GCDE((2 * FEATURES, 32, 32, FEATURES), activation=jax.nn.softplus, key=k_field)
    return _solved(config, SecondOrder(field), LearnedAugment(FEATURES, FEATURES, key=k_encoder), _drop_added)


def _drop_added(z: Float[Array, "nodes augmented"], graph: Graph) -> Float[Array, "nodes features"]:
    del graph
    return z[:, :FEATURES]


def _gade_2(config: "MultiAgentConfig", key: PRNGKeyArray) -> NeuralGDE:
    return _solved(config, SecondOrder(GADE((FEATURES, 32, 2), activation=jax.nn.softplus, key=key)))


def _gmde_2(config: "MultiAgentConfig", key: PRNGKeyArray) -> NeuralGDE:
    k_own, k_field = jax.random.split(key)
    own = eqx.nn.Linear(FEATURES, 2, key=k_own)
    return _solved(config, SecondOrder(RelativeGMDE(own, (FEATURES, 32, 2), key=k_field)))


def _gmde_2_absolute(config: "MultiAgentConfig", key: PRNGKeyArray) -> NeuralGDE:
    return _solved(config, SecondOrder(GMDE((FEATURES, 32, 2), key=key)))


def _hamiltonian(config: "MultiAgentConfig", key: PRNGKeyArray) -> NeuralGDE:
    """The messages of GMDE-II, here of energies: with a bias, because energies of pairs are even."""
    k_own, k_field = jax.random.split(key)
    own = eqx.nn.MLP(FEATURES, 1, 32, 1, activation=jax.nn.softplus, key=k_own)
    energy = RelativeGMDE(own, (FEATURES, 32, 1), activation=jax.nn.softplus, use_bias=True, key=k_field)
    return _solved(config, HamiltonianField(energy))


_MAKERS: dict[str, Callable[["MultiAgentConfig", PRNGKeyArray], Any]] = {
    "Static": _static,
    "Neural ODE": _neural_ode,
    "GCDE": _gcde,
    "GCDE-II": _gcde_2,
    "HGN": _hamiltonian,
    "GADE-II": _gade_2,
    "GMDE-II absolute": _gmde_2_absolute,
    "GMDE-II": _gmde_2,
}
MODELS = tuple(_MAKERS)
