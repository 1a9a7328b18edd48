"""Ten epochs of a GCDE on a graph of Cora's sizes: encoder, rk4 over [0, 1], readout, gradient and Adam's step."""

from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ._harness import Bar, Contender, Job, Least, Report, Work, compare
from ._problems import Layers, layers, least_of_gcde

RATE, WEIGHT_DECAY = 1e-2, 5e-3
SPAN = 1.0
EPOCHS = 10


class Size(NamedTuple):
    papers: int
    citations: int
    words: int
    words_a_paper: int
    hidden: int
    classes: int
    train: int


def size(quick: bool) -> Size:
    return Size(300, 600, 200, 10, 16, 7, 70) if quick else Size(2708, 5278, 1433, 18, 32, 7, 140)


class Problem(NamedTuple):
    """Random papers: which words they have (0 or 1), who cites whom (each pair once), and labels."""

    words: np.ndarray
    pairs: np.ndarray
    labels: np.ndarray


def problem(size: Size) -> Problem:
    rng = np.random.default_rng(0)
    words = (rng.random((size.papers, size.words)) < size.words_a_paper / size.words).astype(np.float32)
    words[np.arange(size.papers), rng.integers(0, size.words, size.papers)] = 1
    drawn = np.sort(rng.integers(0, size.papers, (3 * size.citations, 2)), axis=1)
    drawn = np.unique(drawn[drawn[:, 0] != drawn[:, 1]], axis=0)
    pairs = drawn[rng.permutation(len(drawn))[: size.citations]]
    return Problem(words, pairs, rng.integers(0, size.classes, size.papers))


def scaled(words: np.ndarray) -> np.ndarray:
    """Rows that add up to the mean number of words, as the experiment has them."""
    count = words.sum(1, keepdims=True)
    return words * (count.mean() / count)


def weights(size: Size) -> tuple[Layers, Layers, Layers]:
    """Encoder, field and readout."""
    return layers((size.words, size.hidden), 1), layers((size.hidden,) * 3, 3), layers((size.hidden, size.classes), 2)


def ours(size: Size) -> Job:
    import equinox as eqx
    import jax
    import jax.numpy as jnp
    import optax

    import neuralgde as gde
    from neuralgde.data import NodeClassification
    from neuralgde.experiments._cora_models import make_classifier
    from neuralgde.experiments._cora_papers import make_papers
    from neuralgde.experiments.cora import CoraConfig

    words, pairs, labels = problem(size)
    graph = gde.Graph.from_edges(*pairs.T, num_nodes=size.papers, undirected=True)
    nodes = jnp.arange(size.train)
    data = NodeClassification(
        jnp.asarray(words), jnp.asarray(labels), graph, nodes, nodes, nodes, size.classes, "random papers"
    )
    papers = make_papers(data)
    config = CoraConfig(hidden=size.hidden)
    model = make_classifier("GCDE", SPAN, config, size.words, size.classes, key=jax.random.key(0))
    given = [jnp.asarray(x) for part in weights(size) for pair in zip(*part, strict=True) for x in pair]
    model = eqx.tree_at(_in_order, model, given)
    tx = optax.chain(optax.add_decayed_weights(WEIGHT_DECAY), optax.adam(RATE))

    arrays, static = eqx.partition(model, eqx.is_inexact_array)

    def epoch(arrays, state, papers):
        def loss(arrays):
            logits = eqx.combine(arrays, static)(papers)
            chosen = logits[papers.train], papers.labels[papers.train]
            return jnp.mean(optax.softmax_cross_entropy_with_integer_labels(*chosen)), logits

        (_, logits), grads = jax.value_and_grad(loss, has_aux=True)(arrays)
        updates, state = tx.update(grads, state, arrays)
        return optax.apply_updates(arrays, updates), state, logits, grads

    @jax.jit
    def epochs(arrays, state, papers):
        # As `gde.fit` trains: all steps between two looks at the validation data are one program.
        # The first epoch's results are compared: small differences between methods grow with every step of Adam.
        *now, logits, grads = epoch(arrays, state, papers)
        now = jax.lax.fori_loop(1, EPOCHS, lambda _, now: epoch(*now, papers)[:2], tuple(now))
        return *now, logits, grads

    state = tx.init(arrays)

    def run():
        nonlocal arrays, state
        arrays, state, logits, grads = jax.block_until_ready(epochs(arrays, state, papers))
        return [logits], _in_order(grads)

    return Job(run, lambda: {"steps": EPOCHS, "evaluations": 4 * EPOCHS})


def _in_order(model) -> list:
    """Parameters or gradients of our classifier: encoder, field, readout, each layer's weight and bias."""
    parts = (model.encoder, *model.body.field.layers, model.readout)
    return [x for part in parts for x in (part.weight, part.bias)]


def _torch_job(size: Size, classifier, data) -> Job:
    """Epochs of a torch classifier whose `in_order` gives its parameters as ours are, weights (in, out)."""
    import torch

    labels = torch.tensor(problem(size).labels[: size.train])
    optimiser = torch.optim.Adam(classifier.parameters(), lr=RATE, weight_decay=WEIGHT_DECAY)

    def run():
        classifier.field.calls = 0
        first = None
        for _ in range(EPOCHS):
            optimiser.zero_grad()
            logits = classifier(*data)
            torch.nn.functional.cross_entropy(logits[: size.train], labels).backward()
            # New gradients are new arrays, so these stay what they are.
            first = first or ([logits], [p.grad.T if turned else p.grad for p, turned in classifier.in_order()])
            optimiser.step()
        return first

    return Job(run, lambda: {"steps": EPOCHS, "evaluations": classifier.field.calls})


