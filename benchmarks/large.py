"""A large sparse graph: one product and its gradient, and a GCDE of two layers with rk4, forward and backward."""

from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ._harness import Bar, Contender, Job, Least, Report, Work, compare
from ._problems import layers, least_of_gcde

STEPS = 4


class Size(NamedTuple):
    nodes: int
    edges: int
    features: int


def size(quick: bool) -> Size:
    return Size(1_000, 10_000, 8) if quick else Size(100_000, 1_000_000, 64)


def edges(size: Size) -> tuple[np.ndarray, np.ndarray]:
    """Random senders and receivers, no self loops, no pair twice."""
    rng = np.random.default_rng(0)
    pairs = rng.integers(0, size.nodes, (2 * size.edges, 2), dtype=np.int64)
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    keep = np.sort(np.unique(pairs[:, 0] * size.nodes + pairs[:, 1], return_index=True)[1])[: size.edges]
    return pairs[keep, 0], pairs[keep, 1]


def state(size: Size) -> np.ndarray:
    return np.random.default_rng(1).standard_normal((size.nodes, size.features)).astype(np.float32)


def normalised_edges(size: Size) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The entries of D^-1/2 (A + I) D^-1/2 by in-degrees as edges: senders, receivers, weights."""
    senders, receivers = edges(size)
    scale = (np.bincount(receivers, minlength=size.nodes) + 1.0) ** -0.5
    loops = np.arange(size.nodes)
    senders, receivers = np.append(senders, loops), np.append(receivers, loops)
    return senders, receivers, (scale[senders] * scale[receivers]).astype(np.float32)


# One product and its gradient


def our_product(size: Size) -> Job:
    import jax
    import jax.numpy as jnp

    import neuralgde as gde

    op = gde.Graph.from_edges(*edges(size), num_nodes=size.nodes).operator("gcn")
    return _product_job(lambda op, z: op @ z, op, jnp.asarray(state(size)), jax)


def segment_sum(size: Size) -> Job:
    import jax
    import jax.numpy as jnp

    given = tuple(jnp.asarray(x) for x in normalised_edges(size))

    def product(given, z):
        senders, receivers, weights = given
        return jax.ops.segment_sum(weights[:, None] * z[senders], receivers, num_segments=size.nodes)

    return _product_job(product, given, jnp.asarray(state(size)), jax)


def _product_job(product, given, z, jax) -> Job:
    jnp = jax.numpy

    # A weight for each output keeps the product's value out of its own gradient.
    @jax.jit
    def step(given, z, weight):
        out, pull = jax.vjp(lambda z: product(given, z), z)
        return out, pull(weight)[0]

    weight = jnp.cos(z)

    def run():
        out, grad = jax.block_until_ready(step(given, z, weight))
        return [out], [grad]

    return Job(run)


def torch_product(size: Size) -> Job:
    import torch

    z = torch.tensor(state(size))
    weight = torch.cos(z)
    multiply = _csr(size)

    def run():
        x = z.requires_grad_()
        out = multiply(x)
        return [out], list(torch.autograd.grad(out, x, weight))

    return Job(run)


# GCDE


def our_gcde(size: Size) -> Job:
    import equinox as eqx
    import jax
    import jax.numpy as jnp

    import neuralgde as gde

    from ._ours import gcde, in_order

    graph = gde.Graph.from_edges(*edges(size), num_nodes=size.nodes).prepare("gcn")
    field, z0 = gcde(layers((size.features,) * 3)), jnp.asarray(state(size))

    @eqx.filter_jit
    def step(field, z0, graph):
        def loss(field_and_state):
            field, z0 = field_and_state
            sol = gde.solve(
                field, z0, [0.0, 1.0], graph, solver="rk4", dt0=1 / STEPS, adjoint="direct", throw=False
            )  # fmt: skip
            return jnp.mean(sol.states[-1] ** 2), sol.states[-1]

        (_, states), grads = eqx.filter_value_and_grad(loss, has_aux=True)((field, z0))
        return states, grads

    def run():
        states, (by_field, by_state) = jax.block_until_ready(step(field, z0, graph))
        return [states], [by_state, *in_order(by_field)]

    return Job(run, lambda: {"steps": STEPS, "evaluations": 4 * STEPS})


def _csr(size: Size):
    import scipy.sparse as sp

    from ._torch import csr_product

    senders, receivers, weights = normalised_edges(size)
    a = sp.csr_matrix((weights, (receivers, senders)), shape=(size.nodes, size.nodes))
    return csr_product(a.indptr, a.indices, a.data, size.nodes)


def _rk4(size: Size, field) -> Job:
    import torch
    from torchdiffeq import odeint

    from ._torch import counted, differentiate

    times, step = torch.tensor([0.0, 1.0]), {"step_size": 1 / STEPS}

    def forward(z):
        return odeint(field, z, times, method="rk4", options=step)[-1]

    run = differentiate(field, state(size), forward)
    return Job(run, counted(field, 0, 4))


def torch_csr(size: Size) -> Job:
    from ._torch import GCDE

    return _rk4(size, GCDE(layers((size.features,) * 3), _csr(size)))


def pyg_edge_list(size: Size) -> Job:
    """torch_geometric's GCNConv on the edge list, with the weights normalised once."""
    import torch
    from torch_geometric.nn import GCNConv

    senders, receivers, weights = normalised_edges(size)
    index, weight = torch.tensor(np.stack([senders, receivers])), torch.tensor(weights)
    given = layers((size.features,) * 3)

    class Field(torch.nn.Module):
        calls = 0

        def __init__(self):
            super().__init__()
            self.convolutions = torch.nn.ModuleList([GCNConv(*w.shape, normalize=False) for w in given.weights])
            for conv, w, b in zip(self.convolutions, given.weights, given.biases, strict=True):
                conv.lin.weight.data = torch.tensor(w).T.contiguous()
                conv.bias.data = torch.tensor(b)

        def forward(self, t, z):
            self.calls += 1
            first, second = self.convolutions
            return second(torch.tanh(first(z, index, weight)), index, weight)

        def in_order(self):
            return [x for conv in self.convolutions for x in (conv.lin.weight, conv.bias)]

    job = _rk4(size, Field())

    def run():
        # Its weights are (out, in).
        values, (by_state, *by_field) = job.run()
        return values, [by_state, *(g.T if g.ndim == 2 else g for g in by_field)]

    return Job(run, job.stats)


