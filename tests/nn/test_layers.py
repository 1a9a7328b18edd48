"""What every layer keeps to: order of nodes and edges, layouts, padding, masks, gradients.

It is evaluated for all of them by one program: compiling one for each took most of the time.
"""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

import neuralgde as gde
from layers import IN, LAYERS, NODES, RECEIVERS, SENDERS, close, edge_features, make_graph, make_layer
from neuralgde import nn

every_layer = pytest.mark.parametrize("name", LAYERS)


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
    single = eqx.combine(jax.tree.map(lambda p: jax.device_put(np.asarray(p, np.float32)), params), static)
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
    run = jax.jit(jax.value_and_grad(lambda s: jnp.sum(jnp.sin(force(s, z, no_loop)))))
    value, gradient = run(np.full(IN, 0.7, np.float32))
    assert np.isfinite(value) and np.all(np.isfinite(gradient)) and np.any(gradient)


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
