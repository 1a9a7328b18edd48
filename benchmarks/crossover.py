"""`python -m benchmarks.crossover [--quick]`: the ways to multiply, and where graph/_layout.py should switch."""

import argparse
import sys
from collections.abc import Sequence

import numpy as np
from rich.console import Console
from rich.table import Table

from ._harness import interleave, number, time_once

FEATURES = 64
NODES = (32, 64, 128, 256, 512, 1024, 2048, 4096, 8192)
SHARES = (0.002, 0.005, 0.01, 0.02, 0.04, 0.08, 0.16, 0.32)
# Nodes and edges a node, of random graphs; and features.
SPARSE = ((1_000, 10), (4_000, 10), (10_000, 3), (10_000, 10), (30_000, 25), (100_000, 3), (100_000, 10))
WIDTHS = (1, 4, 16, 64)


def products(nodes: int, share: float):
    """Timers of the dense and of the CSR product, forward and gradient in the state, of one random graph."""
    import neuralgde as gde

    rng = np.random.default_rng(0)
    edges = max(1, round(share * nodes**2))
    pairs = rng.choice(nodes**2, edges, replace=False) if nodes <= 2048 else np.unique(rng.integers(0, nodes**2, edges))
    graph = gde.Graph.from_edges(pairs % nodes, pairs // nodes, num_nodes=nodes, layout="csr")
    return timers([g.operator("gcn") for g in (graph.with_layout("dense"), graph)], nodes, FEATURES)


def sparse_products(nodes: int, degree: int):
    """The operator of one random graph as plain compressed rows, and in slices, whatever its size."""
    import equinox as eqx

    import neuralgde as gde
    from neuralgde.graph import _layout

    rng = np.random.default_rng(0)
    senders, receivers = rng.integers(0, nodes, (2, nodes * degree))
    keep, _layout.SLICED_NODES = _layout.SLICED_NODES, 1
    try:
        graph = gde.Graph.from_edges(senders, receivers, num_nodes=nodes, layout="csr")
    finally:
        _layout.SLICED_NODES = keep
    sliced = graph.operator("gcn")
    return [eqx.tree_at(lambda op: (op.matrix.slices, op.matrix.slices_t), sliced, (None, None)), sliced]


def timers(operators, nodes: int, features: int):
    """Of each operator, forward and gradient in the state."""
    import jax
    import jax.numpy as jnp

    z = jnp.asarray(np.random.default_rng(1).standard_normal((nodes, features)), jnp.float32)

    @jax.jit
    def step(op, z):
        out, pull = jax.vjp(lambda z: op @ z, z)
        return pull(jnp.tanh(out))

    def timer(op):
        def run():
            jax.block_until_ready(step(op, z))

        run()
        return lambda: time_once(run)

    return [timer(op) for op in operators]


def crossover_share(shares: Sequence[float], dense: Sequence[float], csr: Sequence[float]) -> float | None:
    """The share of all pairs at which CSR starts to lose, between the shares measured on log scales; None if never."""
    gap = np.log(np.asarray(csr) / np.asarray(dense))
    if gap[0] >= 0:
        return 0.0
    over = np.flatnonzero(gap >= 0)
    if not over.size:
        return None
    k = int(over[0])
    x0, x1 = np.log(shares[k - 1]), np.log(shares[k])
    return float(np.exp(x0 - gap[k - 1] * (x1 - x0) / (gap[k] - gap[k - 1])))


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.crossover", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small sizes")
    quick = parser.parse_args(arguments).quick
    console = Console(width=None if sys.stdout.isatty() else 160)
    nodes, shares = (NODES[:3], SHARES[2::3]) if quick else (NODES, SHARES)
    table = Table(title=f"CSR over dense, time of a product and its gradient, {FEATURES} features (below 1: CSR wins)")
    table.add_column("nodes", justify="right")
    table.add_column("dense, ms", justify="right")
    for share in shares:
        table.add_column(f"{100 * share:g} %", justify="right")
    table.add_column("crossover", justify="right")
    for n in nodes:
        dense, csr = [], []
        for share in shares:
            with console.status(f"{n} nodes, {100 * share:g} %"):
                samples = interleave(products(n, share), 3 if quick else 7, budget=5)
            dense.append(float(np.median(samples[0])))
            csr.append(float(np.median(samples[1])))
        at = crossover_share(shares, dense, csr)
        where = f"> {100 * shares[-1]:g} %" if at is None else "always dense" if at == 0 else f"{100 * at:.2g} %"
        table.add_row(
            f"{n:,}", number(1e3 * float(np.median(dense))),
            *(f"{c / d:.2f}" for c, d in zip(csr, dense, strict=True)), where,
        )  # fmt: skip
    console.print(table)
    console.print(slices_table(quick, console))
    return 0


def slices_table(quick: bool, console: Console) -> Table:
    table = Table(title="Plain rows over slices, time of a product and its gradient (above 1: slices win)")
    for name in ("nodes", "edges a node", *(f"{features} features" for features in WIDTHS)):
        table.add_column(name, justify="right")
    for nodes, degree in SPARSE[:1] if quick else SPARSE:
        ratios = []
        with console.status(f"{nodes:,} nodes, {degree} edges each"):
            operators = sparse_products(nodes, degree)
            for features in WIDTHS:
                plain, sliced = interleave(timers(operators, nodes, features), 3 if quick else 9, budget=20)
                ratios.append(f"{np.median(plain) / np.median(sliced):.2f}")
        table.add_row(f"{nodes:,}", str(degree), *ratios)
    return table


if __name__ == "__main__":
    sys.exit(main())
