"""Graph: nodes, directed edges, weights and masks, as plain immutable data."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Bool, Float, Int

from .._errors import InputError
from . import _build
from ._dense import Dense
from ._layout import Layout
from ._operators import AbstractOperator, DenseOperator, build_operator
from ._structure import Structure


class Graph(eqx.Module):
    """A directed graph with weighted edges, sender -> receiver; an undirected one carries both directions.

    The number of nodes and the layout are fixed at build time, everything else is an array: graphs go through `jit`,
    `vmap` and `grad` as arguments. Edges keep the order they came in. Duplicate edges add up in operators and send one
    message each. Absent nodes and edges are switched off by masks: they send nothing, receive nothing and have no
    degree.

    Graphs of one size share compiled programs, but for large sparse ones, whose arrays follow their edges for speed:
    `pad` makes these alike.
    """

    senders: Int[Array, "*batch edges"]
    receivers: Int[Array, "*batch edges"]
    weights: Float[Array, "*batch edges"]
    edge_features: Float[Array, "*batch edges channels"] | None
    edge_mask: Bool[Array, "*batch edges"]
    node_mask: Bool[Array, "*batch nodes"]
    structure: Structure | None
    prepared: dict[str, AbstractOperator]
    num_nodes: int = eqx.field(static=True)
    layout: Layout = eqx.field(static=True)

    from_edges = staticmethod(_build.from_edges)
    from_adjacency = staticmethod(_build.from_adjacency)
    from_distances = staticmethod(_build.from_distances)
    from_gaussian_kernel = staticmethod(_build.from_gaussian_kernel)
    from_nearest = staticmethod(_build.from_nearest)
    from_positions = staticmethod(_build.from_positions)
    from_networkx = staticmethod(_build.from_networkx)
    from_pyg = staticmethod(_build.from_pyg)

    @property
    def num_edges(self) -> int:
        """The number of edge slots, padding included."""
        return self.senders.shape[-1]

    def __repr__(self) -> str:
        batch = f", batch={self.senders.shape[:-1]}" if self.senders.ndim > 1 else ""
        carries = f", prepared={list(self.prepared)}" if self.prepared else ""
        return f"Graph(num_nodes={self.num_nodes}, num_edges={self.num_edges}, layout={self.layout!r}{batch}{carries})"

    # Operators

    def operator(self, name: str = "gcn") -> AbstractOperator:
        """The named operator: the one this graph carries, or a new one. `op @ z` moves messages along edges."""
        return self.prepared[name] if name in self.prepared else build_operator(self, name)

    def prepare(self, *names: str) -> "Graph":
        """This graph, carrying the named operators, so that loops need not normalise again."""
        missing = {name: build_operator(self, name) for name in names if name not in self.prepared}
        return eqx.tree_at(lambda g: g.prepared, self, {**self.prepared, **missing}) if missing else self

    def with_operator(self, name: str, matrix: Float[Array, "nodes nodes"]) -> "Graph":
        """This graph, carrying an operator of your own, [receiver, sender], for layers that ask for that name."""
        return eqx.tree_at(lambda g: g.prepared, self, {**self.prepared, name: DenseOperator(Dense.of(matrix))})

    def to_dense(self) -> Float[Array, "nodes nodes"]:
        """The weighted adjacency a, a[i, j] the weight of i -> j; duplicate edges add up, absent ones are 0."""
        return _to_dense(self.without_operators())

    # Edges

    @property
    def active_edges(self) -> Bool[Array, " edges"]:
        """Edges that are present, and whose two ends are."""
        return self.edge_mask & self.at_senders(self.node_mask) & self.at_receivers(self.node_mask)

    @property
    def is_self_loop(self) -> Bool[Array, " edges"]:
        return self.senders == self.receivers

    @property
    def active_weights(self) -> Float[Array, " edges"]:
        """Weights, zero where an edge is absent."""
        return jnp.where(self.active_edges, self.weights, 0)

    @property
    def loopless_weights(self) -> Float[Array, " edges"]:
        """Weights, zero where an edge is absent or a self loop."""
        return jnp.where(self.is_self_loop, 0, self.active_weights)

    def at_senders(self, x: Array) -> Array:
        """Node values, copied to each edge from where it starts."""
        if self.structure is None:
            return jnp.broadcast_to(x, (self.num_nodes, *x.shape)).reshape(self.num_edges, *x.shape[1:])
        if x.ndim == 1 or not jnp.issubdtype(x.dtype, jnp.floating):
            return x[self.senders]
        return self.structure.into_senders(self.senders, x.dtype).T @ x

    def at_receivers(self, x: Array) -> Array:
        """Node values, copied to each edge from where it ends."""
        if self.structure is None:
            return jnp.repeat(x, self.num_nodes, axis=0)
        if x.ndim == 1 or not jnp.issubdtype(x.dtype, jnp.floating):
            return x[self.receivers]
        return self.structure.into_receivers(self.receivers, x.dtype).T @ x

    def sum_to_receivers(self, m: Float[Array, "edges *channels"]) -> Float[Array, "nodes *channels"]:
        """Edge values, added up where edges end. Mask them first: this sums every slot."""
        if self.structure is None:
            return m.reshape(self.num_nodes, self.num_nodes, *m.shape[1:]).sum(1)
        return self.structure.into_receivers(self.receivers, m.dtype) @ m

    def sum_to_senders(self, m: Float[Array, "edges *channels"]) -> Float[Array, "nodes *channels"]:
        """Edge values, added up where edges start."""
        if self.structure is None:
            return m.reshape(self.num_nodes, self.num_nodes, *m.shape[1:]).sum(0)
        return self.structure.into_senders(self.senders, m.dtype) @ m

    def max_to_receivers(self, m: Float[Array, "edges *channels"]) -> Float[Array, "nodes *channels"]:
        """The largest edge value where edges end; -inf for a node that nothing points to."""
        if self.structure is None:
            return m.reshape(self.num_nodes, self.num_nodes, *m.shape[1:]).max(1, initial=-jnp.inf)
        return jax.ops.segment_max(m, self.receivers, num_segments=self.num_nodes)

    def scatter_pairs(self, values: Float[Array, " edges"]) -> Float[Array, "nodes nodes"]:
        """Edge values as a matrix [receiver, sender]; duplicates add up."""
        n = self.num_nodes
        if self.structure is None:
            return values.reshape(n, n)
        return jnp.zeros((n, n), values.dtype).at[self.receivers, self.senders].add(values)

    # Changed copies. Operators that were carried are dropped: they belong to the old graph.

    def with_weights(self, weights: Float[ArrayLike, "*batch edges"]) -> "Graph":
        """The same edges with other weights, which may be traced and differentiated."""
        return self._replace(weights=jnp.asarray(_build.edge_values(weights, "weights", self.weights.shape)))

    def with_node_mask(self, node_mask: Bool[ArrayLike, "*batch nodes"]) -> "Graph":
        """The same graph with only some nodes present."""
        node_mask = jnp.asarray(node_mask)
        if node_mask.shape != self.node_mask.shape:
            raise InputError(f"node_mask: expected shape {self.node_mask.shape}, one per node, got {node_mask.shape}.")
        return self._replace(node_mask=node_mask.astype(bool))

    def with_edge_mask(self, edge_mask: Bool[ArrayLike, "*batch edges"]) -> "Graph":
        """The same graph with only some edges present."""
        edge_mask = jnp.asarray(edge_mask)
        if edge_mask.shape != self.edge_mask.shape:
            raise InputError(f"edge_mask: expected shape {self.edge_mask.shape}, one per edge, got {edge_mask.shape}.")
        return self._replace(edge_mask=edge_mask.astype(bool))

    def without_operators(self) -> "Graph":
        """The same graph without the operators that it carries."""
        return self._replace() if self.prepared else self

    def with_layout(self, layout: Layout) -> "Graph":
        """The same graph, stored another way (host code)."""
        return _build.relayout(self, layout)

    def pad(self, num_nodes: int | None = None, num_edges: int | None = None) -> "Graph":
        """More room for nodes and edges, switched off by the masks (host code): graphs of one shape share a program.

        Without arguments it makes large sparse graphs of one size alike, and their products somewhat slower.
        """
        return _build.pad(self, num_nodes, num_edges)

    def permute(self, order: Any) -> "Graph":
        """The same graph with its nodes reordered as in `z[order]`: node i was node order[i] before (host code)."""
        _build.check_single(self, "permute")
        order = _build.host(order, "order")
        if not np.array_equal(np.sort(order), np.arange(self.num_nodes)):
            raise InputError(f"order: expected each of 0..{self.num_nodes - 1} once, got {order!r}.")
        place = np.argsort(order)
        return _build.rebuild(
            self,
            self.layout,
            senders=place[_build.host(self.senders, "senders")],
            receivers=place[_build.host(self.receivers, "receivers")],
            node_mask=_build.host(self.node_mask, "node_mask")[order],
        )

    def _replace(self, **changes: Array) -> "Graph":
        names = list(changes)
        return eqx.tree_at(lambda g: [getattr(g, name) for name in names] + [g.prepared], self, [*changes.values(), {}])


@eqx.filter_jit
def _to_dense(graph: Graph) -> Array:
    """In one program."""
    return graph.scatter_pairs(graph.active_weights).T
