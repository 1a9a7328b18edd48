"""Growth of time and memory with nodes, edges, steps and batch, as fitted exponents; memory of backsolve."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

from ._harness import Check, Report, fit_exponent, interleave, memory_text, number, spread, time_once
from ._problems import layers

FEATURES, STEPS = 32, 4
MOST_EDGE_SLOPE, MOST_BACKSOLVE_GROWTH = 1.1, 1.1


def prepared(nodes: int, edges: int, steps: int = STEPS, batch: int | None = None, adjoint: str = "direct"):
    """A compiled GCDE of two layers, rk4, both ways: a function that runs it, and the bytes that it plans."""
    import equinox as eqx
    import jax
    import jax.numpy as jnp

    import neuralgde as gde

    from ._ours import gcde

    rng = np.random.default_rng(0)
    senders, receivers = rng.integers(0, nodes, (2, edges))
    graph = gde.Graph.from_edges(senders, receivers, num_nodes=nodes, layout="csr").prepare("gcn")
    field = gcde(layers((FEATURES,) * 3))
    shape = (nodes, FEATURES) if batch is None else (batch, nodes, FEATURES)
    z0 = jnp.asarray(rng.standard_normal(shape), jnp.float32)

    @eqx.filter_jit
    @eqx.filter_value_and_grad
    def step(field_and_state, graph):
        field, z0 = field_and_state
        sol = gde.solve(
            field, z0, [0.0, 1.0], graph, solver="rk4", dt0=1 / steps, adjoint=adjoint, throw=False
        )  # fmt: skip
        return jnp.mean(sol.states**2)

    compiled = step.lower((field, z0), graph).compile()
    plan = compiled.compiled.memory_analysis()

    def run():
        return jax.block_until_ready(compiled((field, z0), graph))

    return run, plan.temp_size_in_bytes, plan.argument_size_in_bytes


def series(quick: bool) -> dict[str, tuple[list[int], Callable[[int], dict[str, int]]]]:
    """What grows, through which sizes, and the rest of the problem at each."""
    most = 10**4 if quick else 10**6
    edges = [most // 100, most // 30, most // 10, most // 3, most]
    few, fixed = most // 100, most // 10
    return {
        "edges, ten a node": (edges, lambda e: {"nodes": e // 10, "edges": e}),
        "edges, nodes fixed": (edges, lambda e: {"nodes": few, "edges": e}),
        "nodes, edges fixed": ([few // 10, few, 10 * few], lambda n: {"nodes": n, "edges": fixed}),
        "steps": ([4, 16, 64], lambda k: {"nodes": few // 10, "edges": few, "steps": k}),
        "batch": ([1, 4, 16, 64], lambda b: {"nodes": few // 10, "edges": few, "batch": b}),
    }


def run(machine, quick: bool, console, folder: Path) -> Report:
    del machine, folder
    report = Report()
    table = Table(title=f"Growth: GCDE {FEATURES}-{FEATURES}-{FEATURES}, rk4, forward and backward")
    for name in ("what grows", "sizes", "ms", "memory planned", "time exponent", "memory exponent"):
        table.add_column(name)
    for name, (sizes, rest) in series(quick).items():
        with console.status(f"growth with {name}"):
            jobs = [prepared(**rest(size)) for size in sizes]
            for run_one, *_ in jobs:
                run_one()
            timers = [lambda run_one=run_one: time_once(run_one) for run_one, *_ in jobs]
            times = [spread(s) for s in interleave(timers, 3 if quick else 9, budget=60)]
        milliseconds = [t["ms"] for t in times]
        planned = [float(temp + given) for _, temp, given in jobs]
        found: dict[str, Any] = {
            "sizes": sizes,
            "times": times,
            "planned_bytes": planned,
            "time_exponent": fit_exponent(sizes, milliseconds),
            "memory_exponent": fit_exponent(sizes, planned),
        }
        report.numbers.setdefault("growth", {})[name] = found
        table.add_row(
            name, "  ".join(f"{s:,}" for s in sizes), "  ".join(map(number, milliseconds)),
            "  ".join(map(memory_text, planned)), f"{found['time_exponent']:.2f}", f"{found['memory_exponent']:.2f}",
        )  # fmt: skip
        if name.startswith("edges"):
            report.checks.append(Check(f"slope of log time, {name}", found["time_exponent"], MOST_EDGE_SLOPE))

    with console.status("memory of backsolve"):
        few, many = (prepared(100, 1000, steps=k, adjoint="backsolve")[1] for k in (100, 10_000))
        direct = prepared(100, 1000, steps=10_000, adjoint="direct")[1]
    report.numbers["backsolve_bytes"] = {"100": few, "10000": many, "direct_10000": direct}
    report.checks.append(Check("memory of backsolve, 10,000 steps over 100", many / few, MOST_BACKSOLVE_GROWTH))
    table.caption = (
        f"Temporary memory of backsolve: {memory_text(few)} at 100 steps, {memory_text(many)} at 10,000 "
        f"(direct: {memory_text(direct)})"
    )
    report.tables.append(table)
    return report
