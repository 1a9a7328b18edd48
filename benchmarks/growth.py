"""Growth of time and memory with nodes, edges, steps, batch and outputs, as fitted exponents; memory of backsolve."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

from ._harness import Check, Report, fit_exponent, interleave, memory_text, number, spread, time_once
from ._problems import layers

FEATURES, STEPS = 32, 4
# The way back over many adaptive steps computes some of them more than once, which adds to the slope of outputs.
MOST_SLOPES = {"edges": 1.1, "outputs": 1.2}
MOST_BACKSOLVE_GROWTH = 1.1


def prepared(nodes: int, edges: int, steps: int = STEPS, batch: int | None = None, adjoint: str = "direct"):
    """A compiled GCDE of two layers, rk4, both ways: a function that runs it, and the bytes that it plans."""
    import equinox as eqx
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

    return ready(step, (field, z0), graph)


def oscillators(outputs: int, solver: str):
    """A hundred pendulums, both ways, as `prepared`: two steps of rk4 an output, or about one of dopri5."""
    import equinox as eqx
    import jax.numpy as jnp

    import neuralgde as gde

    z0 = jnp.asarray(np.random.default_rng(0).standard_normal((100, 8)), jnp.float32)
    times = np.linspace(0.0, 0.1 * outputs, outputs + 1)
    steps = {"dt0": 0.05} if solver == "rk4" else {"rtol": 1e-5, "atol": 1e-5, "max_steps": 4 * outputs}

    def field(t, z, graph):
        return jnp.concatenate([z[:, 4:], -20 * jnp.sin(z[:, :4])], axis=1)

    @eqx.filter_jit
    @eqx.filter_value_and_grad
    def step(z0):
        return jnp.mean(gde.solve(field, z0, times, solver=solver, throw=False, **steps).states ** 2)

    return ready(step, z0)


def ready(step, *inputs):
    import jax

    compiled = step.lower(*inputs).compile()
    plan = compiled.compiled.memory_analysis()

    def run():
        return jax.block_until_ready(compiled(*inputs))

    return run, plan.temp_size_in_bytes, plan.argument_size_in_bytes


def series(quick: bool) -> dict[str, tuple[list[int], Callable[[int], tuple]]]:
    """What grows, through which sizes, and the problem of each."""
    most = 10**4 if quick else 10**6
    edges = [most // 100, most // 30, most // 10, most // 3, most]
    few, fixed = most // 100, most // 10
    outputs = [64, 128, 256] if quick else [256, 1024, 4096]
    return {
        "edges, ten a node": (edges, lambda e: prepared(nodes=e // 10, edges=e)),
        "edges, nodes fixed": (edges, lambda e: prepared(nodes=few, edges=e)),
        "nodes, edges fixed": ([few // 10, few, 10 * few], lambda n: prepared(nodes=n, edges=fixed)),
        "steps": ([4, 16, 64], lambda k: prepared(nodes=few // 10, edges=few, steps=k)),
        "batch": ([1, 4, 16, 64], lambda b: prepared(nodes=few // 10, edges=few, batch=b)),
        "outputs with steps, rk4": (outputs, lambda k: oscillators(k, "rk4")),
        "outputs with steps, dopri5": (outputs, lambda k: oscillators(k, "dopri5")),
    }


def run(machine, quick: bool, console, folder: Path) -> Report:
    del machine, folder
    report = Report()
    table = Table(
        title=f"Growth: GCDE {FEATURES}-{FEATURES}-{FEATURES}, rk4, and for outputs pendulums; forward and backward"
    )
    for name in ("what grows", "sizes", "ms", "memory planned", "time exponent", "memory exponent"):
        table.add_column(name)
    for name, (sizes, problem) in series(quick).items():
        with console.status(f"growth with {name}"):
            jobs = [problem(size) for size in sizes]
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
        for kind, most in MOST_SLOPES.items():
            if name.startswith(kind):
                report.checks.append(Check(f"slope of log time, {name}", found["time_exponent"], most))

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
