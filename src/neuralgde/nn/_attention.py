"""The softmax over incoming edges that attention layers share. Masks decide who takes part, not zero weights."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..graph import Graph


def neighbour_softmax(
    edge_logits: Float[Array, "edges heads"], loop_logits: Float[Array, "nodes heads"], graph: Graph
) -> tuple[Float[Array, "edges heads"], Float[Array, "nodes heads"], Float[Array, "nodes heads"]]:
    """Exponentials on the edges and on one self loop a node, and their sum at each node, which is not divided by yet.

    Self loops of the graph itself are left out, so that every present node has exactly one.
    """
    takes_part = (graph.active_edges & ~graph.is_self_loop)[:, None]
    present = graph.node_mask[:, None]
    edge_logits = jnp.where(takes_part, edge_logits, -jnp.inf)
    # The shift cancels in the quotient, so its gradient does too. The self loop keeps it finite.
    shift = jax.lax.stop_gradient(jnp.maximum(graph.max_to_receivers(edge_logits), loop_logits))
    edges = jnp.exp(edge_logits - graph.at_receivers(shift))
    loops = jnp.where(present, jnp.exp(loop_logits - shift), 0)
    return edges, loops, jnp.where(present, graph.sum_to_receivers(edges) + loops, 1)


def attend(
    h: Float[Array, "nodes heads channels"],
    edge_logits: Float[Array, "edges heads"],
    loop_logits: Float[Array, "nodes heads"],
    graph: Graph,
) -> Float[Array, "nodes features"]:
    """Each node's mean of h over those that point to it and itself, weighted by the softmax; heads side by side."""
    edges, loops, total = neighbour_softmax(edge_logits, loop_logits, graph)
    if graph.structure is None:
        pairs = edges.reshape(graph.num_nodes, graph.num_nodes, -1)
        arriving = jnp.einsum("vuk,ukc->vkc", pairs, h)
    else:
        per_head = [graph.structure.csr(edges[:, k]) @ h[:, k] for k in range(h.shape[1])]
        arriving = jnp.stack(per_head, axis=1)
    # Dividing at the nodes is cheaper than on the edges.
    out = (arriving + loops[..., None] * h) / total[..., None]
    return out.reshape(h.shape[0], -1)


def attention_weights(
    edge_logits: Float[Array, "edges heads"], loop_logits: Float[Array, "nodes heads"], graph: Graph
) -> Float[Array, "slots heads"]:
    """The softmax itself, in the graph's edge order, the self loop of each node last; 0 for edges that take no part."""
    edges, loops, total = neighbour_softmax(edge_logits, loop_logits, graph)
    return jnp.concatenate([edges / graph.at_receivers(total), loops / total])
