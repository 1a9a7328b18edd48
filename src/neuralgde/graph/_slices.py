"""Slices: rows of like length side by side, so that XLA compiles a sparse product into one loop over known lengths.

The native CSR kernel adds up one neighbour after another, and on a large graph mostly waits for the next one to come
from memory. With its length known, a row asks for all its neighbours at once. Rows longer than every slice stay CSR.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental.sparse import BCSR
from jaxtyping import Array, Float, Int

from ._layout import choose_widths


class Slicing(eqx.Module):
    """Which rows of a pattern go together: first those of at most the first width, and so on; then the long ones."""

    order: Int[Array, " rows"]
    place: Int[Array, " rows"]
    long_entries: Int[Array, " long"]
    long_starts: Int[Array, " long_rows_and_one"]
    counts: tuple[int, ...] = eqx.field(static=True)
    widths: tuple[int, ...] = eqx.field(static=True)

    @eqx.filter_jit  # outside of a program, its many operations would be compiled one by one
    def slices(self, data: Array, indices: Array, indptr: Array) -> "Slices":
        """A matrix of this pattern, given as compressed rows, in slices."""
        columns, values = [], []
        for rows, width in zip(jnp.split(self.order, np.cumsum(self.counts))[:-1], self.widths, strict=True):
            starts, ends = indptr[rows, None], indptr[rows + 1, None]
            slots = starts + jnp.arange(width, dtype=indptr.dtype)
            # Padding is a neighbour again, with the value 0: what is not finite stays with those it reaches anyway.
            entries = jnp.minimum(slots, ends - 1)
            columns.append(indices[entries])
            values.append(jnp.where(slots < ends, data[entries], 0))
        long = (data[self.long_entries], indices[self.long_entries], self.long_starts)
        return Slices(tuple(columns), tuple(values), long, self.place)


class Slices(eqx.Module):
    """A sparse matrix cut into slices, each with the columns and values of its rows, and what is left as CSR."""

    columns: tuple[Int[Array, "_ _"], ...]
    values: tuple[Float[Array, "_ _"], ...]
    long: tuple[Float[Array, " long"], Int[Array, " long"], Int[Array, " long_rows_and_one"]]
    place: Int[Array, " rows"]

    def __matmul__(self, z: Float[Array, "columns features"]) -> Float[Array, "rows features"]:
        def product():
            blocks = [_slice_product(*slice, z) for slice in zip(self.columns, self.values, strict=True)]
            data, _, starts = self.long
            if data.size:
                blocks.append(BCSR(self.long, shape=(starts.size - 1, z.shape[0])) @ z)
            return _rows(jnp.concatenate(blocks), self.place)

        def never():
            return jnp.zeros((self.place.size, z.shape[1]), z.dtype)

        # A branch keeps the loop to itself. Fused with what comes before it would compute that anew for every edge,
        # and fused with what comes behind it is no longer vectorised.
        return lax.cond(self.place[0] >= 0, product, never)


def _slice_product(columns: Array, values: Array, z: Array) -> Array:
    terms = [values[:, k, None] * _rows(z, columns[:, k]) for k in range(columns.shape[1])]
    return sum(terms[1:], terms[0]) if terms else jnp.zeros((columns.shape[0], z.shape[1]), z.dtype)


def _rows(z: Array, rows: Array) -> Array:
    # Not z[rows], which looks for negative indices at every one.
    return z.at[rows].get(mode="promise_in_bounds", wrap_negative_indices=False)


def slice_rows(indptr: np.ndarray) -> Slicing | None:
    """The slicing of rows that start there (host code), or None where plain CSR is as fast."""
    lengths = np.diff(indptr)
    widths = choose_widths(lengths)
    if not widths:
        return None
    group = np.searchsorted(widths, lengths)
    order = np.argsort(group, kind="stable").astype(np.int32)
    place = np.empty_like(order)
    place[order] = np.arange(len(order), dtype=np.int32)
    counts = np.bincount(group, minlength=len(widths) + 1)
    long = order[len(order) - counts[-1] :]
    starts = np.append(0, np.cumsum(lengths[long])).astype(np.int32)
    entries = np.repeat(indptr[long] - starts[:-1], lengths[long]) + np.arange(starts[-1], dtype=np.int32)
    return Slicing(
        jax.device_put(order),
        jax.device_put(place),
        jax.device_put(entries),
        jax.device_put(starts),
        tuple(counts[:-1].tolist()),
        tuple(widths),
    )
