"""Convolution by Chebyshev polynomials of the Laplacian (Defferrard et al. 2016)."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from .._errors import InputError
from ..graph import Graph
from ._init import glorot


class Chebyshev(eqx.Module):
    """z -> sum over k < order of T_k(L) z W_k + b, with L the scaled Laplacian for lambda_max = 2."""

    weight: Float[Array, "order in out"]
    bias: Float[Array, " out"]

    def __init__(self, in_size: int, out_size: int, order: int, *, key: PRNGKeyArray):
        if order < 1:
            raise InputError(f"order: expected the number of polynomials, 1 or more, got {order}.")
        self.weight = glorot(key, (order, in_size, out_size))
        self.bias = jnp.zeros(out_size)

    def prepare(self, graph: Graph) -> Graph:
        """The graph with the operator this layer needs: pass it to calls in a loop."""
        return graph.prepare("scaled_laplacian_out")

    def __call__(self, z: Float[Array, "nodes in"], graph: Graph) -> Float[Array, "nodes out"]:
        op = graph.operator("scaled_laplacian_out")
        terms = [z]
        for k in range(1, self.weight.shape[0]):
            terms.append(op @ z if k == 1 else 2 * (op @ terms[-1]) - terms[-2])
        return jnp.einsum("kni,kio->no", jnp.stack(terms), self.weight) + self.bias
