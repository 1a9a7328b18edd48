"""Graph attention (Veličković et al. 2018)."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from ..graph import Graph
from ._attention import attend, attention_weights
from ._init import glorot


class GAT(eqx.Module):
    """Each node takes a mean of z W over those that point to it and itself; a softmax of
    LeakyReLU(a_source . z_u W + a_target . z_v W) weighs it. Heads are concatenated.

    Self loops of the graph are replaced by one for each node, and edge weights are ignored.
    """

    weight: Float[Array, "in heads out"]
    att_source: Float[Array, "heads out"]
    att_target: Float[Array, "heads out"]
    bias: Float[Array, " features"]

    def __init__(self, in_size: int, out_size: int, heads: int = 1, *, key: PRNGKeyArray):
        k_weight, k_source, k_target = jax.random.split(key, 3)
        self.weight = glorot(k_weight, (in_size, heads * out_size)).reshape(in_size, heads, out_size)
        self.att_source = glorot(k_source, (heads, out_size))
        self.att_target = glorot(k_target, (heads, out_size))
        self.bias = jnp.zeros(heads * out_size)

    def prepare(self, graph: Graph) -> Graph:
        """The graph as it is: attention needs no operator."""
        return graph

    def attention(self, z: Float[Array, "nodes in"], graph: Graph) -> Float[Array, "slots heads"]:
        """The weight of each edge and head, in the graph's edge order, the self loop of each node last."""
        return attention_weights(*self._logits(self._project(z), graph), graph)

    def __call__(self, z: Float[Array, "nodes in"], graph: Graph) -> Float[Array, "nodes features"]:
        h = self._project(z)
        return attend(h, *self._logits(h, graph), graph) + self.bias

    def _project(self, z: Array) -> Array:
        return jnp.einsum("ni,iko->nko", z, self.weight)

    def _logits(self, h: Array, graph: Graph) -> tuple[Array, Array]:
        source = jnp.sum(h * self.att_source, axis=-1)
        target = jnp.sum(h * self.att_target, axis=-1)
        edges = graph.at_senders(source) + graph.at_receivers(target)
        return jax.nn.leaky_relu(edges, 0.2), jax.nn.leaky_relu(source + target, 0.2)
