"""Gated recurrent cell on a graph (Zhao et al. 2018): the jump of the hybrid models."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from ..graph import Graph
from ._init import glorot
from ._tanh import sigmoid, tanh


class GCGRU(eqx.Module):
    """One step of the cell, `cell(x, z, graph)`:

        H  = sigmoid(L x W_xz + L z W_hz)
        R  = sigmoid(L x W_xr + L z W_hr)
        Z~ = tanh(L x W_xh + L (R z) W_hh)
        z+ = H z + (1 - H) Z~

    with products by gates elementwise and L = D^-1/2 (A + I) D^-1/2 unless another operator is named. `use_bias` adds a
    bias to each of the three lines.
    """

    w_xz: Float[Array, "in hidden"]
    w_hz: Float[Array, "hidden hidden"]
    w_xr: Float[Array, "in hidden"]
    w_hr: Float[Array, "hidden hidden"]
    w_xh: Float[Array, "in hidden"]
    w_hh: Float[Array, "hidden hidden"]
    bias: Float[Array, "3 hidden"] | None
    operator: str = eqx.field(static=True)

    def __init__(self, in_size: int, hidden: int, *, operator: str = "gcn", use_bias: bool = False, key: PRNGKeyArray):
        keys = jax.random.split(key, 6)
        self.w_xz, self.w_xr, self.w_xh = (glorot(k, (in_size, hidden)) for k in keys[:3])
        self.w_hz, self.w_hr, self.w_hh = (glorot(k, (hidden, hidden)) for k in keys[3:])
        self.bias = jnp.zeros((3, hidden)) if use_bias else None
        self.operator = operator

    def prepare(self, graph: Graph) -> Graph:
        """The graph with the operator this cell needs: pass it to calls in a loop."""
        return graph.prepare(self.operator)

    def __call__(
        self, x: Float[Array, "nodes in"], z: Float[Array, "nodes hidden"], graph: Graph
    ) -> Float[Array, "nodes hidden"]:
        op = graph.operator(self.operator)
        b_h, b_r, b_z = (0, 0, 0) if self.bias is None else self.bias
        # Side by side: two products with the graph and two with the weights, instead of three and six.
        both = op @ jnp.concatenate([x, z], axis=1)
        gates = both @ jnp.block([[self.w_xz, self.w_xr], [self.w_hz, self.w_hr]])
        h, r = jnp.split(gates, 2, axis=1)
        h, r = sigmoid(h + b_h), sigmoid(r + b_r)
        reset = jnp.concatenate([both[:, : x.shape[1]], op @ (r * z)], axis=1)
        candidate = tanh(reset @ jnp.concatenate([self.w_xh, self.w_hh]) + b_z)
        return h * z + (1 - h) * candidate