def _edge_index(size: Size):
    import torch

    pairs = problem(size).pairs
    return torch.tensor(np.concatenate([pairs, pairs[:, ::-1]]).T.copy())


def pyg(size: Size, compressed: bool) -> Job:
    """torch_geometric's GCNConv, which keeps the normalised graph: on the edge list, or on torch's CSR matrix."""
    import torch
    from torch_geometric.nn import GCNConv
    from torch_geometric.utils import to_torch_csr_tensor
    from torchdiffeq import odeint

    encoder, field, readout = weights(size)

    def conv(w, b):
        layer = GCNConv(*w.shape, cached=True)
        layer.lin.weight.data, layer.bias.data = torch.tensor(w).T.contiguous(), torch.tensor(b)
        return layer

    class Field(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = torch.nn.ModuleList([conv(w, b) for w, b in zip(*field, strict=True)])
            self.calls, self.graph = 0, None

        def forward(self, t, z):
            self.calls += 1
            return self.layers[1](torch.tanh(self.layers[0](z, self.graph)), self.graph)

    class Classifier(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.encoder, self.field = conv(encoder.weights[0], encoder.biases[0]), Field()
            self.readout = conv(readout.weights[0], readout.biases[0])

        def forward(self, x, graph):
            self.field.graph = graph
            z = torch.relu(self.encoder(x, graph))
            times = torch.tensor([0.0, SPAN])
            z = odeint(self.field, z, times, method="rk4", options={"step_size": 1.0})[-1]
            return self.readout(z, graph)

        def in_order(self):
            parts = (self.encoder, *self.field.layers, self.readout)
            return [pair for part in parts for pair in ((part.lin.weight, True), (part.bias, False))]

    graph = _edge_index(size)
    if compressed:
        graph = to_torch_csr_tensor(graph, size=(size.papers, size.papers))
    return _torch_job(size, Classifier(), (torch.tensor(scaled(problem(size).words)), graph))


def torch_csr(size: Size) -> Job:
    """No PyG: words and graph as CSR matrices whose transposes are made once, the best that torch can be made to do."""
    import scipy.sparse as sp
    import torch
    from torchdiffeq import odeint

    from ._torch import GCDE, csr_matrix_product, csr_product

    words, pairs, _ = problem(size)
    n = size.papers
    a = sp.coo_matrix((np.ones(len(pairs)), pairs.T), shape=(n, n))
    a = a + a.T + sp.identity(n)
    scale = sp.diags(np.asarray(a.sum(1)).ravel() ** -0.5)
    a = (scale @ a @ scale).tocsr()
    multiply = csr_product(a.indptr, a.indices, a.data, n)
    bag = csr_matrix_product(sp.csr_matrix(scaled(words)))
    encoder, field, readout = weights(size)

    class Classifier(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.field = GCDE(field, multiply)
            given = (*encoder.weights, *encoder.biases, *readout.weights, *readout.biases)
            self.outer = torch.nn.ParameterList([torch.tensor(x) for x in given])

        def forward(self):
            w_in, b_in, w_out, b_out = self.outer
            z = torch.relu(multiply(bag(w_in)) + b_in)
            times = torch.tensor([0.0, SPAN])
            z = odeint(self.field, z, times, method="rk4", options={"step_size": 1.0})[-1]
            return multiply(z @ w_out) + b_out

        def in_order(self):
            w_in, b_in, w_out, b_out = self.outer
            return [(p, False) for p in (w_in, b_in, *self.field.in_order(), w_out, b_out)]

    return _torch_job(size, Classifier(), ())


def works(quick: bool) -> list[Work]:
    s = size(quick)
    entries = 2 * s.citations + s.papers
    num_words = int(problem(s).words.sum())
    parameters = s.words * s.hidden + 2 * s.hidden**2 + s.hidden * s.classes

    def least(stats: dict[str, int]) -> Least:
        solve = least_of_gcde(
            s.papers, entries, (s.hidden,) * 3, stats["evaluations"], matrix_bytes=8 * entries, in_cache=True
        )
        # The words forward and for the encoder's gradient, the graph both ways around them; then the readout.
        outer = 4 * num_words * s.hidden + 4 * entries * s.hidden
        outer += 4 * entries * s.classes + 6 * s.papers * s.hidden * s.classes + 15 * parameters
        # Adam reads parameter, gradient and two moments, and writes three of them.
        moved = 8 * num_words + 28 * parameters
        return Least(solve.operations + EPOCHS * outer, solve.bytes + EPOCHS * moved)

    return [
        Work(
            f"Cora's sizes: {EPOCHS} epochs of a GCDE, {s.papers} papers, {s.hidden} features",
            (
                Contender("neuralgde", "ours", partial(ours, s)),
                Contender("PyG edge list + torchdiffeq", "torch", partial(pyg, s, False)),
                Contender("PyG CSR + torchdiffeq", "torch", partial(pyg, s, True)),
                Contender("torch CSR, words too + torchdiffeq", "torch", partial(torch_csr, s)),
            ),
            (Bar(3, ("PyG edge list + torchdiffeq", "PyG CSR + torchdiffeq")), Bar(None)),
            least,
            # torchdiffeq's rk4 is Kutta's 3/8 rule, ours the classical one: same order and cost, other numbers.
            value_tolerance=1e-3,
            gradient_tolerance=1e-2,
        )
    ]


def run(machine, quick: bool, console, folder: Path) -> Report:
    del folder
    return Report([compare("cora", work, machine, quick, console) for work in works(quick)])
