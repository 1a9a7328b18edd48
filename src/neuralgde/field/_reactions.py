"""Drift and diffusion of a reaction network whose rates are learned: the chemical Langevin equation on its graph."""

import math
from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from .._errors import InputError
from .._types import Time
from ..graph import Graph

# Channels of the edges' features, as `ReactionNetwork.graph` has them, and the operator that holds the changes.
ROLES = ("reactant", "product", "modifier")
CHANGE = "change"
# Rates stay within exp(±10) of where they start: a step that shoots further would never come back.
_LARGEST_LOG = 10.0
_CHANNELS = 4


class ReactionRates(eqx.Module):
    """The rate of every reaction, from the species it is joined to: a(n) = least reactant * exp(network(log(1 + n))).

    Nodes are species first, then reactions. A reaction attends to its species by their roles and their counts, its own
    small network makes a logarithm of what it hears, and the rate is 0 where a reactant is not there. In logarithms a
    power of a count is a straight line.

    - `low`, `span`: a state z of a species is the count low + span z.
    - `time_scale`: the time in which reactions change counts by much, at the start of training.
    """

    value: Float[Array, "roles channels"]
    query: Float[Array, "reactions channels"]
    key_role: Float[Array, "roles channels"]
    key_count: Float[Array, "roles channels"]
    first: Float[Array, "reactions channels hidden"]
    bias: Float[Array, "reactions hidden"]
    last: Float[Array, "reactions hidden"]
    linear: Float[Array, "reactions channels"]
    offset: Float[Array, " reactions"]
    log_strength: Float[Array, " reactions"]
    low: tuple[float, ...] = eqx.field(static=True)
    span: tuple[float, ...] = eqx.field(static=True)

    def __init__(
        self,
        graph: Graph,
        low: Sequence[float],
        span: Sequence[float],
        hidden: int = 8,
        *,
        time_scale: float = 1.0,
        key: PRNGKeyArray,
    ):
        self.low, self.span = tuple(map(float, low)), tuple(map(float, span))
        if len(self.low) != len(self.span) or not 0 < len(self.span) < graph.num_nodes:
            raise InputError(
                f"low and span: expected one number for each species, fewer than the {graph.num_nodes} nodes, got "
                f"{len(self.low)} and {len(self.span)}."
            )
        if not all(math.isfinite(s) and s > 0 for s in self.span):
            raise InputError(
                f"span: expected positive numbers, got {self.span}. Use 1 for a species that never changes."
            )
        reactions = graph.num_nodes - len(self.span)
        keys = jax.random.split(key, 7)
        self.value = 0.5 * jax.random.normal(keys[0], (len(ROLES), _CHANNELS))
        self.query = 0.1 * jax.random.normal(keys[1], (reactions, _CHANNELS))
        self.key_role = 0.1 * jax.random.normal(keys[2], (len(ROLES), _CHANNELS))
        self.key_count = 0.1 * jax.random.normal(keys[3], (len(ROLES), _CHANNELS))
        self.first = jax.random.normal(keys[4], (reactions, _CHANNELS, hidden))
        self.bias = jax.random.normal(keys[5], (reactions, hidden))
        self.last = 0.1 / math.sqrt(hidden) * jax.random.normal(keys[6], (reactions, hidden))
        self.linear = jnp.zeros((reactions, _CHANNELS))
        self.offset = (self._typical(graph) - math.log(time_scale)).astype(self.bias.dtype)
        self.log_strength = jnp.full(reactions, math.log(0.05))

    def _typical(self, graph: Graph) -> Float[Array, " reactions"]:
        """The logarithm of a rate that makes the span of what a reaction produces; 0 where it has reactants."""
        _, change = self._matrices(self.prepare(graph))
        made = jnp.max(jnp.where(change > 0, jnp.asarray(self.span, change.dtype)[:, None], 0), axis=0)
        return jnp.where((change < 0).any(0) | (made == 0), 0, jnp.log(jnp.maximum(made, 1e-30)))

    def prepare(self, graph: Graph) -> Graph:
        """The graph, carrying a matrix for each role and one of what a firing changes."""
        if CHANGE in graph.prepared:
            return graph
        if graph.edge_features is None or graph.edge_features.shape[-1] != len(ROLES):
            raise InputError(
                "graph: expected the roles of species in reactions as edge features. Take network.graph(signed=True)."
            )
        # A silenced node keeps its edges: a species that is not there is a count of 0, not a missing neighbour.
        columns = jnp.where(graph.edge_mask[:, None], graph.edge_features, 0)
        change = graph.scatter_pairs(jnp.where(graph.edge_mask, graph.weights, 0))
        for k, name in enumerate(ROLES):
            graph = graph.with_operator(name, graph.scatter_pairs(columns[:, k]))
        return graph.with_operator(CHANGE, change)

    def _matrices(self, graph: Graph) -> tuple[Array, Array]:
        """The roles, (reactions, species, roles), and the changes, (species, reactions)."""
        s = len(self.span)
        roles = jnp.stack([graph.operator(name).to_dense()[s:, :s] for name in ROLES], axis=-1)
        return roles, graph.operator(CHANGE).to_dense()[:s, s:]

    def counts(self, z: Float[Array, "nodes 1"], graph: Graph) -> Float[Array, " species"]:
        """The counts that a state stands for; none of a species that is silenced."""
        s = len(self.span)
        count = jnp.asarray(self.low, z.dtype) + jnp.asarray(self.span, z.dtype) * z[:s, 0]
        return jnp.where(graph.node_mask[:s], jnp.maximum(count, 0), 0)

    def __call__(
        self, z: Float[Array, "nodes 1"], graph: Graph
    ) -> tuple[Float[Array, " reactions"], Float[Array, "species reactions"]]:
        """The rates, and what a firing of each reaction changes."""
        if z.shape != (graph.num_nodes, 1):
            raise InputError(f"z: expected shape ({graph.num_nodes}, 1), a number for each node, got {z.shape}.")
        graph = self.prepare(graph)
        roles, change = self._matrices(graph)
        n = self.counts(z, graph)
        logs = self._logs(n)
        weights, _ = self._attention(logs, roles)
        heard = jnp.einsum("rs,rsk,kc->rc", weights * logs, roles, self.value)
        inner = jnp.tanh(jnp.einsum("rc,rch->rh", heard, self.first) + self.bias)
        log_rate = jnp.sum(self.last * inner, axis=1) + jnp.sum(self.linear * heard, axis=1)
        log_rate = log_rate + jnp.exp(self.log_strength) * z[len(self.span) :, 0]
        least = jnp.min(jnp.where(change.T < 0, n, jnp.inf), axis=1)
        factor = jnp.where(jnp.isinf(least), 1, least)
        rates = factor * jnp.exp(self.offset + jnp.clip(log_rate, -_LARGEST_LOG, _LARGEST_LOG))
        return jnp.where(graph.node_mask[len(self.span) :], rates, 0), change

    def attention(self, z: Float[Array, "nodes 1"], graph: Graph) -> Float[Array, "slots 1"]:
        """The weight of each edge, self loops last: into a reaction how much it attends to a species, into a species
        the reaction's share of all that changes it. The weights into a node add up to 1, its self loop included.
        """
        graph = self.prepare(graph)
        roles, change = self._matrices(graph)
        weights, loops = self._attention(self._logs(self.counts(z, graph)), roles)
        rates, _ = self(z, graph)
        flow = jnp.abs(change) * rates
        total = jnp.sum(flow, axis=1, keepdims=True)
        share = flow / jnp.where(total > 0, total, 1)
        s, nodes = len(self.span), graph.num_nodes
        pairs = jnp.zeros((nodes, nodes), z.dtype).at[s:, :s].set(weights).at[:s, s:].set(share)
        own = jnp.concatenate([jnp.where(total[:, 0] > 0, 0, 1), loops])
        return jnp.concatenate([pairs[graph.receivers, graph.senders], own])[:, None]

    def _logs(self, n: Array) -> Array:
        # In units of a molecule, or of a tenth of the span where amounts are no counts.
        unit = jnp.asarray([min(1.0, span / 10) for span in self.span], n.dtype)
        return jnp.log1p(n / unit) / 2

    def _attention(self, logs: Array, roles: Array) -> tuple[Array, Array]:
        """Weights of the species of each reaction, (reactions, species), and of the reaction itself."""
        by_role = self.query @ self.key_role.T
        by_count = self.query @ self.key_count.T
        logits = jnp.einsum("rsk,rk->rs", roles, by_role) + logs * jnp.einsum("rsk,rk->rs", roles, by_count)
        joined = jnp.any(roles > 0, axis=-1)
        # The reaction's own logit is 0.
        shift = jax.lax.stop_gradient(jnp.maximum(jnp.max(jnp.where(joined, logits, 0), axis=1, keepdims=True), 0))
        exponentials = jnp.where(joined, jnp.exp(logits - shift), 0)
        own = jnp.exp(-shift[:, 0])
        total = jnp.sum(exponentials, axis=1) + own
        return exponentials / total[:, None], own / total


