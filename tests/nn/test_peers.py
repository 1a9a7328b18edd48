"""The same weights on the same graph give what torch_geometric gives, values and gradients."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import neuralgde as gde
from neuralgde import nn

pytestmark = pytest.mark.peers

NODES, IN, OUT = 12, 3, 4


def make_edges(weighted, loops):
    """Directed edges with one twice, some self loops, and a last node that has no edge."""
    rng = np.random.default_rng(0)
    pairs = [(u, v) for u in range(NODES - 1) for v in range(NODES - 1) if u != v]
    edges = [pairs[i] for i in rng.permutation(len(pairs))[:30]]
    edges += edges[:1] + ([(2, 2), (7, 7)] if loops else [])
    senders, receivers = np.array(edges)[rng.permutation(len(edges))].T
    return senders, receivers, rng.uniform(0.2, 2.0, len(edges)) if weighted else np.ones(len(edges))


def in_torch(senders, receivers, weights):
    import torch

    index = torch.tensor(np.stack([senders, receivers]))
    return index, torch.tensor(weights, dtype=torch.float32)


def numbers(parameter, *shape):
    """A torch parameter as an array; torch keeps matrices as (out, in)."""
    a = parameter.detach().numpy()
    a = a.T if a.ndim == 2 else a
    return jnp.asarray(a.reshape(shape) if shape else a)


# Each pair of functions makes torch's layer, and ours with the weights of torch's.


def gcn():
    from torch_geometric.nn import GCNConv

    return GCNConv(IN, OUT), lambda p: eqx.tree_at(
        lambda m: [m.weight, m.bias], nn.GCN(IN, OUT, key=jax.random.key(0)), [numbers(p.lin.weight), numbers(p.bias)]
    )


def gat(heads):
    from torch_geometric.nn import GATConv

    def ours(p):
        return eqx.tree_at(
            lambda m: [m.weight, m.att_source, m.att_target, m.bias],
            nn.GAT(IN, OUT, heads, key=jax.random.key(0)),
            [
                numbers(p.lin.weight, IN, heads, OUT),
                numbers(p.att_src, heads, OUT),
                numbers(p.att_dst, heads, OUT),
                numbers(p.bias),
            ],
        )

    return GATConv(IN, OUT, heads), ours


def gatv2(heads):
    from torch_geometric.nn import GATv2Conv

    def ours(p):
        return eqx.tree_at(
            lambda m: [m.weight_source, m.weight_target, m.bias_source, m.bias_target, m.att, m.bias],
            nn.GATv2(IN, OUT, heads, key=jax.random.key(0)),
            [
                numbers(p.lin_l.weight, IN, heads, OUT),
                numbers(p.lin_r.weight, IN, heads, OUT),
                numbers(p.lin_l.bias, heads, OUT),
                numbers(p.lin_r.bias, heads, OUT),
                numbers(p.att, heads, OUT),
                numbers(p.bias),
            ],
        )

    return GATv2Conv(IN, OUT, heads), ours


def chebyshev(order):
    from torch_geometric.nn import ChebConv

    return ChebConv(IN, OUT, order), lambda p: eqx.tree_at(
        lambda m: [m.weight, m.bias],
        nn.Chebyshev(IN, OUT, order, key=jax.random.key(0)),
        [jnp.stack([numbers(lin.weight) for lin in p.lins]), numbers(p.bias)],
    )


def sage(out_size):
    from torch_geometric.nn import SAGEConv

    return SAGEConv(IN, out_size), lambda p: eqx.tree_at(
        lambda m: [m.weight_neighbours, m.weight_self, m.bias],
        nn.GraphSAGE(IN, out_size, key=jax.random.key(0)),
        [numbers(p.lin_l.weight), numbers(p.lin_r.weight), numbers(p.lin_l.bias)],
    )


def gin(learn_eps):
    import torch
    from torch_geometric.nn import GINConv

    mlp = torch.nn.Sequential(torch.nn.Linear(IN, 5), torch.nn.ReLU(), torch.nn.Linear(5, OUT))

    def ours(p):
        layer = nn.GIN(IN, OUT, 5, eps=float(p.eps.detach()), learn_eps=learn_eps, key=jax.random.key(0))
        linears = [p.nn[0], p.nn[2]]
        return eqx.tree_at(
            lambda m: [x for linear in m.mlp.mlp.layers for x in (linear.weight, linear.bias)],
            layer,
            [x for linear in linears for x in (numbers(linear.weight).T, numbers(linear.bias))],
        )

    return GINConv(mlp, eps=0.3, train_eps=learn_eps), ours


CASES = {
    "gcn": (gcn, True),
    "gat_1": (lambda: gat(1), False),
    "gat_3": (lambda: gat(3), False),
    "gatv2_1": (lambda: gatv2(1), False),
    "gatv2_3": (lambda: gatv2(3), False),
    "chebyshev_1": (lambda: chebyshev(1), True),
    "chebyshev_4": (lambda: chebyshev(4), True),
    "sage_narrow": (lambda: sage(2), False),
    "sage_wide": (lambda: sage(OUT), False),
    "gin_fixed": (lambda: gin(False), False),
    "gin_learnt": (lambda: gin(True), False),
}


def make_pair(name):
    import torch

    torch.manual_seed(0)
    build, takes_weights = CASES[name]
    theirs, ours = build()
    with torch.no_grad():
        for p in theirs.parameters():
            # No parameter at its initial zero.
            p.add_(0.3 * torch.randn_like(p))
    return theirs, ours(theirs), takes_weights


def states():
    import torch

    z = np.random.default_rng(1).normal(size=(NODES, IN)).astype(np.float32)
    return torch.tensor(z, requires_grad=True), jnp.asarray(z)


@pytest.mark.parametrize("loops", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_layer(name, weighted, loops):
    theirs, ours, takes_weights = make_pair(name)
    edges = make_edges(weighted, loops)
    index, weights = in_torch(*edges)
    graph = gde.Graph.from_edges(*edges, NODES, layout="csr")
    x, z = states()
    want = theirs(x, index, weights) if takes_weights else theirs(x, index)
    np.testing.assert_allclose(ours(z, graph), want.detach().numpy(), rtol=1e-5, atol=1e-5)

    want.sin().sum().backward()
    gradient = jax.grad(lambda z: jnp.sum(jnp.sin(ours(z, graph))))(z)
    np.testing.assert_allclose(gradient, x.grad.numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["gat_1", "gat_3", "gatv2_1", "gatv2_3"])
def test_attention(name):
    theirs, ours, _ = make_pair(name)
    senders, receivers, weights = make_edges(weighted=True, loops=True)
    index, _ = in_torch(senders, receivers, weights)
    x, z = states()
    _, (their_index, alpha) = theirs(x, index, return_attention_weights=True)
    got = ours.attention(z, gde.Graph.from_edges(senders, receivers, weights, NODES))
    loop = senders == receivers
    # They drop the graph's self loops; here those keep their place, with weight 0.
    keep = np.concatenate([~loop, np.ones(NODES, bool)])
    nodes = np.arange(NODES)
    slots = np.stack([np.concatenate([senders, nodes]), np.concatenate([receivers, nodes])])
    np.testing.assert_array_equal(slots[:, keep], their_index.numpy())
    np.testing.assert_allclose(got[keep], alpha.detach().numpy(), rtol=1e-5, atol=1e-6)
    assert np.all(got[~keep] == 0)


@pytest.mark.parametrize("where", ["edge_weight", "edge_attr"])
def test_graph_from_pyg(where):
    from torch_geometric.data import Data

    theirs, ours, _ = make_pair("gcn")
    index, weights = in_torch(*make_edges(weighted=True, loops=True))
    x, z = states()
    data = Data(x=x, edge_index=index, **{where: weights})
    graph = gde.Graph.from_pyg(data)
    assert graph.num_nodes == NODES
    np.testing.assert_allclose(ours(z, graph), theirs(x, index, weights).detach().numpy(), rtol=1e-5, atol=1e-5)


def test_edge_features_from_pyg():
    import torch
    from torch_geometric.data import Data

    index, weights = in_torch(*make_edges(weighted=True, loops=True))
    features = torch.randn(index.shape[1], 2)
    graph = gde.Graph.from_pyg(Data(edge_index=index, edge_weight=weights, edge_attr=features, num_nodes=NODES))
    np.testing.assert_array_equal(graph.senders, index[0])
    np.testing.assert_array_equal(graph.receivers, index[1])
    np.testing.assert_allclose(graph.weights, weights)
    np.testing.assert_allclose(graph.edge_features, features)