def works(quick: bool) -> list[Work]:
    s = size(quick)
    entries = s.edges + s.nodes
    # An index and a value for each entry, and where rows start.
    matrix_bytes = 8 * entries + 4 * (s.nodes + 1)
    block = 4 * s.nodes * s.features

    def least_product(stats: dict[str, int]) -> Least:
        return Least(4 * entries * s.features, 2 * (matrix_bytes + 2 * block))

    def least_gcde(stats: dict[str, int]) -> Least:
        return least_of_gcde(
            s.nodes, entries, (s.features,) * 3, stats["evaluations"], matrix_bytes=matrix_bytes, in_cache=False
        )

    where = f"{s.nodes:,} nodes, {s.edges:,} edges"
    return [
        Work(
            f"product and gradient, {where}",
            (
                Contender("neuralgde", "ours", partial(our_product, s)),
                Contender("jax segment_sum", "jax", partial(segment_sum, s)),
                Contender("torch CSR, transpose stored", "torch", partial(torch_product, s)),
            ),
            (Bar(3, ("jax segment_sum",)), Bar(None)),
            least_product,
            value_tolerance=1e-5,
            gradient_tolerance=1e-5,
        ),
        *(
            # One peer at a time: gigabytes that an idle process holds slow down how others get their memory.
            Work(
                f"GCDE, rk4 x {STEPS}, {where}, against {peer.name}",
                (Contender("neuralgde", "ours", partial(our_gcde, s)), peer),
                (Bar(ratio),),
                least_gcde,
                # torchdiffeq's rk4 is Kutta's 3/8 rule, ours the classical one: same order and cost, other numbers.
                value_tolerance=1e-3,
                gradient_tolerance=1e-3,
                rounds=11,
            )
            for ratio, peer in (
                (1.2, Contender("torch CSR + torchdiffeq", "torch", partial(torch_csr, s))),
                (4, Contender("PyG edge list + torchdiffeq", "torch", partial(pyg_edge_list, s))),
            )
        ),
    ]


def run(machine, quick: bool, console, folder: Path) -> Report:
    del folder
    return Report([compare("large", work, machine, quick, console) for work in works(quick)])