class ReactionDrift(eqx.Module):
    """Species change by what reactions make and take; the states of reactions fall back to 0.

    A reaction's state is how far its rate is off what its species make it, a latent number that is N(0, 1) in the long
    run and matters as much as `rates.log_strength` says.
    """

    rates: ReactionRates
    log_time: Float[Array, " reactions"]

    def __init__(self, rates: ReactionRates, time_scale: float = 1.0):
        self.rates = rates
        self.log_time = jnp.full(rates.offset.shape, math.log(time_scale))

    def prepare(self, graph: Graph) -> Graph:
        """The graph, carrying what rates are computed from."""
        return self.rates.prepare(graph)

    def __call__(self, t: Time, z: Float[Array, "nodes 1"], graph: Graph) -> Float[Array, "nodes 1"]:
        del t
        rates, change = self.rates(z, graph)
        flow = change @ rates / jnp.asarray(self.rates.span, z.dtype)
        back = -z[len(self.rates.span) :, 0] * jnp.exp(-self.log_time)
        return _present(jnp.concatenate([flow, back]), graph)

    def attention(self, t: Time, z: Float[Array, "nodes 1"], graph: Graph) -> tuple[Float[Array, "slots 1"], ...]:
        """The weight of each edge at this state, see `ReactionRates`."""
        del t
        return (self.rates.attention(z, graph),)


