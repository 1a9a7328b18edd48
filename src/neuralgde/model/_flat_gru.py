"""The GRU baseline: one recurrent state for the whole graph, which it sees as a long vector."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from ..graph import Graph
from ._gcde_gru import LEVELS, STILL
from ._heads import AbstractHead, make_head
from ._hybrid_gde import HybridGDE
from ._memory import Layout, MemoryFlow, MemoryHead, MemoryJump


class FlatCell(eqx.Module):
    """A GRU cell on the values of all nodes and the means of their other inputs; every node holds its state."""

    cell: eqx.nn.GRUCell
    features: int = eqx.field(static=True)

    def __call__(
        self, x: Float[Array, "nodes in"], h: Float[Array, "nodes hidden"], graph: Graph
    ) -> Float[Array, "nodes hidden"]:
        # What absent nodes hold must not reach the others.
        x = jnp.where(graph.node_mask[:, None], x, 0)
        vector = jnp.concatenate([x[:, : self.features].ravel(), _mean(x[:, self.features :], graph)])
        return jnp.broadcast_to(self.cell(vector, _mean(h, graph)), h.shape)


class FlatLayer(eqx.Module):
    """One perceptron from the state of the graph to the values of all nodes."""

    mlp: eqx.nn.MLP

    def __call__(self, z: Float[Array, "nodes in"], graph: Graph) -> Float[Array, "nodes out"]:
        return self.mlp(_mean(z, graph)).reshape(z.shape[0], -1)


def gru(
    num_nodes: int,
    features: int,
    hidden: int = 50,
    *,
    key: PRNGKeyArray,
    inputs: int = 0,
    residual: bool = False,
    period: float | None = None,
    time_scale: float = 1.0,
    head: str | AbstractHead = "point",
    levels: tuple[float, ...] = LEVELS,
) -> HybridGDE:
    """The paper's GRU, which uses no edges; options as in `gcde_gru`.

    Unlike the others it knows nodes by their number: it is for graphs of one size, and depends on the nodes' order.
    """
    cell_key, head_key = jax.random.split(key)
    layout = Layout(hidden, features)

    def make_cell(size: int) -> FlatCell:
        flat = num_nodes * features + size - features
        return FlatCell(eqx.nn.GRUCell(flat, hidden, key=cell_key), features)

    jump = MemoryJump(
        make_cell, layout, inputs=inputs, period=period, time_scale=time_scale, hold_unobserved=False, key=cell_key
    )
    made = make_head(head, levels)
    layer = FlatLayer(eqx.nn.MLP(hidden + 1, num_nodes * made.numbers * features, hidden, 1, key=head_key))
    readout = MemoryHead(layer, made, layout, time_scale, residual)
    return HybridGDE(MemoryFlow(None, layout), jump, readout, config=STILL)


def _mean(x: Float[Array, "nodes channels"], graph: Graph) -> Float[Array, " channels"]:
    present = graph.node_mask[:, None]
    return jnp.sum(jnp.where(present, x, 0), axis=0) / jnp.maximum(jnp.sum(present), 1).astype(x.dtype)
