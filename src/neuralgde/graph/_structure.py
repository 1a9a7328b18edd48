"""The sorted orders of an edge list, made once on the host: what CSR products and sums over edges read."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from ._csr import CSR, Pattern
from ._slices import Slicing, slice_rows


class Structure(eqx.Module):
    """The edges in order of receiver and of sender. Padding edges stay in; their weight is zero.

    `with_loops`, which only graphs of layout "csr" have, is that of the same edges followed by one from each node to
    itself: where an operator has a diagonal, its product then is one pass over the states and not two. It is made on
    the host, with the rest, because operators may be made anew at every step of a stream; a graph is larger for it.
    `slicings`, of rows and of columns, are there where a graph is large and on its own: they differ between graphs.
    """

    adjacency: Pattern
    by_receiver: Int[Array, "*batch edges"]
    by_sender: Int[Array, "*batch edges"]
    slicings: tuple[Slicing | None, Slicing | None] = (None, None)
    with_loops: "Structure | None" = None

    def csr(self, weights: Array) -> CSR:
        """The matrix with `weights` at [receiver, sender]; the weights come in the graph's own edge order."""
        return CSR(weights[self.by_receiver], weights[self.by_sender], self.adjacency)

    def operator(self, weights: Array) -> CSR:
        """The same matrix, in slices too where the graph has them."""
        data, data_t, taken = _take(self, weights)
        own, transposed = (None if s is None else s.slices(t) for s, t in zip(self.slicings, taken, strict=True))
        return CSR(data, data_t, self.adjacency, own, transposed)

    def into_receivers(self, receivers: Int[Array, " edges"], dtype) -> CSR:
        """The 0/1 matrix [node, edge] that sums edge values where edges end; its transpose copies them to the edges."""
        a = self.adjacency
        return _incidence(self.by_receiver, a.indptr, a.rows, receivers, dtype)

    def into_senders(self, senders: Int[Array, " edges"], dtype) -> CSR:
        """The same where edges start."""
        a = self.adjacency
        return _incidence(self.by_sender, a.indptr_t, a.rows_t, senders, dtype)


@eqx.filter_jit
def _take(structure: Structure, weights: Array) -> tuple[Array, Array, list[Any]]:
    """The weights in order of rows, of columns and of slices. Numbers alone: a program copies what it returns."""
    csr = structure.csr(weights)
    # Derivatives in the weights go by the values in order of rows and columns.
    copies = jax.lax.stop_gradient((csr.data, csr.data_t))
    taken = [None if s is None else s.take(data) for s, data in zip(structure.slicings, copies, strict=True)]
    return csr.data, csr.data_t, taken


def _incidence(order: Array, ptr: Array, rows: Array, ends: Array, dtype) -> CSR:
    edges = jnp.arange(ends.shape[0] + 1, dtype=ends.dtype)
    ones = jnp.ones(ends.shape[0], dtype)
    return CSR(ones, ones, Pattern(order, ptr, rows, ends, edges, edges[:-1], (ptr.shape[0] - 1, ends.shape[0])))


def sort_edges(senders: np.ndarray, receivers: np.ndarray, num_nodes: int, *, loops: bool, sliced: bool) -> Structure:
    """Sort once, by receiver and by sender; neighbours ascend within a row so that reads of the state stay close."""
    with_loops = None
    if loops:
        nodes = np.arange(num_nodes, dtype=senders.dtype)
        ends = np.append(senders, nodes), np.append(receivers, nodes)
        with_loops = sort_edges(*ends, num_nodes, loops=False, sliced=sliced)

    def order_and_ptr(ends, others):
        order = np.lexsort((others, ends)).astype(np.int32)
        ptr = np.zeros(num_nodes + 1, np.int32)
        np.cumsum(np.bincount(ends, minlength=num_nodes), out=ptr[1:])
        return order, ptr

    i, ptr = order_and_ptr(receivers, senders)
    j, ptr_t = order_and_ptr(senders, receivers)
    arrays = (senders[i], ptr, receivers[i], receivers[j], ptr_t, senders[j])
    pattern = Pattern(*(jax.device_put(a.astype(np.int32)) for a in arrays), shape=(num_nodes, num_nodes))
    slicings = (slice_rows(ptr, senders[i]), slice_rows(ptr_t, receivers[j])) if sliced else (None, None)
    return Structure(pattern, jax.device_put(i), jax.device_put(j), slicings, with_loops)
