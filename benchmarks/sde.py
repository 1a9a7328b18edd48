"""A training step of a graph SDE: 25 nodes, a batch of 10, adaptive Euler-Heun at 1e-3, 50 outputs, both ways."""

from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ._harness import Bar, Check, Contender, Job, Least, Report, Work, compare
from ._problems import normalised

NODES, BATCH = 25, 10
WIDTHS = (1, 3, 3, 1)  # the paper's networks, [GCN, GAT, GCN]
TOLERANCE = 1e-3
FINE = 32  # fixed steps an output interval of the solution that errors are measured against


class Network(NamedTuple):
    """The weights of one network: two convolutions, and an attention layer between them."""

    first: np.ndarray
    first_bias: np.ndarray
    middle: np.ndarray
    source: np.ndarray
    target: np.ndarray
    middle_bias: np.ndarray
    last: np.ndarray
    last_bias: np.ndarray


def networks() -> tuple[Network, Network]:
    """Those of drift and diffusion; biases that are not zero, so that their gradients are tested too."""
    rng = np.random.default_rng(0)
    a, b, c, d = WIDTHS
    shapes = ((a, b), (b,), (b, c), (c,), (c,), (c,), (c, d), (d,))

    def network() -> Network:
        return Network(*(rng.uniform(-1, 1, shape).astype(np.float32) for shape in shapes))

    return network(), network()


