"""GCDE-GRU on 228 nodes, 40 % of all pairs joined, 32 windows of 5 observations: a training step, and a training."""

import json
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from rich.table import Table

from ._harness import ROOT, Bar, Check, Contender, Job, Least, Report, Work, compare, number
from ._problems import normalised

HIDDEN, OBSERVATIONS, BATCH = 46, 5, 32
TOLERANCE = 1e-3
RATE = 1e-3
LEAST_SPEEDUP, LEAST_TRAINING_SPEEDUP = 1.5, 4.0


class Problem(NamedTuple):
    """Windows of a travelling wave with noise: times, values and what comes next; and the graph."""

    times: np.ndarray  # (windows, observations + 1), the last one asked for
    values: np.ndarray  # (windows, observations, nodes, 1)
    targets: np.ndarray  # (windows, nodes, 1)
    adjacency: np.ndarray


def problem(nodes: int, windows: int, seed: int = 0) -> Problem:
    rng = np.random.default_rng(seed)
    places = np.random.default_rng(0).random((nodes, 2))
    distances = np.linalg.norm(places[:, None] - places[None], axis=-1)
    near = distances <= np.percentile(distances[~np.eye(nodes, dtype=bool)], 40)
    gaps = np.minimum(rng.geometric(0.5, (windows, OBSERVATIONS + 1)), 6)
    times = np.cumsum(gaps, axis=1) + rng.uniform(0, 100, (windows, 1))
    wave = np.sin(0.3 * times[..., None] - 4 * places[:, 0]) + 0.5 * np.sin(0.11 * times[..., None] + 6 * places[:, 1])
    wave = wave + 0.05 * rng.standard_normal(wave.shape)
    times, wave = times.astype(np.float32), wave[..., None].astype(np.float32)
    return Problem(times, wave[:, :-1], wave[:, -1], (near & ~np.eye(nodes, dtype=bool)).astype(float))


def weights(seed: int = 0) -> list[np.ndarray]:
    """Cell: xz, hz, xr, hr, xh, hh. Flow: two weights, two biases. Head: two weights, two biases."""
    rng = np.random.default_rng(seed)
    inputs = 3
    shapes = [(inputs, HIDDEN), (HIDDEN, HIDDEN)] * 3 + [(HIDDEN, HIDDEN)] * 2 + [(HIDDEN + 1, HIDDEN), (HIDDEN, 1)]
    made = [rng.uniform(-1, 1, s).astype(np.float32) * np.float32((6 / sum(s)) ** 0.5) for s in shapes]
    biases = [rng.uniform(-0.1, 0.1, n).astype(np.float32) for n in (HIDDEN, HIDDEN, HIDDEN, 1)]
    return [*made[:8], *biases[:2], *made[8:], *biases[2:]]


# Ours


def our_model(config):
    import equinox as eqx
    import jax
    import jax.numpy as jnp

    import neuralgde as gde

    model = gde.gcde_gru(1, HIDDEN, key=jax.random.key(0), config=config)
    given = weights()
    # Weights of linear layers in the head are stored the other way round.
    given[10], given[11] = given[10].T, given[11].T
    return eqx.tree_at(our_parameters, model, [jnp.asarray(w) for w in given])


def our_parameters(model) -> list:
    cell, layers, head = model.jump.cell, model.flow.field.layers, model.readout.layer.mlp.layers
    return [
        *(cell.w_xz, cell.w_hz, cell.w_xr, cell.w_hr, cell.w_xh, cell.w_hh),
        *(layers[0].weight, layers[1].weight, layers[0].bias, layers[1].bias),
        *(head[0].weight, head[1].weight, head[0].bias, head[1].bias),
    ]


def our_loss(model, times, values, targets, graph):
    import jax.numpy as jnp

    from neuralgde.graph import GraphStream

    stream = GraphStream.batch(times[:, :-1], values, graph, jnp.ones(values.shape, bool))
    forecast = model(stream, times[:, -1:])[:, 0]
    return jnp.mean((forecast - targets) ** 2), forecast


def ours(nodes: int) -> Job:
    import equinox as eqx
    import jax
    import jax.numpy as jnp

    import neuralgde as gde
    from neuralgde.graph import GraphStream

    p = problem(nodes, BATCH)
    graph = gde.Graph.from_adjacency(p.adjacency)
    model = our_model(gde.HybridConfig("dopri5", num_steps=None, rtol=TOLERANCE, atol=TOLERANCE))
    data = [jnp.asarray(a) for a in p[:3]]
    step = eqx.filter_jit(eqx.filter_value_and_grad(our_loss, has_aux=True))

    def run():
        (_, forecast), grads = jax.block_until_ready(step(model, *data, graph))
        found = our_parameters(grads)
        found[10], found[11] = found[10].T, found[11].T
        return [forecast], found

    def stats():
        stream = GraphStream.batch(data[0][:, :-1], data[1], graph, jnp.ones(data[1].shape, bool))
        found = eqx.filter_jit(lambda m, s, t: m.solve(s, t).stats)(model, stream, data[0][:, -1:])
        return {name: int(found[f"num_{name}"]) for name in ("steps", "evaluations")}

    return Job(run, stats)


