"""What every layer keeps to: order of nodes and edges, layouts, padding, masks, gradients; and formulas in numpy.

What all keep to is evaluated for all of them by one program: compiling one for each took most of the time.
"""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

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
every_layer = pytest.mark.parametrize("name", LAYERS)


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
    params = jax.tree.map(lambda p: p + jnp.asarray(0.3 * rng.standard_normal(p.shape), p.dtype), params)
    return eqx.combine(params, static), jnp.asarray(rng.standard_normal((NODES, IN)), float)


@functools.cache
def _layers(double):
    del double
    return tuple(zip(*(make_layer(name) for name in LAYERS), strict=True))


def make_layers():
    """All layers, and a state for each, by name, in the precision that is on."""
    layers, states = _layers(jax.config.read("jax_enable_x64"))
    return dict(zip(LAYERS, layers, strict=True)), dict(zip(LAYERS, states, strict=True))


@eqx.filter_jit
def apply(layers, states, graph):
    """Of every layer, with its state."""
    return {name: layer(states[name], graph) for name, layer in layers.items()}


def on_each(f, by_name):
    return {name: f(x) for name, x in by_name.items()}


def close(got, want, tolerance, name=""):
    np.testing.assert_allclose(got, want, rtol=0, atol=tolerance, err_msg=name)


def all_close(got, want, tolerance):
    for name in LAYERS:
        close(got[name], want[name], tolerance, name)


@eqx.filter_jit
def gradients(layers, states, graph, present):
    """With respect to the parameters and the state, of every layer."""

    def loss(both):
        out = apply(*both, graph)
        return sum(jnp.sum(jnp.where(present[:, None], jnp.sin(x), 0)) for x in out.values())

    return eqx.filter_grad(loss)((layers, states))


def same_gradients(got, want):
    for name in LAYERS:
        of_layer = ([by_name[name] for by_name in both] for both in (got, want))
        jax.tree.map(lambda a, b, name=name: close(a, b, 1e-5, name), *of_layer)


def test_permuted_nodes_permute_outputs():
    layers, states = make_layers()
    order = np.array([3, 5, 0, 2, 1, 4])
    shuffle = np.array([6, 2, 0, 5, 3, 1, 4])
    permuted, moved = make_graph(edges=shuffle).permute(order), on_each(lambda z: z[order], states)
    all_close(
        apply(layers, moved, permuted), on_each(lambda out: out[order], apply(layers, states, make_graph())), 1e-5
    )

    attention = eqx.filter_jit(
        lambda states, graph: {k: f.attention(states[k], graph) for k, f in layers.items() if hasattr(f, "attention")}
    )
    weights, after = attention(states, make_graph()), attention(moved, permuted)
    assert len(weights) == 3
    for name, found in weights.items():
        edges, loops = found[: len(SENDERS)], found[len(SENDERS) :]
        close(after[name], jnp.concatenate([edges[shuffle], loops[order]]), 1e-5, name)


def test_layouts_agree(x64):
    layers, states = make_layers()
    outs = {layout: apply(layers, states, make_graph(layout)) for layout in ("csr", "dense", "pairs")}
    all_close(outs["csr"], outs["dense"], 1e-10)
    all_close(outs["csr"], outs["pairs"], 1e-10)


@pytest.mark.parametrize("layout", ["csr", "dense", "pairs"])
def test_padding_changes_nothing(layout):
    layers, states = make_layers()
    graph = make_graph(layout)
    padded = graph.pad(NODES + 2) if layout == "pairs" else graph.pad(NODES + 2, len(SENDERS) + 3)
    out = apply(layers, on_each(lambda z: jnp.concatenate([z, jnp.full((2, IN), 7.0)]), states), padded)
    assert all(np.all(np.isfinite(x)) for x in out.values())
    all_close(on_each(lambda x: x[:NODES], out), apply(layers, states, graph), 1e-6)


@pytest.mark.parametrize("layout", ["csr", "pairs"])
def test_absent_node_is_as_if_removed(layout):
    layers, states = make_layers()
    absent = 2
    present = np.arange(NODES) != absent
    masked = make_graph(layout).with_node_mask(jnp.asarray(present))
    without = make_graph(layout, (absent != SENDERS) & (absent != RECEIVERS))
    elsewhere = on_each(lambda z: z.at[absent].set(50.0), states)
    out = apply(layers, elsewhere, masked)
    assert all(np.all(np.isfinite(x)) for x in out.values())
    alone = apply(layers, states, without)
    all_close(on_each(lambda x: x[present], out), on_each(lambda x: x[present], alone), 1e-5)
    same_gradients(gradients(layers, elsewhere, masked, present), gradients(layers, states, without, present))


