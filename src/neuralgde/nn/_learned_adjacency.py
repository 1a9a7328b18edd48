"""A learned adjacency beside the given one (Wu et al. 2019): edges that no map shows."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from .._errors import InputError
from ..graph import Graph


class LearnedAdjacency(eqx.Module):
    """softmax(relu(S R^T)) over senders: each node takes a weighted mean of all others, by two vectors for each node.

    `adjacency(graph)` is the same graph, carrying this operator under the name "learned", which layers take as any
    other. It belongs to the nodes it was built for: graphs of another size are refused, and another order is not the
    same model.
    """

    receivers: Float[Array, "nodes rank"]
    senders: Float[Array, "nodes rank"]

    def __init__(self, num_nodes: int, rank: int = 10, *, key: PRNGKeyArray):
        r, s = jax.random.split(key)
        self.receivers = jax.random.normal(r, (num_nodes, rank))
        self.senders = jax.random.normal(s, (num_nodes, rank))

    def __call__(self, graph: Graph) -> Graph:
        nodes = self.receivers.shape[0]
        if graph.num_nodes != nodes:
            raise InputError(f"graph: the learned adjacency was built for {nodes} nodes, got {graph.num_nodes}.")
        scores = jax.nn.relu(self.receivers @ self.senders.T)
        present = graph.node_mask
        scores = jnp.where(present[None, :], scores, -jnp.inf)
        weights = jax.nn.softmax(scores, axis=1, where=present[None, :])
        return graph.with_operator("learned", jnp.where(present[:, None], weights, 0))