# PyTorch


def torch_model(nodes: int, adjacency: np.ndarray):
    """The same model as a module: `forward(times, values)`, its states (nodes, batch, hidden), one product for all."""
    import torch
    from torchdiffeq import odeint

    class Flow(torch.nn.Module):
        def __init__(self, operator, w1, w2, b1, b2):
            super().__init__()
            self.operator, self.gap, self.calls = operator, None, 0
            self.w1, self.w2, self.b1, self.b2 = w1, w2, b1, b2

        def forward(self, s, z):
            self.calls += 1
            z = torch.tanh(along(self.operator, z @ self.w1) + self.b1)
            return (along(self.operator, z @ self.w2) + self.b2) * self.gap

    def along(operator, z):
        return (operator @ z.reshape(z.shape[0], -1)).reshape(z.shape)

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.given = torch.nn.ParameterList([torch.tensor(w) for w in weights()])
            self.operator = torch.tensor(normalised(adjacency))
            self.flow = Flow(self.operator, *self.given[6:10])

        def forward(self, times, values):
            xz, hz, xr, hr, xh, hh = self.given[:6]
            w1, w2, b1, b2 = self.given[10:]
            gaps = torch.diff(times, dim=1)
            z = torch.zeros(nodes, times.shape[0], HIDDEN)
            ages = torch.cat([torch.zeros_like(gaps[:, :1]), gaps], dim=1)
            for k in range(OBSERVATIONS):
                x = values[:, k].transpose(0, 1)
                age = ages[None, :, k, None].expand_as(x)
                both = along(self.operator, torch.cat([x, torch.ones_like(x), age, z], dim=2))
                gates = torch.sigmoid(both @ torch.cat([torch.cat([xz, xr], 1), torch.cat([hz, hr], 1)]))
                keep, reset = gates.chunk(2, dim=2)
                reset = torch.cat([both[..., :3], along(self.operator, reset * z)], dim=2)
                z = keep * z + (1 - keep) * torch.tanh(reset @ torch.cat([xh, hh]))
                self.flow.gap = gaps[None, :, k, None]
                z = odeint(self.flow, z, torch.tensor([0.0, 1.0]), method="dopri5", rtol=TOLERANCE, atol=TOLERANCE)[-1]
            z = torch.cat([z, gaps[None, :, -1:].expand(nodes, -1, 1)], dim=2)
            return (torch.relu(z @ w1 + b1) @ w2 + b2).transpose(0, 1)

    return Model()


