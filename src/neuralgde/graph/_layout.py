"""The one place that decides how a graph's operator is stored and multiplied."""

from typing import Literal

# "dense": a matrix of nodes x nodes; "csr": compressed rows; "pairs": every ordered pair of nodes is an edge slot,
# switched by the edge mask, so that edges may change under `jit` and sums over edges are sums over an axis.
Layout = Literal["dense", "csr", "pairs"]

# Estimates, from the rates of one large dense and one large sparse product; `python -m benchmarks.crossover` measures
# where they cross. Few nodes: a dense product. More: dense while the graph holds this share of all pairs. Past the last
# bound the matrix itself is too large to be worth having.
ALWAYS_DENSE_NODES = 128
DENSE_SHARE = 0.03
NEVER_DENSE_NODES = 8192


def choose_layout(num_nodes: int, num_edges: int) -> Layout:
    if num_nodes <= ALWAYS_DENSE_NODES:
        return "dense"
    if num_nodes > NEVER_DENSE_NODES:
        return "csr"
    return "dense" if num_edges >= DENSE_SHARE * num_nodes**2 else "csr"
