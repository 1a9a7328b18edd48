"""`python -m benchmarks [names] [-o result.json] [--quick]`: run the benchmarks, print tables, write result.json."""

import argparse
import dataclasses
import importlib
import os
import sys
import time
from pathlib import Path

from rich.console import Console

from . import _harness, _machine

MODULES = ("particles", "systems", "hybrid", "large", "cora", "ssa", "tau", "growth", "solvers", "sde", "seeds")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="name", help=f"which to run, of {', '.join(MODULES)} (all)")
    parser.add_argument("-o", "--output", type=Path, default=_harness.ROOT / ".cache" / "bench" / "result.json")
    parser.add_argument("--quick", action="store_true", help="small sizes: checks that all agree, judges no bar")
    options = parser.parse_args(arguments)
    if unknown := sorted(set(options.names) - set(MODULES)):
        parser.error(f"unknown name {unknown[0]!r}; known: {', '.join(MODULES)}")

    # Compiled programs are worth keeping from one run to the next; timing starts after they are ready.
    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(_harness.ROOT / ".cache" / "jax"))
    console = Console(width=None if sys.stdout.isatty() else 160)
    start = time.perf_counter()
    with console.status("measuring the machine's limits"):
        machine = _machine.measure(options.quick)
    console.print(
        f"{machine.description}, {machine.cores} cores: {machine.gemm_rate / 1e9:.0f} GFLOP/s in float32 products, "
        f"{machine.bandwidth / 1e9:.1f} GB/s copied"
    )
    reports = {}
    for name in options.names or MODULES:
        module = importlib.import_module(f"benchmarks.{name}")
        report = reports[name] = module.run(machine, options.quick, console, options.output.parent)
        for comparison in report.comparisons:
            console.print(_harness.detail_table(comparison))
        for table in report.tables:
            console.print(table)

    comparisons = [c for r in reports.values() for c in r.comparisons]
    checks = [c for r in reports.values() for c in r.checks]
    if comparisons:
        console.print(_harness.summary_table(comparisons))
    if checks:
        console.print(_harness.check_table(checks))
    missed = [] if options.quick else [line for r in reports.values() for line in r.missed()]
    apart = [line for r in reports.values() for line in r.disagreements()]
    _harness.write_json(
        options.output,
        {
            "machine": dataclasses.asdict(machine),
            "quick": options.quick,
            "modules": {name: report.as_json() for name, report in reports.items()},
            "missed": missed,
            "disagreements": apart,
            "seconds": time.perf_counter() - start,
        },
    )
    console.print(f"written: {options.output}")
    for title, lines in (("results that do not agree", apart), ("bars missed", missed)):
        if lines:
            console.print(f"[bold]{title}[/bold]", *[f"  {line}" for line in lines], sep="\n")
    return 1 if missed or apart else 0


if __name__ == "__main__":
    sys.exit(main())
