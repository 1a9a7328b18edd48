"""Error against evaluations for each solver, on one trained field: a table and a figure."""

from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

from ._harness import Report

# Okabe and Ito's palette, told apart with any kind of colour vision; markers and dashes serve those who print in grey.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = "osD^vPX*"
FIXED = ("euler", "heun", "midpoint", "ralston", "bosh3", "rk4")
ADAPTIVE = ("bosh3", "tsit5", "dopri5", "dopri8", "kvaerno3", "kvaerno4", "kvaerno5")
NODES, UNTIL = 10, 2.0


def trained_field(steps: int):
    """A GCDE fitted to one trajectory of particles that pull at their neighbours and are damped."""
    import equinox as eqx
    import jax
    import jax.numpy as jnp
    import optax

    import neuralgde as gde

    rng = np.random.default_rng(0)
    x, v = rng.standard_normal((2, NODES, 2))
    near = np.linalg.norm(x[:, None] - x[None], axis=-1) < 1.2
    graph = gde.Graph.from_adjacency((near & ~np.eye(NODES, dtype=bool)).astype(float)).prepare("gcn", "laplacian")
    z0 = jnp.asarray(np.concatenate([x, v], axis=1))
    times = np.linspace(0.0, UNTIL, 21)

    def springs(t, z, graph):
        x, v = jnp.split(z, 2, axis=-1)
        return jnp.concatenate([v, -x - graph.operator("laplacian") @ x - 0.3 * v], axis=-1)

    target = gde.solve(springs, z0, times, graph, rtol=1e-8, atol=1e-8).states
    field = gde.GCDE((4, 32, 32, 4), key=jax.random.key(0))
    optimiser = optax.adam(optax.cosine_decay_schedule(1e-2, steps))
    optimiser_state = optimiser.init(eqx.filter(field, eqx.is_inexact_array))

    @eqx.filter_jit
    def update(field, optimiser_state, graph):
        def loss(field):
            sol = gde.solve(field, z0, times, graph, solver="rk4", dt0=UNTIL / 20, throw=False)
            return jnp.mean((sol.states - target) ** 2)

        value, grads = eqx.filter_value_and_grad(loss)(field)
        updates, optimiser_state = optimiser.update(grads, optimiser_state)
        return eqx.apply_updates(field, updates), optimiser_state, value

    first = value = None
    for _ in range(steps):
        field, optimiser_state, value = update(field, optimiser_state, graph)
        first = float(value) if first is None else first
    return field, z0, graph, (first, float(value))


def measure(quick: bool) -> tuple[list[dict[str, Any]], tuple[float, float]]:
    """One row per solver and setting: evaluations counted in the field itself, and the relative error at the end."""
    import jax
    import jax.numpy as jnp

    import neuralgde as gde

    field, z0, graph, losses = trained_field(10 if quick else 400)
    exact = gde.solve(field, z0, [0.0, UNTIL], graph, solver="dopri8", rtol=1e-13, atol=1e-13).states[-1]
    calls = 0

    def called():
        nonlocal calls
        calls += 1

    def counted(t, z, graph):
        jax.debug.callback(called)
        return field(t, z, graph)

    def row(name: str, kind: str, **setting: float) -> dict[str, Any]:
        nonlocal calls
        sol = gde.solve(field, z0, [0.0, UNTIL], graph, solver=name, throw=False, max_steps=2**14, **setting)
        evaluations = sol.stats["num_evaluations"]
        if evaluations is None:
            # Implicit methods: what their Newton iterations ask for, each column of a Jacobian included.
            calls = 0
            gde.solve(counted, z0, [0.0, UNTIL], graph, solver=name, throw=False, max_steps=2**14, **setting)
            jax.effects_barrier()
            evaluations = calls
        error = float(jnp.linalg.norm(sol.states[-1] - exact) / jnp.linalg.norm(exact))
        return {
            "solver": name,
            "kind": kind,
            **setting,
            "steps": int(sol.stats["num_steps"]),
            "evaluations": int(evaluations),
            "error": error,
            "status": int(sol.status),
        }

    counts = (4, 16) if quick else (4, 8, 16, 32, 64, 128)
    tolerances = (1e-2, 1e-4) if quick else (1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8)
    fixed, adaptive = (("euler", "rk4"), ("dopri5",)) if quick else (FIXED, ADAPTIVE)
    rows = [row(name, "fixed", dt0=UNTIL / k) for name in fixed for k in counts]
    rows += [row(name, "adaptive", rtol=tol, atol=tol) for name in adaptive for tol in tolerances]
    return rows, losses


def figure(rows: list[dict[str, Any]], path: Path) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    fig = Figure(figsize=(10, 4.2), layout="constrained")
    FigureCanvasAgg(fig)
    panels = fig.subplots(1, 2, sharey=True)
    for panel, kind in zip(panels, ("fixed", "adaptive"), strict=True):
        names = list(dict.fromkeys(r["solver"] for r in rows if r["kind"] == kind))
        for i, name in enumerate(names):
            mine = [r for r in rows if r["kind"] == kind and r["solver"] == name]
            panel.loglog(
                [r["evaluations"] for r in mine], [r["error"] for r in mine], label=name, color=COLOURS[i],
                marker=MARKERS[i], markersize=5, linestyle="--" if name.startswith("kvaerno") else "-",
            )  # fmt: skip
        panel.set_title(f"{kind} steps")
        panel.set_xlabel("evaluations of the field")
        panel.grid(True, which="major", alpha=0.3)
        panel.legend(frameon=False)
    panels[0].set_ylabel("relative error at the end")
    path.parent.mkdir(parents=True, exist_ok=True)
    fig.savefig(path, dpi=150)


def run(machine, quick: bool, console, folder: Path) -> Report:
    del machine
    import jax

    with console.status("training a field, then solving with every solver"), jax.enable_x64(True):
        rows, (first, last) = measure(quick)
    path = folder / "solvers.png"
    figure(rows, path)
    table = Table(title=f"Evaluations to reach an error, on a trained field (training loss {first:.2g} to {last:.2g})")
    goals = (1e-2, 1e-4, 1e-6, 1e-8)
    for name in ("solver", "steps", *(f"error {g:g}" for g in goals)):
        table.add_column(name, justify="left" if name in ("solver", "steps") else "right")
    for name, kind in dict.fromkeys((r["solver"], r["kind"]) for r in rows):
        mine = [r for r in rows if (r["solver"], r["kind"]) == (name, kind)]
        reached = [min((r["evaluations"] for r in mine if r["error"] <= g), default=None) for g in goals]
        table.add_row(name, kind, *("–" if e is None else f"{e:,}" for e in reached))
    table.caption = f"Float64. All settings tried are in result.json; the figure is {path}"
    return Report(tables=[table], numbers={"rows": rows, "training_loss": [first, last]}, files=[str(path)])
