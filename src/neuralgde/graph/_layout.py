"""The one place that decides how a graph's operator is stored and multiplied."""

from typing import Literal

# "dense": a matrix of nodes x nodes; "csr": compressed rows; "pairs": every ordered pair of nodes is an edge slot,
# switched by the edge mask, so that edges may change under `jit` and sums over edges are sums over an axis.
Layout = Literal["dense", "csr", "pairs"]

# Measured by `python -m benchmarks.crossover` (product and gradient, 64 features, two cores): from 128 to 8,192 nodes
# compressed rows are faster while the graph holds less than 12 to 22 % of all pairs. Below, the two are close, and a
# dense product batches over graphs. Past the last bound the matrix itself is too large to be worth having.
ALWAYS_DENSE_NODES = 128
DENSE_SHARE = 0.15
NEVER_DENSE_NODES = 8192


def choose_layout(num_nodes: int, num_edges: int) -> Layout:
    if num_nodes <= ALWAYS_DENSE_NODES:
        return "dense"
    if num_nodes > NEVER_DENSE_NODES:
        return "csr"
    return "dense" if num_edges >= DENSE_SHARE * num_nodes**2 else "csr"


def is_small(columns: int, features: int) -> bool:
    """Whether many such products are faster as one sum over columns than one by one, as XLA multiplies a batch.

    Measured for 4 to 64 columns and features on two cores. It holds for a z that is in memory, as a product always is:
    what is still to be computed would be computed again for every row.
    """
    return 0 < columns <= 32 and columns * features <= 640