class ReactionDiffusion(eqx.Module):
    """The noise of reactions that fire at random, sqrt(sum of change^2 rate), times a factor for each species."""

    rates: ReactionRates
    log_time: Float[Array, " reactions"]
    log_factor: Float[Array, " species"]

    def __init__(self, rates: ReactionRates, time_scale: float = 1.0):
        self.rates = rates
        self.log_time = jnp.full(rates.offset.shape, math.log(time_scale))
        self.log_factor = jnp.zeros(len(rates.span))

    def prepare(self, graph: Graph) -> Graph:
        """The graph, carrying what rates are computed from."""
        return self.rates.prepare(graph)

    def __call__(self, t: Time, z: Float[Array, "nodes 1"], graph: Graph) -> Float[Array, "nodes 1"]:
        del t
        rates, change = self.rates(z, graph)
        # A trace of noise where nothing fires: the root has no slope at 0.
        size = jnp.sqrt(change**2 @ rates + 1e-6) / jnp.asarray(self.rates.span, z.dtype)
        own = jnp.sqrt(2.0) * jnp.exp(-self.log_time / 2)
        return _present(jnp.concatenate([jnp.exp(self.log_factor) * size, own]), graph)


def _present(rows: Float[Array, " nodes"], graph: Graph) -> Float[Array, "nodes 1"]:
    """Nothing changes at nodes that are silenced."""
    return jnp.where(graph.node_mask, rows, 0)[:, None]
