"""Graph operators: matrices over nodes whose entry [receiver, sender] weighs the message along an edge."""

import abc
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._errors import InputError, unknown_name
from ._build import check_single
from ._csr import CSR, Pattern
from ._dense import Dense
from ._layout import is_small
from ._rows import times_weight

if TYPE_CHECKING:
    from ._graph import Graph


class AbstractOperator(eqx.Module):
    """`op @ z` sends each node's row of z along its outgoing edges and sums what arrives."""

    @abc.abstractmethod
    def __matmul__(self, z: Float[Array, "nodes *features"]) -> Float[Array, "nodes *features"]: ...

    def linear(self, z: Float[Array, "nodes in"], weight: Float[Array, "in out"]) -> Float[Array, "nodes out"]:
        """L z W, in the order in which the graph's product runs over the fewer features."""
        in_size, out_size = weight.shape
        return self @ times_weight(z, weight) if in_size >= out_size else times_weight(self @ z, weight)

    @abc.abstractmethod
    def to_dense(self) -> Float[Array, "nodes nodes"]: ...


class DenseOperator(AbstractOperator):
    """An operator held as a full matrix."""

    matrix: Dense

    def __matmul__(self, z):
        return self.matrix @ _checked(z, self.matrix.matrix.shape[-1])

    def linear(self, z, weight):
        nodes, (in_size, out_size) = self.matrix.matrix.shape[-1], weight.shape
        # The weight first also where that makes somewhat more features: a batch of small graphs then is one loop. One
        # small graph with many states pays for it, by half at 10 nodes and 4 features to 16.
        weight_first = in_size >= out_size or (nodes <= 16 and out_size <= 4 * in_size)
        if z.ndim == 2 and weight_first and is_small(nodes, out_size):
            return self.matrix.times_product(_checked(times_weight(z, weight), nodes))
        return super().linear(z, weight)

    def to_dense(self):
        return self.matrix.matrix


class SparseOperator(AbstractOperator):
    """An operator held as compressed rows."""

    matrix: CSR

    def __matmul__(self, z):
        return self.matrix @ _checked(z, self.matrix.pattern.shape[1])

    def to_dense(self):
        return _scatter(self.matrix.pattern, self.matrix.data)


@eqx.filter_jit
def _scatter(pattern: Pattern, data: Array) -> Array:
    """The matrix in full, in one program."""
    return jnp.zeros(pattern.shape, data.dtype).at[pattern.rows, pattern.indices].add(data)


def build_operator(graph: "Graph", name: str) -> AbstractOperator:
    if name not in _ENTRIES:
        raise InputError(unknown_name("operator", name, _ENTRIES))
    check_single(graph, "normalise")
    graph = graph.without_operators()
    return _assemble(graph, *_entries(graph, str(name)), transpose=name in _AGAINST_EDGES)


# What an operator has on the edges and, if any, on the diagonal.
Entries: TypeAlias = tuple[Float[Array, " edges"], Float[Array, " nodes"] | None]


@eqx.filter_jit
def _entries(graph: "Graph", name: str) -> Entries:
    """In one program: one operation after the other, each would be compiled."""
    return _ENTRIES[name](graph)


def _gcn(graph: "Graph") -> Entries:
    """D^-1/2 (A + I) D^-1/2; a node that has self loops already keeps their weight."""
    w = graph.active_weights
    loop = graph.sum_to_receivers(jnp.where(graph.is_self_loop, graph.active_edges, False).astype(w.dtype))
    added = jnp.where(loop > 0, 0, 1).astype(w.dtype) * graph.node_mask.astype(w.dtype)
    scale = _power(graph.sum_to_receivers(w) + added, -0.5)
    return w * graph.at_senders(scale) * graph.at_receivers(scale), added * scale * scale


def _laplacian(graph: "Graph") -> Entries:
    """D - A, self loops left out: they cancel."""
    w = graph.loopless_weights
    return -w, graph.sum_to_receivers(w)


def _normalised_laplacian(graph: "Graph") -> Entries:
    """I - D^-1/2 A D^-1/2, self loops left out."""
    return _symmetric(
        graph, graph.sum_to_receivers(graph.loopless_weights), graph.node_mask.astype(graph.weights.dtype)
    )


