"""Slices: rows of like length side by side, so that XLA compiles a sparse product into one loop over known lengths.

The native CSR kernel adds up one neighbour after another, and on a large graph mostly waits for the next one to come
from memory. With its length known, a row asks for all its neighbours at once. Rows longer than every slice stay CSR.
"""

from typing import TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.sparse import BCSR
from jaxtyping import Array, Float, Int

from ._layout import choose_widths
from ._loop import keep_apart


class Slicing(eqx.Module):
    """Which rows of a pattern go together, the shortest first, and last those too long for a slice.

    Of each slice it has the columns of its rows and where their values are among those of compressed rows. Padding is
    a neighbour again, past the last value: what is not finite stays with those whom it reaches anyway.
    """

    columns: tuple[Int[Array, "*batch _ _"], ...]
    entries: tuple[Int[Array, "*batch _ _"], ...]
    long: tuple[Int[Array, "*batch long"], Int[Array, "*batch long"], Int[Array, "*batch long_starts"]]
    place: Int[Array, "*batch rows"]

    def take(self, data: Float[Array, " entries"]) -> "Taken":
        """The values of a matrix of this pattern, given in the order of compressed rows, as its slices have them."""
        return tuple(data.at[slots].get(mode="fill", fill_value=0) for slots in self.entries), data[self.long[1]]

    def slices(self, taken: "Taken") -> "Slices":
        """The matrix of these values."""
        values, long_values = taken
        columns, _, starts = self.long
        return Slices(self.columns, values, (long_values, columns, starts), self.place)


# The values of each slice, and those of rows too long for one.
Taken: TypeAlias = tuple[tuple[Float[Array, "*batch _ _"], ...], Float[Array, "*batch long"]]


class Slices(eqx.Module):
    """A sparse matrix cut into slices, each with the columns and values of its rows, and what is left as CSR."""

    columns: tuple[Int[Array, "*batch _ _"], ...]
    values: tuple[Float[Array, "*batch _ _"], ...]
    long: tuple[Float[Array, "*batch long"], Int[Array, "*batch long"], Int[Array, "*batch long_starts"]]
    place: Int[Array, "*batch rows"]

    def __matmul__(self, z: Float[Array, "columns features"]) -> Float[Array, "rows features"]:
        # Fused with what comes behind, the loops would not be vectorised; with what comes before, they would compute it
        # anew for every edge.
        return keep_apart(_product, self, z)


def _product(slices: Slices, z: Array) -> Array:
    blocks = [_slice_product(*slice, z) for slice in zip(slices.columns, slices.values, strict=True)]
    data, _, starts = slices.long
    if data.size:
        blocks.append(BCSR(slices.long, shape=(starts.size - 1, z.shape[0])) @ z)
    return _rows(jnp.concatenate(blocks), slices.place)


def _slice_product(columns: Array, values: Array, z: Array) -> Array:
    terms = [values[:, k, None] * _rows(z, columns[:, k]) for k in range(columns.shape[1])]
    return sum(terms[1:], terms[0]) if terms else jnp.zeros((columns.shape[0], z.shape[1]), z.dtype)


def _rows(z: Array, rows: Array) -> Array:
    # Not z[rows], which looks for negative indices at every one.
    return z.at[rows].get(mode="promise_in_bounds", wrap_negative_indices=False)


def slice_rows(indptr: np.ndarray, indices: np.ndarray) -> Slicing | None:
    """The slicing of compressed rows (host code), or None where they are as fast as they are."""
    lengths = np.diff(indptr)
    widths = choose_widths(lengths)
    if not widths:
        return None
    group = np.searchsorted(widths, lengths)
    order = np.argsort(group, kind="stable")
    *short, long = np.split(order, np.cumsum(np.bincount(group, minlength=len(widths) + 1))[:-1])
    columns, entries = [], []
    for rows, width in zip(short, widths, strict=True):
        starts, ends = indptr[rows, None], indptr[rows + 1, None]
        slots = starts + np.arange(width)
        columns.append(indices[np.minimum(slots, ends - 1)])
        entries.append(np.where(slots < ends, slots, len(indices)))
    long_starts = np.append(0, np.cumsum(lengths[long]))
    long_entries = np.repeat(indptr[long] - long_starts[:-1], lengths[long]) + np.arange(long_starts[-1])
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    arrays = (tuple(columns), tuple(entries), (indices[long_entries], long_entries, long_starts), place)
    return Slicing(*jax.tree.map(lambda a: jax.device_put(a.astype(np.int32)), arrays))
