"""One of each graph layer, on a small graph with every kind of edge, for the tests of layers."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import neuralgde as gde
from neuralgde import nn

IN = 3
# Directed and weighted, with a self loop (2), opposite edges (0, 3), a source (4), a sink (1) and an isolated node (5).
SENDERS = np.array([0, 3, 2, 2, 0, 4, 4])
RECEIVERS = np.array([3, 0, 2, 1, 1, 2, 0])
WEIGHTS = np.array([0.5, 2.0, 1.5, 0.7, 1.0, 3.0, 0.2])
NODES = 6


def message_passing(key):
    k_message, k_update = jax.random.split(key)
    message = eqx.nn.MLP(2 * IN + 2, 4, 5, 1, activation=jnp.tanh, key=k_message)
    update = eqx.nn.MLP(IN + 4, 2, 5, 1, activation=jnp.tanh, key=k_update)
    return nn.MessagePassing(_Concatenated(message), _Concatenated(update))


class _Concatenated(eqx.Module):
    f: eqx.nn.MLP

    def __call__(self, *vectors):
        return self.f(jnp.concatenate(vectors))


class _CellOnState(eqx.Module):
    """A cell as a layer: its input is made from the state."""

    cell: eqx.Module

    def prepare(self, graph):
        return self.cell.prepare(graph)

    def __call__(self, z, graph):
        return self.cell(jnp.sin(z), z, graph)


LAYERS = {
    "gcn": lambda key: nn.GCN(IN, 4, key=key),
    "gat": lambda key: nn.GAT(IN, 4, key=key),
    "gat_heads": lambda key: nn.GAT(IN, 2, heads=3, key=key),
    "gatv2": lambda key: nn.GATv2(IN, 2, heads=2, key=key),
    "chebyshev": lambda key: nn.Chebyshev(IN, 4, 4, key=key),
    "diffusion": lambda key: nn.Diffusion(IN, 4, 3, key=key),
    "sage_narrow": lambda key: nn.GraphSAGE(IN, 2, key=key),
    "sage_wide": lambda key: nn.GraphSAGE(IN, 4, key=key),
    "gin": lambda key: nn.GIN(IN, 4, 5, eps=0.3, learn_eps=True, key=key),
    "message_passing": message_passing,
    "gcgru": lambda key: _CellOnState(nn.GCGRU(IN, IN, use_bias=True, key=key)),
    "gru": lambda key: _CellOnState(nn.GRU(IN, IN, key=key)),
    "mlp": lambda key: nn.NodeMLP(IN, 4, 5, 2, key=key),
}


def edge_features(n):
    return np.random.default_rng(1).normal(size=(n, 2))


def make_graph(layout="csr", edges=slice(None)):
    features = edge_features(len(SENDERS))
    return gde.Graph.from_edges(SENDERS[edges], RECEIVERS[edges], WEIGHTS[edges], NODES, features[edges], layout=layout)


def make_layer(name):
    """The layer with no parameter at its initial zero, and a state."""
    layer = eqx.filter_jit(LAYERS[name])(jax.random.key(1))
    rng = np.random.default_rng(2)
    params, static = eqx.partition(layer, eqx.is_inexact_array)
    moved = jax.tree.map(lambda p: (p + 0.3 * rng.standard_normal(p.shape)).astype(p.dtype), in_numpy(params))
    return eqx.combine(jax.device_put(moved), static), jax.device_put(rng.standard_normal((NODES, IN)))


@eqx.filter_jit
def call(layer, *args):
    """In one program, where by itself every operation of the layer would be one."""
    return layer(*args)


def in_numpy(tree):
    """The same, with NumPy's arrays for formulas: in JAX each of their operations would be compiled."""
    return jax.tree.map(lambda a: np.asarray(a) if eqx.is_array(a) else a, tree)


def close(got, want, tolerance, name=""):
    np.testing.assert_allclose(got, want, rtol=0, atol=tolerance, err_msg=name)
