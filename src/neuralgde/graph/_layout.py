"""The one place that decides how a graph's operator is stored and multiplied."""

import itertools
from typing import Literal

import numpy as np

# "dense": a matrix of nodes x nodes; "csr": compressed rows; "pairs": every ordered pair of nodes is an edge slot,
# switched by the edge mask, so that edges may change under `jit` and sums over edges are sums over an axis.
Layout = Literal["dense", "csr", "pairs"]

# Measured by `python -m benchmarks.crossover` (product and gradient, 64 features, two cores): from 128 to 8,192 nodes
# compressed rows are faster while the graph holds less than 12 to 22 % of all pairs. Below, the two are close, and a
# dense product batches over graphs. Past the last bound the matrix itself is too large to be worth having.
ALWAYS_DENSE_NODES = 128
DENSE_SHARE = 0.15
NEVER_DENSE_NODES = 8192

# Measured in turn, which the same command does again, on random graphs of 3 to 25 edges a node: from about 4,000 nodes
# on slices are faster than plain rows, several times at few features. Below, they may be slower, and they take longer
# to compile. Where hubs hold much of the graph, in rows too long for slices, the gain is smaller.
SLICED_NODES = 4096
WIDEST_SLICE = 32
MOST_SLICES = 3
# More slices, up to that many, only while slots are more than so many times the entries: each slice is compiled, and
# slots of padding cost little.
MOST_SLOTS = 1.5

# Multiplications from which on a small product is worth a loop kept apart: each is compiled for itself, in every stage
# of a step, which programs of still smaller ones would notice more than what they gain.
WORTH_COMPILING = 384


def choose_layout(num_nodes: int, num_edges: int) -> Layout:
    if num_nodes <= ALWAYS_DENSE_NODES:
        return "dense"
    if num_nodes > NEVER_DENSE_NODES:
        return "csr"
    return "dense" if num_edges >= DENSE_SHARE * num_nodes**2 else "csr"


def choose_widths(lengths: np.ndarray) -> list[int]:
    """The widths of slices for rows of these lengths; none where plain compressed rows serve as well."""
    count = np.bincount(lengths, minlength=1)[: WIDEST_SLICE + 1]
    entries = int(count @ np.arange(len(count)))
    if len(lengths) < SLICED_NODES or not 0 < lengths.sum() <= 2 * entries:
        return []
    rows_up_to = np.cumsum(count)

    def slots(widths: tuple[int, ...]) -> int:
        return int(np.diff(rows_up_to[[0, *widths]]) @ widths)

    *inner, last = (np.flatnonzero(count[1:]) + 1).tolist()
    widths = (last,)
    for more in range(1, min(MOST_SLICES, len(inner) + 1)):
        if slots(widths) > MOST_SLOTS * entries:
            widths = min(((*c, last) for c in itertools.combinations(inner, more)), key=slots)
    # Rows without entries have a slice of their own, of no width.
    return [0] * bool(count[0]) + list(widths)


def is_small(columns: int, features: int) -> bool:
    """Whether such products are faster as one sum over columns than by a library, which a batch calls one by one.

    Measured for 4 to 64 columns and features on two cores. It holds for a z that is in memory, as a product always is:
    what is still to be computed would be computed again for every row.
    """
    return 0 < columns <= 32 and columns * features <= 640


def is_small_shared(columns: int, features: int) -> bool:
    """Whether that holds too for many states that share one matrix, which a library takes as one product.

    Measured with 10 to 4096 states: a loop takes 0.6 of the time at 10 columns and 16 features, and twice as long at 4
    features; at 32 columns and 16 features a library is ahead.
    """
    return columns <= 16 and features >= 8


def is_tiny(terms: int, multiplications: int) -> bool:
    """Whether products of rows with weights are faster as one sum over so many terms than by a library.

    Measured on two threads for a field of 10 nodes with its gradient: 3.2 us instead of 9.0, and 36 instead of 47 for
    ten fields with their own weights. For 12,800 rows the library is faster.
    """
    return terms <= 16 and WORTH_COMPILING <= multiplications <= 2**16
