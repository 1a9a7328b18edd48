"""Prediction of the graph itself: edges by a rule from the predicted values, or by a decoder with probabilities."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Bool, Float, PRNGKeyArray

from ..graph import Graph


class EdgeRule(eqx.Module):
    """Edges made again from what is predicted of the nodes, by a rule that works under `jit`.

    `rule(y)` is a graph, such as `lambda y: Graph.from_positions(y[:, :2], radius=1.0)`.
    """

    rule: Callable[[Array], Graph]

    def __call__(self, z: Float[Array, "nodes state"], y: Float[Array, "nodes out"], graph: Graph) -> Graph:
        del z
        return self.rule(y).with_node_mask(graph.node_mask)


class EdgeDecoder(eqx.Module):
    """The probability of the edge i -> j at [i, j]: sigmoid(s_i . r_j + w a_ij + b).

    s and r are linear in the states; a_ij is 1 where the edge was there in the last graph seen. As s starts at zero,
    before training every pair stays as it was with a probability of 0.88.
    """

    senders: eqx.nn.Linear
    receivers: eqx.nn.Linear
    stay: Float[Array, ""]
    bias: Float[Array, ""]

    def __init__(self, state_size: int, rank: int = 16, *, key: PRNGKeyArray):
        s, r = jax.random.split(key)
        self.senders = jax.tree.map(jnp.zeros_like, eqx.nn.Linear(state_size, rank, key=s))
        self.receivers = eqx.nn.Linear(state_size, rank, key=r)
        self.stay = jnp.full((), 4.0)
        self.bias = jnp.full((), -2.0)

    def __call__(self, z: Float[Array, "nodes state"], y: Array, graph: Graph) -> Float[Array, "nodes nodes"]:
        del y
        s, r = jax.vmap(self.senders)(z), jax.vmap(self.receivers)(z)
        before = (graph.to_dense() != 0).astype(z.dtype)
        scores = s @ r.T / s.shape[1] ** 0.5 + self.stay * before + self.bias
        return jnp.where(pairs(graph), jax.nn.sigmoid(scores), 0)


def pairs(graph: Graph) -> Bool[Array, "nodes nodes"]:
    """The pairs that an edge may join: two different nodes that are present."""
    present = graph.node_mask
    return present[:, None] & present[None, :] & ~jnp.eye(graph.num_nodes, dtype=bool)


def edge_loss(probabilities: Float[Array, "nodes nodes"], graph: Graph) -> Float[Array, ""]:
    """Minus the mean log probability of the edges that a graph has, and of those it has not."""
    tiny = jnp.finfo(probabilities.dtype).eps
    p = jnp.clip(probabilities, tiny, 1 - tiny)
    score = jnp.where(graph.to_dense() != 0, jnp.log(p), jnp.log1p(-p))
    joined = pairs(graph)
    return -jnp.sum(jnp.where(joined, score, 0)) / jnp.maximum(jnp.sum(joined), 1).astype(p.dtype)


def likely_graph(probabilities: ArrayLike, threshold: float = 0.5) -> Graph:
    """The edges that are at least so probable, weighted by that (host code)."""
    p = jnp.asarray(probabilities)
    return Graph.from_adjacency(jnp.where(p >= threshold, p, 0))
