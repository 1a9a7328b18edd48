"""A batch of 1280 particle systems, each with its own graph: GCDE 4-16-16-4, dopri5 at 1e-3, both ways."""

from functools import partial
from pathlib import Path

import numpy as np

from ._harness import Bar, Contender, Job, Least, Report, Work, compare
from ._problems import layers, least_of_gcde, normalised

WIDTHS = (4, 16, 16, 4)
NODES = 10
RADIUS = 2.0  # i and j are joined where 2 ||x_i - x_j|| <= RADIUS
UNTIL = 1.0
TOLERANCE = 1e-3


def problem(batch: int) -> tuple[np.ndarray, np.ndarray]:
    """Initial states (batch, nodes, 4), positions and velocities side by side, and adjacencies."""
    z0 = np.random.default_rng(0).standard_normal((batch, NODES, 4)).astype(np.float32)
    x = z0[..., :2]
    near = 4 * np.sum((x[:, :, None] - x[:, None]) ** 2, axis=-1) <= RADIUS**2
    return z0, (near & ~np.eye(NODES, dtype=bool)).astype(float)


def ours(batch: int) -> Job:
    import equinox as eqx
    import jax
    import jax.numpy as jnp

    import neuralgde as gde

    from ._ours import gcde, in_order

    z0 = jnp.asarray(problem(batch)[0])
    # Normalised once, before the clock starts, as for the others.
    graph = eqx.filter_jit(jax.vmap(lambda x: gde.Graph.from_positions(x, RADIUS).prepare("gcn")))(z0[..., :2])
    field = gcde(layers(WIDTHS))
    times = [0.0, UNTIL]

    @eqx.filter_jit
    def step(field, z0, graph):
        def loss(field_and_state):
            field, z0 = field_and_state
            sol = gde.solve(
                field, z0, times, graph, solver="dopri5", rtol=TOLERANCE, atol=TOLERANCE, throw=False
            )  # fmt: skip
            return jnp.mean(sol.states[:, -1] ** 2), (sol.states[:, -1], sol.stats)

        (_, aux), grads = eqx.filter_value_and_grad(loss, has_aux=True)((field, z0))
        return *aux, grads

    def run():
        states, _, (by_field, by_state) = jax.block_until_ready(step(field, z0, graph))
        return [states], [by_state, *in_order(by_field)]

    def stats():
        found = step(field, z0, graph)[1]
        return {name: int(found[f"num_{name}"]) for name in ("steps", "evaluations")}

    return Job(run, stats)


def _product(batch: int, sparse: bool):
    """The operator of all systems: batched dense matrices, or one block-diagonal CSR matrix as PyG batches graphs."""
    import scipy.sparse as sp
    import torch

    from ._torch import csr_product

    matrices = normalised(problem(batch)[1])
    if not sparse:
        return torch.tensor(matrices).__matmul__
    blocks = sp.block_diag([sp.csr_matrix(m) for m in matrices], format="csr")
    return csr_product(blocks.indptr, blocks.indices, blocks.data, batch * NODES)


def torchdiffeq_joint(batch: int, sparse: bool) -> Job:
    import torch
    from torchdiffeq import odeint

    from ._torch import GCDE, counted, differentiate

    z0 = problem(batch)[0]
    field = GCDE(layers(WIDTHS), _product(batch, sparse))
    times = torch.tensor([0.0, UNTIL])

    def forward(z):
        z = z.reshape(-1, 4) if sparse else z
        return odeint(field, z, times, method="dopri5", rtol=TOLERANCE, atol=TOLERANCE)[-1].reshape(z0.shape)

    run = differentiate(field, z0, forward)
    return Job(run, counted(field, 2, 6))


def torchode_each(batch: int) -> Job:
    """Every system with its own steps, in one batch."""
    import torch
    import torchode

    from ._torch import GCDE, counted, differentiate

    z0 = problem(batch)[0]
    field = GCDE(layers(WIDTHS), _product(batch, False))
    term = torchode.ODETerm(lambda t, y: field(t, y.reshape(z0.shape)).reshape(batch, -1))
    solver = torchode.AutoDiffAdjoint(
        torchode.Dopri5(term=term),
        torchode.IntegralController(atol=TOLERANCE, rtol=TOLERANCE, term=term),
        backprop_through_step_size_control=False,
    )
    start, end = torch.zeros(batch), torch.full((batch,), UNTIL)

    def forward(z):
        problem = torchode.InitialValueProblem(y0=z.reshape(batch, -1), t_start=start, t_end=end)
        return solver.solve(problem).ys[:, -1].reshape(z0.shape)

    run = differentiate(field, z0, forward)
    return Job(run, counted(field, 2, 6))


def works(quick: bool) -> list[Work]:
    batch = 32 if quick else 1280

    def least(stats: dict[str, int]) -> Least:
        entries = int(problem(batch)[1].sum()) + batch * NODES
        # The states of all systems fit in the last cache.
        return least_of_gcde(
            batch * NODES, entries, WIDTHS, stats["evaluations"], matrix_bytes=8 * entries, in_cache=True
        )

    return [
        Work(
            f"{batch} systems of {NODES} particles",
            (
                Contender("neuralgde", "ours", partial(ours, batch)),
                Contender("torchdiffeq, batched dense", "torch", partial(torchdiffeq_joint, batch, False)),
                Contender("torchdiffeq, block-diagonal CSR", "torch", partial(torchdiffeq_joint, batch, True)),
                Contender("torchode, batched dense", "torch", partial(torchode_each, batch)),
            ),
            (Bar(1.5),),
            least,
            # Steps at 1e-3 differ between libraries, and results with them.
            value_tolerance=5e-3,
            gradient_tolerance=2e-2,
        )
    ]


def run(machine, quick: bool, console, folder: Path) -> Report:
    del folder
    return Report([compare("systems", work, machine, quick, console) for work in works(quick)])