@pytest.mark.parametrize("layout", ["csr", "pairs"])
def test_node_without_edges_is_alone(layout):
    layers, states = make_layers()
    nothing = np.zeros(len(SENDERS), bool)
    alone = gde.Graph.from_edges(SENDERS[nothing], SENDERS[nothing], None, 1, edge_features(0), layout=layout)
    rows = [apply(layers, on_each(lambda z, i=i: z[i : i + 1], states), alone) for i in range(NODES)]
    want = {name: jnp.concatenate([row[name] for row in rows]) for name in LAYERS}
    all_close(apply(layers, states, make_graph(layout, nothing)), want, 1e-6)
    lonely = apply(layers, states, make_graph(layout))
    all_close(on_each(lambda x: x[5], lonely), on_each(lambda x: x[5], want), 1e-6)


@every_layer
def test_prepared_graph_gives_the_same(name):
    layer, z = make_layer(name)
    graph = make_graph()
    prepared = layer.prepare(graph)
    assert layer.prepare(prepared) is prepared
    # Bare, as it may be called: operation by operation, the bits are the same.
    close(layer(z, prepared), layer(z, graph), 0)
    # An operator that a layer relies on must be the one that is carried, not made again.
    zeroed = eqx.tree_at(lambda g: g.prepared, prepared, jax.tree.map(jnp.zeros_like, prepared.prepared))
    needs_operator = name in ("gcn", "chebyshev", "diffusion", "sage_narrow", "sage_wide", "gin", "gcgru")
    assert np.allclose(layer(z, zeroed), layer(z, graph)) is not needs_operator


def test_weighted_and_unweighted_operators_live_side_by_side():
    _, z = make_layer("gcn")
    graph = make_graph()
    both = nn.GraphSAGE(IN, 2, key=jax.random.key(0)).prepare(graph.prepare("random_walk"))
    close(both.operator("random_walk") @ z, graph.operator("random_walk") @ z, 0)
    assert not jnp.allclose(both.prepared["unweighted_random_walk"] @ z, graph.operator("random_walk") @ z)


def test_batch_equals_loop():
    layers, states = make_layers()
    graph = make_graph()
    batches = on_each(lambda z: jnp.stack([z, z + 1]), states)
    weights = jnp.stack([graph.weights, 2 * graph.weights[::-1]])
    one_graph = jax.vmap(lambda z: apply(layers, z, graph))(batches)
    own_graph = jax.vmap(lambda z, w: apply(layers, z, graph.with_weights(w)))(batches, weights)
    for b in range(2):
        one = on_each(lambda z, b=b: z[b], batches)
        all_close(on_each(lambda x, b=b: x[b], one_graph), apply(layers, one, graph), 1e-5)
        own = apply(layers, one, graph.with_weights(weights[b]))
        all_close(on_each(lambda x, b=b: x[b], own_graph), own, 1e-5)


@pytest.mark.parametrize("layout", ["csr", "pairs"])
def test_masked_edges_leave_gradients_alone(layout):
    layers, states = make_layers()
    off = (SENDERS == 0) & (RECEIVERS == 1)
    graph = make_graph(layout)
    graph = graph.with_edge_mask(graph.edge_mask & ~((graph.senders == 0) & (graph.receivers == 1)))
    spoilt = [jnp.where(graph.edge_mask, graph.weights, jnp.nan)]
    spoilt += [jnp.where(graph.edge_mask[:, None], graph.edge_features, jnp.nan)]
    graph = eqx.tree_at(lambda g: [g.weights, g.edge_features], graph, spoilt)
    every = np.ones(NODES, bool)
    same_gradients(gradients(layers, states, graph, every), gradients(layers, states, make_graph(layout, ~off), every))


@pytest.mark.parametrize("name", ["gcn", "gat_heads", "gatv2", "message_passing", "gcgru", "gin", "diffusion"])
def test_gradients_against_finite_differences(name, x64):
    layer, z = make_layer(name)
    graph = make_graph()
    params, static = eqx.partition(layer, eqx.is_inexact_array)

    def f(params, z, weights, features):
        g = eqx.tree_at(lambda g: g.edge_features, graph.with_weights(weights), features)
        return eqx.combine(params, static)(z, g)

    check_grads(eqx.filter_jit(f), (params, z, graph.weights, graph.edge_features), order=1, atol=1e-6, rtol=1e-6)


def test_float32_state_on_a_float64_graph(x64):
    layers, states = make_layers()
    params, static = eqx.partition((layers, states), eqx.is_inexact_array)
    single = eqx.combine(jax.tree.map(lambda p: p.astype(jnp.float32), params), static)
    out = apply(*single, make_graph())
    assert all(x.dtype == jnp.float32 for x in out.values())
    all_close(out, apply(layers, states, make_graph()), 1e-5)


