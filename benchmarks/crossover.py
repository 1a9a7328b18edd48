"""`python -m benchmarks.crossover [--quick]`: dense against CSR products, where graph/_layout.py should switch."""

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


def products(nodes: int, share: float):
    """Timers of the dense and of the CSR product, forward and gradient in the state, of one random graph."""
    import jax
    import jax.numpy as jnp

    import neuralgde as gde

    rng = np.random.default_rng(0)
    edges = max(1, round(share * nodes**2))
    pairs = rng.choice(nodes**2, edges, replace=False) if nodes <= 2048 else np.unique(rng.integers(0, nodes**2, edges))
    graph = gde.Graph.from_edges(pairs % nodes, pairs // nodes, num_nodes=nodes, layout="csr")
    z = jnp.asarray(rng.standard_normal((nodes, FEATURES)), jnp.float32)

    @jax.jit
    def step(op, z):
        out, pull = jax.vjp(lambda z: op @ z, z)
        return pull(jnp.tanh(out))

    def timer(op):
        def run():
            jax.block_until_ready(step(op, z))

        run()
        return lambda: time_once(run)

    return [timer(g.operator("gcn")) for g in (graph.with_layout("dense"), graph)]


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
    return 0


if __name__ == "__main__":
    sys.exit(main())