def _scaled_laplacian(graph: "Graph") -> Entries:
    """2 L / lambda_max - I with lambda_max = 2, the argument of Chebyshev polynomials."""
    return _symmetric(graph, graph.sum_to_receivers(graph.loopless_weights), None)


def _scaled_laplacian_out(graph: "Graph") -> Entries:
    """The same with out-degrees, which is what torch_geometric's ChebConv takes on directed graphs."""
    return _symmetric(graph, graph.sum_to_senders(graph.loopless_weights), None)


def _random_walk(graph: "Graph") -> Entries:
    """Each node takes the weighted mean of those that point to it: D_in^-1 A^T of the adjacency A."""
    w = graph.active_weights
    scale = _power(graph.sum_to_receivers(w), -1.0)
    return w * graph.at_receivers(scale), None


def _reverse_random_walk(graph: "Graph") -> Entries:
    """The same walk against the edges: each node takes the weighted mean of those it points to, D_out^-1 A."""
    w = graph.active_weights
    scale = _power(graph.sum_to_senders(w), -1.0)
    return w * graph.at_senders(scale), None


def _adjacency(graph: "Graph") -> Entries:
    """The plain weighted sum over incoming edges."""
    return graph.active_weights, None


def _unweighted(entries: Callable[["Graph"], Entries]) -> Callable[["Graph"], Entries]:
    """Those of the same edges with weight 1: each counts once."""
    return lambda graph: entries(graph.with_weights(jnp.ones_like(graph.weights)))


_ENTRIES: dict[str, Callable[["Graph"], Entries]] = {
    "gcn": _gcn,
    "laplacian": _laplacian,
    "normalised_laplacian": _normalised_laplacian,
    "scaled_laplacian": _scaled_laplacian,
    "scaled_laplacian_out": _scaled_laplacian_out,
    "random_walk": _random_walk,
    "reverse_random_walk": _reverse_random_walk,
    "adjacency": _adjacency,
    "unweighted_random_walk": _unweighted(_random_walk),
    "unweighted_adjacency": _unweighted(_adjacency),
}
# Operators that move messages from receivers to senders.
_AGAINST_EDGES = {"reverse_random_walk"}


def _checked(z: Array, num_nodes: int) -> Array:
    z = jnp.asarray(z)
    if not jnp.issubdtype(z.dtype, jnp.floating):
        raise InputError(f"z: expected floats, got dtype {z.dtype}. Convert with .astype(float).")
    if z.ndim == 0 or z.shape[0] != num_nodes:
        raise InputError(
            f"z: expected shape ({num_nodes}, ...), one row per node, got {z.shape}. Batches go through vmap."
        )
    return z


def _power(degree: Array, exponent: float) -> Array:
    # A degree that is not positive scales to zero; the inner `where` keeps its gradient finite too.
    positive = degree > 0
    return jnp.where(positive, jnp.where(positive, degree, 1) ** exponent, 0)


def _symmetric(graph: "Graph", degree: Array, diagonal: Array | None) -> Entries:
    scale = _power(degree, -0.5)
    return -graph.loopless_weights * graph.at_senders(scale) * graph.at_receivers(scale), diagonal


def _assemble(graph: "Graph", values: Array, diagonal: Array | None, *, transpose: bool) -> AbstractOperator:
    """The operator with `values` on the edges, plus a diagonal, in the graph's own layout, whose arrays it shares."""
    structure = graph.structure
    if graph.layout == "csr" and structure is not None:
        if diagonal is not None:
            assert structure.with_loops is not None  # compressed rows have them
            structure, values = structure.with_loops, jnp.concatenate([values, diagonal])
        csr = structure.operator(values)
        return SparseOperator(csr.T if transpose else csr)
    dense = Dense.of(_matrix(graph, values, diagonal))
    return DenseOperator(dense.T if transpose else dense)


@eqx.filter_jit
def _matrix(graph: "Graph", values: Array, diagonal: Array | None) -> Array:
    matrix = graph.scatter_pairs(values)
    return matrix if diagonal is None else matrix + jnp.diag(diagonal)
