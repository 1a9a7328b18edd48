"""Graph attention that ranks neighbours differently for each node (Brody et al. 2022)."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from ..graph import Graph
from ._attention import attend, attention_weights
from ._init import glorot


class GATv2(eqx.Module):
    """As `GAT`, with a softmax of a . LeakyReLU(z_u W_source + z_v W_target); what is averaged is z_u W_source."""

    weight_source: Float[Array, "in heads out"]
    weight_target: Float[Array, "in heads out"]
    bias_source: Float[Array, "heads out"]
    bias_target: Float[Array, "heads out"]
    att: Float[Array, "heads out"]
    bias: Float[Array, " features"]

    def __init__(self, in_size: int, out_size: int, heads: int = 1, *, key: PRNGKeyArray):
        k_source, k_target, k_att = jax.random.split(key, 3)
        shape = (in_size, heads, out_size)
        self.weight_source = glorot(k_source, (in_size, heads * out_size)).reshape(shape)
        self.weight_target = glorot(k_target, (in_size, heads * out_size)).reshape(shape)
        self.bias_source = jnp.zeros((heads, out_size))
        self.bias_target = jnp.zeros((heads, out_size))
        self.att = glorot(k_att, (heads, out_size))
        self.bias = jnp.zeros(heads * out_size)

    def prepare(self, graph: Graph) -> Graph:
        """The graph as it is: attention needs no operator."""
        return graph

    def attention(self, z: Float[Array, "nodes in"], graph: Graph) -> Float[Array, "slots heads"]:
        """The weight of each edge and head, in the graph's edge order, the self loop of each node last."""
        return attention_weights(*self._logits(*self._project(z), graph), graph)

    def __call__(self, z: Float[Array, "nodes in"], graph: Graph) -> Float[Array, "nodes features"]:
        source, target = self._project(z)
        return attend(source, *self._logits(source, target, graph), graph) + self.bias

    def _project(self, z: Array) -> tuple[Array, Array]:
        source = jnp.einsum("ni,iko->nko", z, self.weight_source) + self.bias_source
        target = jnp.einsum("ni,iko->nko", z, self.weight_target) + self.bias_target
        return source, target

    def _logits(self, source: Array, target: Array, graph: Graph) -> tuple[Array, Array]:
        def score(h: Array) -> Array:
            return jnp.sum(jax.nn.leaky_relu(h, 0.2) * self.att, axis=-1)

        return score(graph.at_senders(source) + graph.at_receivers(target)), score(source + target)
