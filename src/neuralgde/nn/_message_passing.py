"""General message passing (Gilmer et al. 2017)."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..graph import Graph


class MessagePassing(eqx.Module):
    """z_v -> update(z_v, sum over edges u -> v of message(z_v, z_u, e)), e the edge's features.

    Both functions take the vectors of one node or edge: `message(z_v, z_u)`, or `message(z_v, z_u, e)` where the graph
    has edge features, and `update(z_v, m_v)`. Edge weights are ignored: give them as edge features to use them. Edges
    that are switched off send nothing, whatever their features are; self loops send like any other edge.
    """

    message: Callable[..., Float[Array, " channels"]]
    update: Callable[[Float[Array, " in"], Float[Array, " channels"]], Float[Array, " out"]]

    def prepare(self, graph: Graph) -> Graph:
        """The graph as it is: messages need no operator."""
        return graph

    def __call__(self, z: Float[Array, "nodes in"], graph: Graph) -> Float[Array, "nodes out"]:
        active = graph.active_edges[:, None]
        # Edges that are off get stand-ins, unequal and positive: a message that is singular there, as 1 / |z_v - z_u|
        # is on a node's pair with itself, would send NaN back through `where` to its parameters.
        ends = [jnp.where(active, graph.at_receivers(z), 1), jnp.where(active, graph.at_senders(z), 2)]
        if graph.edge_features is not None:
            ends.append(jnp.where(active, graph.edge_features.astype(z.dtype), 1))
        messages = jnp.where(active, jax.vmap(self.message)(*ends), 0)
        return jax.vmap(self.update)(z, graph.sum_to_receivers(messages))