def problem(outputs: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """An adjacency, initial states (batch, nodes, 1), and the output times, a tenth of a unit apart."""
    rng = np.random.default_rng(1)
    upper = np.triu(rng.random((NODES, NODES)) < 0.2, 1)
    z0 = rng.standard_normal((BATCH, NODES, WIDTHS[0])).astype(np.float32)
    return (upper | upper.T).astype(float), z0, np.linspace(0, outputs / 10, outputs + 1)


def ours(outputs: int) -> Job:
    import equinox as eqx
    import jax
    import jax.numpy as jnp

    import neuralgde as gde

    adjacency, z0, times = problem(outputs)
    graph = gde.Graph.from_adjacency(adjacency, layout="pairs").prepare("gcn")
    z0 = jnp.asarray(z0)

    def field(given: Network, final):
        net = gde.GSDEField(WIDTHS, final_activation=final, key=jax.random.key(0))
        new = [jnp.asarray(x) for x in given]
        new[2], new[3], new[4] = new[2][:, None], new[3][None], new[4][None]
        return eqx.tree_at(in_order, net, new)

    def in_order(net) -> list:
        gat = net.middle
        return [
            net.first.weight, net.first.bias, gat.weight, gat.att_source, gat.att_target, gat.bias, net.last.weight,
            net.last.bias,
        ]  # fmt: skip

    drift, diffusion = networks()
    fields = field(drift, None), field(diffusion, jax.nn.sigmoid)

    def solve(fields, z0, graph, key, **options):
        return gde.solve_sde(*fields, z0, times, graph, key=key, throw=False, **options)

    @eqx.filter_jit
    def step(fields_and_state, graph, key):
        def loss(fields_and_state):
            sol = solve(*fields_and_state, graph, key, rtol=TOLERANCE, atol=TOLERANCE)
            return jnp.mean(sol.states**2), sol

        return eqx.filter_value_and_grad(loss, has_aux=True)(fields_and_state)

    @eqx.filter_jit
    def at_start(fields, z0, graph):
        def values(fields):
            return [jax.vmap(lambda z, f=f: f(0.0, z, graph))(z0) for f in fields]

        grads = eqx.filter_grad(lambda fields: sum(jnp.sum(v**2) for v in values(fields)))(fields)
        shapes = [x.shape for net in networks() for x in net]
        found = [x for net in grads for x in in_order(net)]
        return values(fields), [x.reshape(shape) for x, shape in zip(found, shapes, strict=True)]

    checked = jax.block_until_ready(at_start(fields, z0, graph))
    keys = iter(range(10**9))

    def run():
        # New noise at every step, as in training.
        jax.block_until_ready(step((fields, z0), graph, jax.random.key(next(keys))))
        return checked

    def stats():
        key = jax.random.key(0)
        (_, sol), _ = step((fields, z0), graph, key)
        fine = solve(fields, z0, graph, key, dt0=0.1 / FINE)
        error = float(jnp.sqrt(jnp.mean((sol.states - fine.states) ** 2)))
        return {"steps": int(sol.stats["num_steps"].max()), "error": error}

    return Job(run, stats)


def torchsde_adaptive(outputs: int, each: bool) -> Job:
    """With `each`, one call for every output, so that none is interpolated; without, as its users call it."""
    import torch
    import torchsde

    adjacency, start, times = problem(outputs)
    operator = torch.tensor(normalised(adjacency))
    takes_part = torch.tensor(adjacency + np.eye(NODES) > 0)

    class Net(torch.nn.Module):
        def __init__(self, given: Network):
            super().__init__()
            self.weights = torch.nn.ParameterList([torch.tensor(x) for x in given])

        def forward(self, z):
            first, first_bias, middle, source, target, middle_bias, last, last_bias = self.weights
            h = torch.tanh(operator @ z @ first + first_bias) @ middle
            logits = torch.nn.functional.leaky_relu((h @ source)[:, None] + (h @ target)[..., None], 0.2)
            weights = torch.softmax(logits.masked_fill(~takes_part, -torch.inf), dim=-1)
            return operator @ (torch.tanh(weights @ h + middle_bias) @ last) + last_bias

    class Equation(torch.nn.Module):
        noise_type, sde_type = "diagonal", "stratonovich"

        def __init__(self):
            super().__init__()
            self.nets = torch.nn.ModuleList([Net(given) for given in networks()])
            self.calls = 0

        def f(self, t, y):
            return self.nets[0](y.view(start.shape)).reshape(BATCH, -1)

        def g(self, t, y):
            self.calls += 1
            return torch.sigmoid(self.nets[1](y.view(start.shape))).reshape(BATCH, -1)

    equation = Equation()
    parameters = list(equation.parameters())
    ts = torch.tensor(times, dtype=torch.float32)
    options = {"method": "euler_heun", "adaptive": True, "rtol": TOLERANCE, "atol": TOLERANCE, "dt": 0.1}
    seeds = iter(range(10**9))

    def noise(seed):
        return torchsde.BrownianInterval(float(ts[0]), float(ts[-1]), size=(BATCH, NODES * WIDTHS[0]), entropy=seed)

    def forward(y, bm):
        if not each:
            return torchsde.sdeint(equation, y, ts, bm=bm, **options)
        ys = [y]
        for k in range(outputs):
            ys.append(torchsde.sdeint(equation, ys[-1], ts[k : k + 2], bm=bm, **options)[-1])
        return torch.stack(ys)

    def at_start():
        z = torch.tensor(start)
        values = [equation.nets[0](z), torch.sigmoid(equation.nets[1](z))]
        return values, list(torch.autograd.grad(sum((v**2).sum() for v in values), parameters))

    checked = at_start()

    def run():
        y = torch.tensor(start).reshape(BATCH, -1).requires_grad_()
        equation.calls = 0
        loss = (forward(y, noise(next(seeds))) ** 2).mean()
        torch.autograd.grad(loss, [y, *parameters])
        return checked

    def stats():
        y, bm = torch.tensor(start).reshape(BATCH, -1), noise(0)
        with torch.no_grad():
            equation.calls = 0
            found = forward(y, bm)
            steps = equation.calls // 6
            fine = torchsde.sdeint(equation, y, ts, bm=bm, method="euler_heun", dt=0.1 / FINE)
        return {"steps": steps, "error": float(((found - fine) ** 2).mean().sqrt())}

    return Job(run, stats)


EACH = "torchsde, to every output"


def works(quick: bool) -> list[Work]:
    outputs = 5 if quick else 50

    def least(stats: dict) -> Least:
        a, b, c, d = WIDTHS
        pairs = NODES * NODES
        once = 2 * BATCH * (pairs * (a + c + d) + NODES * (a * b + b * c + c * d))
        # Forward seven evaluations of a network a step, of which six are done again and differentiated.
        return Least(stats["steps"] * once * (7 + 6 * 3), 4 * BATCH * NODES * (outputs + 1))

    return [
        Work(
            f"graph SDE, {outputs} outputs",
            (
                Contender("neuralgde", "ours", partial(ours, outputs)),
                Contender("torchsde", "torch", partial(torchsde_adaptive, outputs, False)),
                Contender(EACH, "torch", partial(torchsde_adaptive, outputs, True)),
            ),
            # Interpolated outputs are not as accurate: the second is the comparison at equal accuracy.
            (Bar(None, ("torchsde",)), Bar(6.0, (EACH,))),
            least,
            # Paths differ, so what is compared are the networks and their gradients at the start.
            value_tolerance=1e-5,
            gradient_tolerance=1e-4,
        )
    ]


def run(machine, quick: bool, console, folder: Path) -> Report:
    del folder
    report = Report([compare("sde", work, machine, quick, console) for work in works(quick)])
    for comparison in report.comparisons:
        errors = {row["name"]: row["stats"]["error"] for row in comparison["contenders"]}
        peer = errors[EACH]
        report.checks.append(
            Check("graph SDE: error at the outputs, ours as a share of torchsde's", errors["neuralgde"] / peer, 1.1)
        )
        report.numbers["errors"] = errors
    return report
