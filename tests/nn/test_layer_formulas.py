"""Layers against their formulas, written again in NumPy. a[v, u] is the weight of u -> v."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from layers import IN, NODES, RECEIVERS, SENDERS, WEIGHTS, call, close, edge_features, in_numpy, make_graph, make_layer
from neuralgde import nn


def adjacency():
    a = np.zeros((NODES, NODES))
    a[RECEIVERS, SENDERS] = WEIGHTS
    return a


def gcn_operator():
    a = adjacency()
    a[np.diag(a) == 0] += np.eye(NODES)[np.diag(a) == 0]
    scale = a.sum(1) ** -0.5
    return scale[:, None] * a * scale


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def layer_and_result(name, layout="csr"):
    """In NumPy: what the layer makes of the state, and both."""
    layer, z = make_layer(name)
    return in_numpy((call(layer, z, make_graph(layout)), layer, z))


def test_gcn_formula(x64):
    got, layer, z = layer_and_result("gcn")
    close(got, gcn_operator() @ z @ layer.weight + layer.bias, 1e-12)


@pytest.mark.parametrize("layout", ["csr", "pairs"])
@pytest.mark.parametrize("name", ["gat_heads", "gatv2"])
def test_attention_formula(name, layout, x64):
    got, layer, z = layer_and_result(name, layout)
    neighbours = (adjacency() != 0) | np.eye(NODES, dtype=bool)

    def leaky(x):
        return np.where(x > 0, x, 0.2 * x)

    if name == "gatv2":
        source = np.einsum("ni,iko->nko", z, layer.weight_source) + layer.bias_source
        target = np.einsum("ni,iko->nko", z, layer.weight_target) + layer.bias_target
        logits = np.einsum("vuko,ko->vuk", leaky(target[:, None] + source[None]), layer.att)
    else:
        source = np.einsum("ni,iko->nko", z, layer.weight)
        logits = leaky((source * layer.att_target).sum(-1)[:, None] + (source * layer.att_source).sum(-1)[None])
    alpha = np.where(neighbours[..., None], np.exp(logits), 0)
    alpha /= alpha.sum(1, keepdims=True)
    out = np.einsum("vuk,ukc->vkc", alpha, source).reshape(NODES, -1) + layer.bias
    close(got, out, 1e-12)

    graph = make_graph(layout)
    weights = np.asarray(jax.jit(lambda layer, z: layer.attention(z, graph))(*make_layer(name)))
    assert weights.shape == (graph.num_edges + NODES, alpha.shape[-1])
    loops = np.arange(NODES)
    takes_part = np.asarray(graph.edge_mask & ~graph.is_self_loop)[:, None]
    close(weights[-NODES:], alpha[loops, loops], 1e-12)
    close(weights[:-NODES], np.where(takes_part, alpha[graph.receivers, graph.senders], 0), 1e-12)
    assert np.all(weights[:-NODES][~takes_part[:, 0]] == 0)


def test_attention_survives_large_logits():
    layer, z = make_layer("gat")
    weights = np.asarray(jax.jit(lambda layer, z: layer.attention(1e4 * z, make_graph()))(layer, z))
    assert np.all(np.isfinite(weights))
    total = np.bincount(RECEIVERS, weights[:-NODES, 0], NODES) + weights[-NODES:, 0]
    close(total, np.ones(NODES), 1e-6)


def test_chebyshev_formula(x64):
    got, layer, z = layer_and_result("chebyshev")
    a = adjacency() * (1 - np.eye(NODES))
    degree = a.sum(0)
    scale = np.where(degree > 0, np.where(degree > 0, degree, 1) ** -0.5, 0)
    scaled = -scale[:, None] * a * scale
    t = [np.eye(NODES), scaled]
    t += [2 * scaled @ t[1] - t[0]]
    t += [2 * scaled @ t[2] - t[1]]
    want = sum(p @ z @ w for p, w in zip(t, layer.weight, strict=True)) + layer.bias
    close(got, want, 1e-12)


@pytest.mark.parametrize("layout", ["csr", "pairs"])
def test_diffusion_formula(layout, x64):
    got, layer, z = layer_and_result("diffusion", layout)

    def walk(a):
        total = a.sum(1, keepdims=True)
        return a / np.where(total > 0, total, 1)

    forward, backward = walk(adjacency()), walk(adjacency().T)
    want = layer.bias
    for k in range(3):
        for d, p in enumerate([forward, backward]):
            want = want + np.linalg.matrix_power(p, k) @ z @ layer.weight[d, k]
    close(got, want, 1e-12)


@pytest.mark.parametrize("name", ["sage_narrow", "sage_wide"])
def test_sage_formula(name, x64):
    got, layer, z = layer_and_result(name)
    edges = (adjacency() != 0).astype(float)
    mean = edges / np.maximum(edges.sum(1, keepdims=True), 1)
    close(got, mean @ z @ layer.weight_neighbours + z @ layer.weight_self + layer.bias, 1e-12)


@pytest.mark.parametrize("learn_eps", [False, True])
def test_gin_formula(learn_eps, x64):
    _, z = make_layer("gin")
    layer = eqx.filter_jit(nn.GIN)(IN, 4, 5, eps=0.3, learn_eps=learn_eps, key=jax.random.key(0))
    total = (1 + 0.3) * z + (adjacency() != 0).astype(float) @ z
    close(call(layer, z, make_graph()), call(layer.mlp, total), 1e-12)
    gradient = eqx.filter_jit(eqx.filter_grad(lambda layer: jnp.sum(layer(z, make_graph()))))(layer)
    assert (gradient.eps is not None) is learn_eps


@pytest.mark.parametrize("use_bias", [False, True])
@pytest.mark.parametrize("layout", ["csr", "pairs"])
def test_gcgru_formula(layout, use_bias, x64):
    cell = eqx.filter_jit(nn.GCGRU)(2, IN, use_bias=use_bias, key=jax.random.key(0))
    assert (cell.bias is not None) is use_bias
    bias = np.zeros((3, IN))
    if use_bias:
        bias = np.arange(9.0).reshape(3, IN) / 9
        cell = eqx.tree_at(lambda c: c.bias, cell, jnp.asarray(bias))
    rng = np.random.default_rng(1)
    x, z = rng.standard_normal((NODES, 2)), rng.standard_normal((NODES, IN))
    got, cell = in_numpy((call(cell, jnp.asarray(x), jnp.asarray(z), make_graph(layout)), cell))
    L = gcn_operator()
    H = sigmoid(L @ x @ cell.w_xz + L @ z @ cell.w_hz + bias[0])
    R = sigmoid(L @ x @ cell.w_xr + L @ z @ cell.w_hr + bias[1])
    candidate = np.tanh(L @ x @ cell.w_xh + L @ (R * z) @ cell.w_hh + bias[2])
    close(got, H * z + (1 - H) * candidate, 1e-12)


def test_message_passing_formula():
    layer, z = make_layer("message_passing")
    z = np.asarray(z)
    features = edge_features(len(SENDERS)).astype(np.float32)
    sums = np.zeros((NODES, 4), np.float32)
    for u, v, e in zip(SENDERS, RECEIVERS, features, strict=True):
        sums[v] += call(layer.message, z[v], z[u], e)
    want = np.stack([call(layer.update, z[v], sums[v]) for v in range(NODES)])
    close(call(layer, jnp.asarray(z), make_graph()), want, 1e-5)