def torchdiffeq_step(nodes: int) -> Job:
    import torch

    p = problem(nodes, BATCH)
    model = torch_model(nodes, p.adjacency)
    times, values, targets = (torch.tensor(a) for a in p[:3])

    def run():
        model.flow.calls = 0
        forecast = model(times, values)
        loss = ((forecast - targets) ** 2).mean()
        return [forecast], list(torch.autograd.grad(loss, list(model.given)))

    return Job(run, lambda: {"evaluations": model.flow.calls, "steps": (model.flow.calls - 2 * OBSERVATIONS) // 6})


# One step


def works(quick: bool) -> list[Work]:
    nodes = 30 if quick else 228
    torch_row = Contender("torchdiffeq, dopri5 1e-3", "torch", partial(torchdiffeq_step, nodes))

    def least(stats: dict[str, int]) -> Least:
        columns = BATCH * HIDDEN
        product, layer = 2 * nodes**2 * columns, 2 * nodes * columns * HIDDEN
        flow = stats["evaluations"] * 2 * (2 * product + 3 * layer)
        jumps = OBSERVATIONS * (2 * 2 * product + 3 * 3 * 2 * layer)
        return Least(flow + jumps, 0)

    row = Contender("neuralgde, dopri5 1e-3", "ours", partial(ours, nodes))
    # Steps at 1e-3 differ between libraries (ours holds every window to it, torchdiffeq their mean), and gradients with
    # them. That both go to one limit, tests/test_benchmarks.py makes sure of.
    return [
        Work(f"GCDE-GRU step, {nodes} nodes, dopri5 1e-3", (row, torch_row), (Bar(LEAST_SPEEDUP),), least, 0.05, 0.3, 9)
    ]


# A training


def train(who: str, quick: bool, until: float | None) -> dict[str, Any]:
    """Adam on the same batches; validation after every few steps, not timed. Stops where `until` is reached."""
    nodes, steps, every = (30, 6, 2) if quick else (228, 80, 5)
    p, v = problem(nodes, 512, seed=1), problem(nodes, 128, seed=2)
    order = np.random.default_rng(3)
    advance, score = (_our_training if who == "ours" else _torch_training)(nodes, p, v)
    batches = [order.permutation(512)[:BATCH] for _ in range(steps if until is None else 3 * steps)]
    advance(batches[0], False)
    taken, seconds, scores = 0.0, [], []
    for k, batch in enumerate(batches, 1):
        start = time.perf_counter()
        advance(batch, True)
        taken += time.perf_counter() - start
        if k % every == 0:
            seconds.append(taken)
            scores.append(score())
            if until is not None and scores[-1] <= until:
                break
    return {"seconds": seconds, "rmse": scores, "steps": k}


def _our_training(nodes: int, p: Problem, v: Problem):
    import equinox as eqx
    import jax
    import jax.numpy as jnp
    import optax

    import neuralgde as gde

    graph = gde.Graph.from_adjacency(p.adjacency)
    model = our_model(gde.HybridConfig())
    adam = optax.adam(RATE)
    state = adam.init(eqx.filter(model, eqx.is_inexact_array))

    @eqx.filter_jit
    def step(model, state, *batch):
        grads, _ = eqx.filter_grad(our_loss, has_aux=True)(model, *batch)
        updates, state = adam.update(grads, state)
        return eqx.apply_updates(model, updates), state

    loss = eqx.filter_jit(lambda *a: our_loss(*a)[0])
    validation = [jnp.asarray(a) for a in v[:3]]

    def advance(rows, real):
        nonlocal model, state
        new = jax.block_until_ready(step(model, state, *(jnp.asarray(a[rows]) for a in p[:3]), graph))
        if real:
            model, state = new

    return advance, lambda: float(loss(model, *validation, graph)) ** 0.5


def _torch_training(nodes: int, p: Problem, v: Problem):
    import torch

    model = torch_model(nodes, p.adjacency)
    adam = torch.optim.Adam(model.parameters(), lr=RATE)

    def advance(rows, real):
        times, values, targets = (torch.tensor(a[rows]) for a in p[:3])
        adam.zero_grad()
        ((model(times, values) - targets) ** 2).mean().backward()
        if real:
            adam.step()

    def score():
        times, values, targets = (torch.tensor(a) for a in v[:3])
        with torch.no_grad():
            return float(((model(times, values) - targets) ** 2).mean()) ** 0.5

    return advance, score


def _trained(who: str, quick: bool, until: float | None) -> dict[str, Any]:
    """A training in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.hybrid", who, "none" if until is None else repr(until)]
    done = subprocess.run(
        command + ["--quick"] * quick, capture_output=True, text=True, cwd=ROOT, check=True, timeout=1800
    )
    return json.loads(done.stdout.splitlines()[-1])


def run(machine, quick: bool, console, folder: Path) -> Report:
    del folder
    report = Report([compare("hybrid", work, machine, quick, console) for work in works(quick)])
    with console.status("training on torchdiffeq"):
        theirs = _trained("torch", quick, None)
    target = theirs["rmse"][-1]
    with console.status("training ours until it is as good"):
        mine = _trained("ours", quick, target)
    reached = mine["rmse"][-1] <= target
    share = mine["seconds"][-1] / theirs["seconds"][-1] if reached else float("inf")
    report.numbers["training"] = {"torchdiffeq": theirs, "ours": mine, "target_rmse": target}
    if not quick:
        name = f"time to validation RMSE {target:.3f}, ours over torchdiffeq's"
        report.checks.append(Check(name, share, 1 / LEAST_TRAINING_SPEEDUP))
    table = Table(title="Training GCDE-GRU: our default settings, torchdiffeq with dopri5 1e-3; compiling not counted")
    for name in ("who", "steps", "seconds", "validation RMSE"):
        table.add_column(name, justify="left" if name == "who" else "right")
    for who, found in (("torchdiffeq", theirs), ("neuralgde", mine)):
        table.add_row(who, str(found["steps"]), number(found["seconds"][-1]), f"{found['rmse'][-1]:.4f}")
    report.tables.append(table)
    return report


if __name__ == "__main__":
    limit = None if sys.argv[2] == "none" else float(sys.argv[2])
    print(json.dumps(train(sys.argv[1], "--quick" in sys.argv[3:], limit)))