def test_singular_message_of_a_node_with_itself():
    """In the pairs layout a node has a slot with itself, where this message is infinite."""

    def force(scale, z, graph):
        def message(z_v, z_u):
            difference = scale * (z_v - z_u)
            return difference / jnp.linalg.norm(difference)

        return nn.MessagePassing(message, lambda z_v, m_v: m_v)(z, graph)

    _, z = make_layer("gcn")
    features_off = eqx.tree_at(lambda g: g.edge_features, make_graph("pairs"), None, is_leaf=lambda x: x is None)
    no_loop = features_off.with_edge_mask(features_off.edge_mask & ~features_off.is_self_loop)
    value, gradient = jax.value_and_grad(lambda s: jnp.sum(jnp.sin(force(s, z, no_loop))))(jnp.full(IN, 0.7))
    assert jnp.isfinite(value) and jnp.all(jnp.isfinite(gradient))
    assert jnp.any(gradient != 0)


def test_message_passing_formula():
    layer, z = make_layer("message_passing")
    features = edge_features(len(SENDERS)).astype(np.float32)
    sums = np.zeros((NODES, 4), np.float32)
    for u, v, e in zip(SENDERS, RECEIVERS, features, strict=True):
        sums[v] += layer.message(z[v], z[u], jnp.asarray(e))
    want = np.stack([layer.update(z[v], jnp.asarray(sums[v])) for v in range(NODES)])
    close(layer(z, make_graph()), want, 1e-5)


# Formulas, written again in numpy. a[v, u] is the weight of u -> v.


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


def test_gcn_formula(x64):
    layer, z = make_layer("gcn")
    close(layer(z, make_graph()), gcn_operator() @ z @ layer.weight + layer.bias, 1e-12)


@pytest.mark.parametrize("layout", ["csr", "pairs"])
@pytest.mark.parametrize("name", ["gat_heads", "gatv2"])
def test_attention_formula(name, layout, x64):
    layer, z = make_layer(name)
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
    graph = make_graph(layout)
    close(layer(z, graph), out, 1e-12)

    weights = layer.attention(z, graph)
    assert weights.shape == (graph.num_edges + NODES, alpha.shape[-1])
    loops = np.arange(NODES)
    takes_part = np.asarray(graph.edge_mask & ~graph.is_self_loop)[:, None]
    close(weights[-NODES:], alpha[loops, loops], 1e-12)
    close(weights[:-NODES], np.where(takes_part, alpha[graph.receivers, graph.senders], 0), 1e-12)
    assert np.all(np.asarray(weights[:-NODES])[~takes_part[:, 0]] == 0)


def test_attention_survives_large_logits():
    layer, z = make_layer("gat")
    weights = layer.attention(1e4 * z, make_graph())
    assert jnp.all(jnp.isfinite(weights))
    total = jnp.zeros(NODES).at[jnp.asarray(RECEIVERS)].add(weights[:-NODES, 0]) + weights[-NODES:, 0]
    close(total, jnp.ones(NODES), 1e-6)


def test_chebyshev_formula(x64):
    layer, z = make_layer("chebyshev")
    a = adjacency() * (1 - np.eye(NODES))
    degree = a.sum(0)
    scale = np.where(degree > 0, np.where(degree > 0, degree, 1) ** -0.5, 0)
    scaled = -scale[:, None] * a * scale
    t = [np.eye(NODES), scaled]
    t += [2 * scaled @ t[1] - t[0]]
    t += [2 * scaled @ t[2] - t[1]]
    want = sum(p @ z @ w for p, w in zip(t, layer.weight, strict=True)) + layer.bias
    close(layer(z, make_graph()), want, 1e-12)


@pytest.mark.parametrize("layout", ["csr", "pairs"])
def test_diffusion_formula(layout, x64):
    layer, z = make_layer("diffusion")

    def walk(a):
        total = a.sum(1, keepdims=True)
        return a / np.where(total > 0, total, 1)

    forward, backward = walk(adjacency()), walk(adjacency().T)
    want = layer.bias
    for k in range(3):
        for d, p in enumerate([forward, backward]):
            want = want + np.linalg.matrix_power(p, k) @ z @ layer.weight[d, k]
    close(layer(z, make_graph(layout)), want, 1e-12)


@pytest.mark.parametrize("name", ["sage_narrow", "sage_wide"])
def test_sage_formula(name, x64):
    layer, z = make_layer(name)
    edges = (adjacency() != 0).astype(float)
    mean = edges / np.maximum(edges.sum(1, keepdims=True), 1)
    close(layer(z, make_graph()), mean @ z @ layer.weight_neighbours + z @ layer.weight_self + layer.bias, 1e-12)


