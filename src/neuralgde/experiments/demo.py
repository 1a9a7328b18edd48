"""The demonstration: learn how heat flows over a graph from irregular snapshots, then predict runs never seen."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from .. import metrics
from ..field import GMDE
from ..graph import Graph
from ..integrate import solve

NUM_NODES, NUM_RUNS, NUM_TIMES, STEPS = 20, 32, 6, 400
# What is simulated, and what the model has to find out: du_v/dt = sum over neighbours (u_u - u_v) + u_v - u_v^3.
TRUTH = "diffusion with a double-well reaction"


def run() -> None:
    """Simulate, train, predict, and print how far off the predictions are beside two naive ones."""
    console = Console()
    console.print(f"[bold]neuralgde[/bold]: a Neural GDE learns {TRUTH} on a graph of {NUM_NODES} nodes.")
    rng = np.random.default_rng(0)
    position = rng.uniform(size=(NUM_NODES, 2))
    distance = np.linalg.norm(position[:, None] - position[None], axis=-1)
    graph = Graph.from_nearest(distance, k=3)
    train, test = (_simulate(rng, graph) for _ in range(2))
    field = _fit(GMDE(widths=(1, 24, 1), key=jax.random.key(0)), *train, graph, console)
    _report(field, *test, graph, console)


def _truth(t: Array, z: Float[Array, "nodes 1"], graph: Graph) -> Float[Array, "nodes 1"]:
    return z - z**3 - graph.operator("laplacian") @ z


def _simulate(rng: np.random.Generator, graph: Graph) -> tuple[Array, Array]:
    """Runs from random states, each seen at irregular times of its own: times (runs, times), states likewise."""
    times = np.sort(rng.uniform(0, 2, (NUM_RUNS, NUM_TIMES)), axis=1)
    times[:, 0] = 0
    z0 = rng.normal(size=(NUM_RUNS, graph.num_nodes, 1)).astype(np.float32)
    return jnp.asarray(times, jnp.float32), solve(_truth, z0, times, graph, rtol=1e-6, atol=1e-7).states


def _fit(field: GMDE, times: Array, states: Array, graph: Graph, console: Console) -> GMDE:
    optimiser = optax.adam(optax.cosine_decay_schedule(1e-2, STEPS))
    optimiser_state = optimiser.init(eqx.filter(field, eqx.is_inexact_array))

    @eqx.filter_value_and_grad
    def loss(field, times, states, graph):
        sol = solve(field, states[:, 0], times, graph, rtol=1e-3, atol=1e-4, throw=False)
        return jnp.mean((sol.states - states) ** 2)

    @eqx.filter_jit
    def step(field, optimiser_state, times, states, graph):
        value, grads = loss(field, times, states, graph)
        updates, optimiser_state = optimiser.update(grads, optimiser_state)
        return eqx.apply_updates(field, updates), optimiser_state, value

    columns = TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn()
    with Progress(*columns, console=console, transient=not console.is_terminal) as progress:
        task = progress.add_task("compiling", total=STEPS)
        for _ in range(STEPS):
            field, optimiser_state, value = step(field, optimiser_state, times, states, graph)
            progress.update(task, advance=1, description=f"training, loss {float(value):.2e}")
    return field


def _report(field: GMDE, times: Array, states: Array, graph: Graph, console: Console) -> None:
    sol = solve(field, states[:, 0], times, graph)
    stay = jnp.broadcast_to(states[:, :1], states.shape)
    mean = jnp.broadcast_to(states.mean(axis=2, keepdims=True), states.shape)
    table = Table(title=f"{NUM_RUNS} new runs, {NUM_TIMES - 1} irregular times each, t in [0, 2]")
    table.add_column("prediction")
    table.add_column("RMSE", justify="right")
    rows = {"Neural GDE": sol.states, "state at t = 0": stay, "true mean over nodes": mean}
    for name, prediction in rows.items():
        table.add_row(name, f"{float(metrics.rmse(prediction[:, 1:], states[:, 1:])):.4f}")
    console.print(table)
    console.print(f"solver: {int(sol.stats['num_steps'])} steps of tsit5 for all runs at once")
