"""Rollout of ten particles: GCDE 4-16-16-4, dopri5 at 1e-3, 50 outputs, both ways; one seed, and ten at once."""

from functools import partial
from pathlib import Path

import numpy as np

from ._harness import Bar, Contender, Job, Least, Report, Work, compare
from ._problems import Layers, layers, least_of_gcde, normalised

WIDTHS = (4, 16, 16, 4)
NODES, OUTPUTS, UNTIL = 10, 50, 2.0
TOLERANCE = 1e-3
SEEDS = 10


def problem() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Adjacency, initial state and output times."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((NODES, 2))
    near = np.linalg.norm(x[:, None] - x[None], axis=-1) < 1.2
    z0 = rng.standard_normal((NODES, 4)).astype(np.float32)
    return (near & ~np.eye(NODES, dtype=bool)).astype(float), z0, np.linspace(0.0, UNTIL, OUTPUTS).astype(np.float32)


# Ours


def ours(given: Layers, seeds: bool) -> Job:
    import equinox as eqx
    import jax
    import jax.numpy as jnp

    import neuralgde as gde

    from ._ours import gcde, in_order

    adjacency, z0, times = problem()
    graph = gde.Graph.from_adjacency(adjacency).prepare("gcn")
    field, z0 = gcde(given), jnp.asarray(z0)

    def states(field, z0, graph):
        tolerance = {"rtol": TOLERANCE, "atol": TOLERANCE}
        return gde.solve(field, z0, times, graph, solver="dopri5", throw=False, **tolerance)

    def loss(field_and_state, graph):
        sol = states(*field_and_state, graph)
        return jnp.mean(sol.states**2), (sol.states, sol.stats)

    grad = eqx.filter_value_and_grad(loss, has_aux=True)

    def one(field, z0, graph):
        (_, (states, stats)), (by_field, by_state) = grad((field, z0), graph)
        return states, stats, by_state, in_order(by_field)

    step = eqx.filter_jit(eqx.filter_vmap(one, in_axes=(eqx.if_array(0), None, None)) if seeds else one)

    def run():
        states, _, by_state, by_field = jax.block_until_ready(step(field, z0, graph))
        return [states], [by_state, *by_field]

    def stats():
        found = step(field, z0, graph)[1]
        return {name: int(np.max(found[f"num_{name}"])) for name in ("steps", "evaluations")}

    return Job(run, stats)


def plain_diffrax(given: Layers, seeds: bool) -> Job:
    """As a user of Equinox and Diffrax would write it: a dense GCN, the default adjoint and first step."""
    import diffrax
    import equinox as eqx
    import jax
    import jax.numpy as jnp

    adjacency, z0, times = problem()
    matrix, z0, times = jnp.asarray(normalised(adjacency)), jnp.asarray(z0), jnp.asarray(times)
    parameters = [(jnp.asarray(w), jnp.asarray(b)) for w, b in zip(given.weights, given.biases, strict=True)]

    def field(t, z, args):
        matrix, parameters = args
        for w, b in parameters[:-1]:
            z = jnp.tanh(matrix @ z @ w + b)
        w, b = parameters[-1]
        return matrix @ z @ w + b

    def loss(parameters_and_state, matrix):
        parameters, z0 = parameters_and_state
        sol = diffrax.diffeqsolve(
            diffrax.ODETerm(field), diffrax.Dopri5(), times[0], times[-1], None, z0, (matrix, parameters),
            saveat=diffrax.SaveAt(ts=times),
            stepsize_controller=diffrax.PIDController(rtol=TOLERANCE, atol=TOLERANCE),
        )  # fmt: skip
        return jnp.mean(sol.ys**2), (sol.ys, sol.stats["num_steps"])

    grad = jax.value_and_grad(loss, has_aux=True)

    def one(parameters, z0, matrix):
        (_, aux), grads = grad((parameters, z0), matrix)
        return *aux, grads

    step = eqx.filter_jit(jax.vmap(one, in_axes=(0, None, None)) if seeds else one)

    def run():
        states, _, (by_parameters, by_state) = jax.block_until_ready(step(parameters, z0, matrix))
        return [states], [by_state, *(x for pair in by_parameters for x in pair)]

    return Job(run, lambda: {"steps": int(np.max(step(parameters, z0, matrix)[1]))})


# Peers


def _torch_field(given: Layers):
    import torch

    from ._torch import GCDE

    adjacency, z0, times = problem()
    matrix = torch.tensor(normalised(adjacency))
    return GCDE(given, matrix.__matmul__), z0, torch.tensor(times)


def torchdiffeq_loop(given: Layers, seeds: bool, compiled: bool = False) -> Job:
    import torch
    from torchdiffeq import odeint

    from ._torch import counted, differentiate

    runs, fields = [], []
    for one in _separate(given) if seeds else [given]:
        field, z0, times = _torch_field(one)
        function = torch.compile(field) if compiled else field

        def forward(z, function=function, times=times):
            return odeint(function, z, times, method="dopri5", rtol=TOLERANCE, atol=TOLERANCE)

        runs.append(differentiate(field, z0, forward))
        fields.append(field)
    run = _stacked(runs) if seeds else runs[0]
    return Job(run, None if compiled else counted(fields[0], 2, 6))


