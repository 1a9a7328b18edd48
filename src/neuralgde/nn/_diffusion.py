"""Diffusion convolution (Li et al. 2018): random walks along the edges and against them."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from .._errors import InputError
from ..graph import Graph
from ._init import glorot

# Index 0 of the weight is the walk along the edges, index 1 the walk against them.
_WALKS = ("random_walk", "reverse_random_walk")


class Diffusion(eqx.Module):
    """z -> sum over both directions d and k < steps of P_d^k z W_dk + b.

    P_0 takes the weighted mean of those that point to a node, P_1 of those that it points to. Each direction has a
    weight of its own for k = 0, as in the paper.
    """

    weight: Float[Array, "2 steps in out"]
    bias: Float[Array, " out"]

    def __init__(self, in_size: int, out_size: int, steps: int, *, key: PRNGKeyArray):
        if steps < 1:
            raise InputError(f"steps: expected the number of powers, the zeroth included, 1 or more, got {steps}.")
        self.weight = glorot(key, (2, steps, in_size, out_size))
        self.bias = jnp.zeros(out_size)

    def prepare(self, graph: Graph) -> Graph:
        """The graph with the operators this layer needs: pass it to calls in a loop."""
        return graph.prepare(*_WALKS)

    def __call__(self, z: Float[Array, "nodes in"], graph: Graph) -> Float[Array, "nodes out"]:
        # The zeroth powers are both z, so their weights are added before the product.
        terms, weights = [z], [self.weight[:, 0].sum(0)]
        for walk, weight in zip(_WALKS, self.weight, strict=True):
            op, term = graph.operator(walk), z
            for w in weight[1:]:
                term = op @ term
                terms.append(term)
                weights.append(w)
        return jnp.concatenate(terms, axis=1) @ jnp.concatenate(weights) + self.bias
