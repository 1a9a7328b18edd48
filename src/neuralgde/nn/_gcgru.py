"""Gated recurrent cell on a graph (Zhao et al. 2018): the jump of the hybrid models."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from ..graph import Graph
from ._init import glorot
from ._paths import Operators, along_paths, as_paths, mixed, prepare_paths
from ._tanh import sigmoid, tanh


class GCGRU(eqx.Module):
    """One step of the cell, `cell(x, z, graph)`:

        H  = sigmoid(L x W_xz + L z W_hz)
        R  = sigmoid(L x W_xr + L z W_hr)
        Z~ = tanh(L x W_xh + L (R z) W_hh)
        z+ = H z + (1 - H) Z~

    with products by gates elementwise and L = D^-1/2 (A + I) D^-1/2 unless another operator is named; several of them,
    ("self", "gcn"), stand side by side as in `GCN`. `use_bias` adds a bias to each of the three lines.
    """

    w_xz: Float[Array, "paths_in hidden"]
    w_hz: Float[Array, "paths_hidden hidden"]
    w_xr: Float[Array, "paths_in hidden"]
    w_hr: Float[Array, "paths_hidden hidden"]
    w_xh: Float[Array, "paths_in hidden"]
    w_hh: Float[Array, "paths_hidden hidden"]
    bias: Float[Array, "3 hidden"] | None
    operator: Operators = eqx.field(static=True)

    def __init__(
        self, in_size: int, hidden: int, *, operator: Operators = "gcn", use_bias: bool = False, key: PRNGKeyArray
    ):
        keys = jax.random.split(key, 6)
        paths = len(as_paths(operator))
        self.w_xz, self.w_xr, self.w_xh = (glorot(k, (paths * in_size, hidden)) for k in keys[:3])
        self.w_hz, self.w_hr, self.w_hh = (glorot(k, (paths * hidden, hidden)) for k in keys[3:])
        self.bias = jnp.zeros((3, hidden)) if use_bias else None
        self.operator = operator

    def prepare(self, graph: Graph) -> Graph:
        """The graph with the operator this cell needs: pass it to calls in a loop."""
        return prepare_paths(self.operator, graph)

    def __call__(
        self, x: Float[Array, "nodes in"], z: Float[Array, "nodes hidden"], graph: Graph
    ) -> Float[Array, "nodes hidden"]:
        b_h, b_r, b_z = (0, 0, 0) if self.bias is None else self.bias
        # Three products with the graph, one of them narrow, serve all six terms.
        x_paths, z_paths = along_paths(self.operator, x, graph), along_paths(self.operator, z, graph)
        w_x = jnp.concatenate([self.w_xz, self.w_xr], axis=1)
        w_h = jnp.concatenate([self.w_hz, self.w_hr], axis=1)
        h, r = jnp.split(mixed(x_paths, w_x) + mixed(z_paths, w_h), 2, axis=1)
        h, r = sigmoid(h + b_h), sigmoid(r + b_r)
        reset = along_paths(self.operator, r * z, graph)
        candidate = tanh(mixed(x_paths, self.w_xh) + mixed(reset, self.w_hh) + b_z)
        return h * z + (1 - h) * candidate
