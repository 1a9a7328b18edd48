"""A flow, a jump and a stream with gaps on which the tests of hybrid solves and models run."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import neuralgde as gde
from neuralgde import nn
from neuralgde.graph import GraphStream
from problems import small_graph

NODES, SIZE = 6, 3
TIMES = np.array([0.5, 0.9, 2.0, 2.3])


class Cell(eqx.Module):
    """A GCGRU cell as a jump: nodes that were not observed stay as they are."""

    cell: nn.GCGRU

    def prepare(self, graph):
        return self.cell.prepare(graph)

    def __call__(self, t, z, x, mask, graph):
        return jnp.where(mask.any(1, keepdims=True), self.cell(x, z, graph), z)


def parts(key=0):
    flow_key, jump_key = jax.random.split(jax.random.key(key))
    return gde.GCDE((SIZE, 4, SIZE), key=flow_key), Cell(nn.GCGRU(2, SIZE, key=jump_key))


def make_stream(seed=0, times=TIMES, changing=True):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((len(times), NODES, 2))
    x[rng.random(x.shape) < 0.3] = np.nan
    return GraphStream(times, x, [small_graph(seed=seed + k) for k in range(len(times))] if changing else small_graph())


def start(seed=5):
    return jnp.asarray(np.random.default_rng(seed).standard_normal((NODES, SIZE)))