@pytest.mark.parametrize("learn_eps", [False, True])
def test_gin_formula(learn_eps, x64):
    _, z = make_layer("gin")
    layer = nn.GIN(IN, 4, 5, eps=0.3, learn_eps=learn_eps, key=jax.random.key(0))
    total = (1 + 0.3) * z + (adjacency() != 0).astype(float) @ z
    close(layer(z, make_graph()), layer.mlp(total), 1e-12)
    gradient = eqx.filter_grad(lambda layer: jnp.sum(layer(z, make_graph())))(layer)
    assert (gradient.eps is not None) is learn_eps


@pytest.mark.parametrize("use_bias", [False, True])
@pytest.mark.parametrize("layout", ["csr", "pairs"])
def test_gcgru_formula(layout, use_bias, x64):
    cell = nn.GCGRU(2, IN, use_bias=use_bias, key=jax.random.key(0))
    assert (cell.bias is not None) is use_bias
    bias = np.zeros((3, IN))
    if use_bias:
        bias = np.arange(9.0).reshape(3, IN) / 9
        cell = eqx.tree_at(lambda c: c.bias, cell, jnp.asarray(bias))
    x, z = jax.random.normal(jax.random.key(1), (NODES, 2)), jax.random.normal(jax.random.key(2), (NODES, IN))
    L = gcn_operator()
    H = sigmoid(L @ x @ cell.w_xz + L @ z @ cell.w_hz + bias[0])
    R = sigmoid(L @ x @ cell.w_xr + L @ z @ cell.w_hr + bias[1])
    candidate = np.tanh(L @ x @ cell.w_xh + L @ (R * z) @ cell.w_hh + bias[2])
    close(cell(x, z, make_graph(layout)), H * z + (1 - H) * candidate, 1e-12)


def test_cells_without_a_graph():
    cell = nn.GRU(2, IN, key=jax.random.key(0))
    x, z = jnp.ones((NODES, 2)), jnp.arange(NODES * IN, dtype=jnp.float32).reshape(NODES, IN) / 10
    close(cell(x, z), np.stack([cell.cell(a, b) for a, b in zip(x, z, strict=True)]), 1e-6)
    mlp = nn.NodeMLP(IN, 4, 5, 2, key=jax.random.key(0))
    close(mlp(z), np.stack([mlp.mlp(row) for row in z]), 1e-6)


@pytest.mark.parametrize(("kernel_size", "dilations"), [(3, (1, 2, 4)), (2, (1,)), (1, (1, 1)), (2, (3, 1))])
def test_tcn_sees_its_past_and_nothing_else(kernel_size, dilations):
    tcn = nn.TCN(2, 8, 3, kernel_size, dilations, key=jax.random.key(0))
    times = 40
    x = jax.random.normal(jax.random.key(1), (times, 2))
    out = tcn(x)
    assert out.shape == (times, 3)
    # The series before the last row gives the same rows: nothing leaks from the future or from the length.
    close(tcn(x[:25]), out[:25], 1e-5)
    sees = jnp.any(jax.jacobian(lambda x: tcn(x)[30])(x) != 0, axis=(0, 2))
    reach = 2 * (kernel_size - 1) * sum(dilations)
    assert not jnp.any(sees[31:]) and not jnp.any(sees[: 30 - reach])
    assert sees[30] and sees[30 - reach]


def test_tcn_block_formula():
    """One block of kernel 2 and dilation 2, written as sums over the past."""
    tcn = nn.TCN(2, 4, 3, 2, (2,), key=jax.random.key(0))
    x = np.asarray(jax.random.normal(jax.random.key(1), (7, 2)))
    (block,) = tcn.blocks

    def convolve(conv, x):
        late = np.concatenate([np.zeros((2, x.shape[1])), x])[:-2]
        return late @ conv.weight[:, :, 0].T + x @ conv.weight[:, :, 1].T + conv.bias[:, 0]

    h = np.maximum(convolve(block.second, np.maximum(convolve(block.first, x), 0)), 0)
    h = np.maximum(h + x @ block.skip.weight[:, :, 0].T + block.skip.bias[:, 0], 0)
    close(tcn(jnp.asarray(x)), h @ tcn.readout.weight.T + tcn.readout.bias, 1e-5)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda key: nn.Chebyshev(2, 2, 0, key=key), "order: expected .* got 0"),
        (lambda key: nn.Diffusion(2, 2, 0, key=key), "steps: expected .* got 0"),
        (lambda key: nn.TCN(2, 2, 2, 0, key=key), "kernel_size and dilations: expected .* got 0"),
        (lambda key: nn.TCN(2, 2, 2, 2, (1, 0), key=key), r"kernel_size and dilations: expected .* \(1, 0\)"),
    ],
)
def test_refused(build, message):
    with pytest.raises(gde.InputError, match=message):
        build(jax.random.key(0))