def torchdiffeq_joint(given: Layers) -> Job:
    """Ten seeds as one system: stacked parameters, batched products, shared steps."""
    from torchdiffeq import odeint

    from ._torch import counted, differentiate

    field, z0, times = _torch_field(given)

    def forward(z):
        return odeint(field, z, times, method="dopri5", rtol=TOLERANCE, atol=TOLERANCE)

    run = differentiate(field, np.broadcast_to(z0, (SEEDS, *z0.shape)).copy(), forward, scale=SEEDS)

    def seeds_first():
        (states,), grads = run()
        return [states.transpose(0, 1)], grads

    return Job(seeds_first, counted(field, 2, 6))


def torchode_solve(given: Layers, seeds: bool) -> Job:
    """torchode gives each system of a batch its own steps; with stacked parameters, each seed is a system."""
    import torchode

    from ._torch import counted, differentiate

    field, z0, times = _torch_field(given)
    shape = (SEEDS, *z0.shape) if seeds else z0.shape
    batch = SEEDS if seeds else 1
    term = torchode.ODETerm(lambda t, y: field(t, y.reshape(shape)).reshape(batch, -1))
    # Through the choice of steps no gradient flows in the others either.
    solver = torchode.AutoDiffAdjoint(
        torchode.Dopri5(term=term),
        torchode.IntegralController(atol=TOLERANCE, rtol=TOLERANCE, term=term),
        backprop_through_step_size_control=False,
    )
    outputs = times.expand(batch, -1)

    def forward(z):
        sol = solver.solve(torchode.InitialValueProblem(y0=z.reshape(batch, -1), t_eval=outputs))
        return sol.ys.reshape(*((batch,) if seeds else ()), OUTPUTS, *z0.shape)

    start = np.broadcast_to(z0, shape).copy()
    run = differentiate(field, start, forward, scale=SEEDS if seeds else 1)
    return Job(run, counted(field, 2, 6))


def torchdyn_solve(given: Layers, seeds: bool) -> Job:
    from torchdyn.numerics import odeint

    from ._torch import counted, differentiate

    runs, fields = [], []
    for one in _separate(given) if seeds else [given]:
        field, z0, times = _torch_field(one)

        def forward(z, field=field, times=times):
            return odeint(field, z, times, solver="dopri5", atol=TOLERANCE, rtol=TOLERANCE)[1]

        runs.append(differentiate(field, z0, forward))
        fields.append(field)
    return Job(_stacked(runs) if seeds else runs[0], counted(fields[0], 2, 6))


def _separate(given: Layers) -> list[Layers]:
    return [Layers([w[i] for w in given.weights], [b[i] for b in given.biases]) for i in range(SEEDS)]


def _stacked(runs):
    """One seed after the other."""
    import torch

    def run():
        found = [one() for one in runs]
        return tuple([torch.stack(arrays) for arrays in zip(*kind, strict=True)] for kind in zip(*found, strict=True))

    return run


def works(quick: bool) -> list[Work]:
    del quick  # small as it is
    one, ten = layers(WIDTHS), layers(WIDTHS, copies=SEEDS)

    def least(seeds: int, stats: dict[str, int]) -> Least:
        entries = int(np.count_nonzero(normalised(problem()[0])))
        evaluations = stats["evaluations"]
        single = least_of_gcde(NODES, entries, WIDTHS, evaluations, matrix_bytes=8 * entries, in_cache=True)
        return Least(seeds * single.operations, seeds * (single.bytes + 4 * OUTPUTS * NODES * WIDTHS[-1]))

    # Adaptive steps at 1e-3 differ between libraries, and results with them.
    gaps = {"value_tolerance": 5e-3, "gradient_tolerance": 2e-2, "rounds": 25}
    return [
        Work(
            "10 particles, one seed",
            (
                Contender("neuralgde", "ours", partial(ours, one, False)),
                Contender("torchdiffeq", "torch", partial(torchdiffeq_loop, one, False)),
                Contender("torchdiffeq, field compiled", "torch", partial(torchdiffeq_loop, one, False, True)),
                Contender("torchode", "torch", partial(torchode_solve, one, False)),
                Contender("torchdyn", "torch", partial(torchdyn_solve, one, False)),
                Contender("plain Diffrax", "jax", partial(plain_diffrax, one, False)),
            ),
            (Bar(12), Bar(None, ("plain Diffrax",))),
            partial(least, 1),
            **gaps,
        ),
        Work(
            "10 particles, ten seeds at once",
            (
                Contender("neuralgde", "ours", partial(ours, ten, True)),
                Contender("torchdiffeq, a loop", "torch", partial(torchdiffeq_loop, ten, True)),
                Contender("torchdiffeq, stacked by hand", "torch", partial(torchdiffeq_joint, ten)),
                Contender("torchode, stacked by hand", "torch", partial(torchode_solve, ten, True)),
                Contender("torchdyn, a loop", "torch", partial(torchdyn_solve, ten, True)),
                Contender("plain Diffrax", "jax", partial(plain_diffrax, ten, True)),
            ),
            (Bar(40), Bar(None, ("torchdiffeq, a loop",)), Bar(None, ("plain Diffrax",))),
            partial(least, SEEDS),
            **gaps,
        ),
    ]


def run(machine, quick: bool, console, folder: Path) -> Report:
    del folder
    return Report([compare("particles", work, machine, quick, console) for work in works(quick)])
