"""The classifiers of the Cora experiment: the same two layers in all of them, and between them a body that differs."""

import abc
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from .._errors import InputError
from .._types import Time
from ..field import GADE, GCDE, ContinuousGNN, Field, ResidualGNN, breakpoints_of, prepare_graph
from ..graph import Graph
from ..integrate import SolveConfig, solve
from ..nn import GCN
from ._cora_papers import Papers

if TYPE_CHECKING:
    from .cora import CoraConfig

# The first have nothing between their two layers; the others are run for each length S.
SHALLOW = ("MLP", "GCN")
DEEP = ("plain GCN", "residual GCN", "GCDE", "CGNN", "GADE")
MODELS = (*SHALLOW, *DEEP)
# A step of the classical Runge-Kutta method evaluates the field four times.
_SOLVER, _STAGES = "rk4", 4


class AbstractBody(eqx.Module):
    """What is between the first and the last layer: hidden state in, hidden state out."""

    @abc.abstractmethod
    def __call__(
        self, z: Float[Array, "nodes hidden"], papers: Papers, key: PRNGKeyArray | None = None
    ) -> Float[Array, "nodes hidden"]:
        """The state at the end; with a key, under dropout."""

    @abc.abstractmethod
    def path(self, z: Float[Array, "nodes hidden"], papers: Papers) -> Float[Array, "states nodes hidden"]:
        """The states on the way, from the first to the last, evenly spaced in depth."""


class MaskedField(eqx.Module):
    """field(t, z * mask): dropout that stays the same along a solve, so that it is an equation still."""

    field: Field
    mask: Float[Array, "nodes hidden"]

    @property
    def breakpoints(self) -> np.ndarray | Array | None:
        return breakpoints_of(self.field)

    def prepare(self, graph: Graph) -> Graph:
        """The graph as the inner field wants it."""
        return prepare_graph(self.field, graph)

    def __call__(self, t: Time, z: Float[Array, "nodes hidden"], graph: Graph) -> Float[Array, "nodes hidden"]:
        return self.field(t, z * self.mask, graph)


class Flow(AbstractBody):
    """z(0) -> z(span) by dz/dt = field(t, z), in fixed steps."""

    field: Field
    dropout: eqx.nn.Dropout
    span: float = eqx.field(static=True)
    solver: str = eqx.field(static=True)
    step: float = eqx.field(static=True)

    def __call__(self, z, papers, key=None):
        field = self.field
        if key is not None:
            field = MaskedField(field, self.dropout(jnp.ones_like(z), key=key))
        return self._solve(field, z, papers, 1)[-1]

    def path(self, z, papers):
        return self._solve(self.field, z, papers, round(self.span / self.step))

    def _solve(self, field: Field, z: Array, papers: Papers, outputs: int) -> Array:
        # All states of a solve fit in memory many times over, so nothing is computed twice.
        config = SolveConfig(solver=self.solver, dt0=self.step, adjoint="direct")
        times = np.linspace(0.0, self.span, outputs + 1)
        return solve(field, z, times, papers.graph, throw=False, **config.kwargs()).states


class Stack(AbstractBody):
    """z -> relu(L z W_k + b_k), layer after layer."""

    layers: GCN

    def __init__(self, hidden: int, depth: int, *, key: PRNGKeyArray):
        self.layers = eqx.filter_vmap(lambda k: GCN(hidden, hidden, key=k))(jax.random.split(key, depth))

    def __call__(self, z, papers, key=None):
        del key
        return self._run(z, papers)[0]

    def path(self, z, papers):
        return jnp.concatenate([z[None], self._run(z, papers)[1]])

    def _run(self, z: Array, papers: Papers) -> tuple[Array, Array]:
        arrays, static = eqx.partition(self.layers, eqx.is_array)

        def advance(z, layer):
            z = jax.nn.relu(eqx.combine(layer, static)(z, papers.graph))
            return z, z

        return jax.lax.scan(advance, z, arrays)


class Diffusion(AbstractBody):
    """The continuous graph neural network from z to z(span), by its closed form in the eigenvectors of the graph."""

    field: ContinuousGNN
    span: float = eqx.field(static=True)

    def __call__(self, z, papers, key=None):
        del key
        return self._at(self.span, z, papers)

    def path(self, z, papers):
        times = jnp.linspace(0.0, self.span, 11, dtype=z.dtype)
        return jax.lax.map(lambda t: self._at(t, z, papers), times)

    def _at(self, t: Time, z: Array, papers: Papers) -> Array:
        if papers.spectrum is None or self.field.mixing is None:
            raise InputError("Diffusion: expected papers with a spectrum, and a field whose features mix.")
        values, vectors = papers.spectrum.values.astype(z.dtype), papers.spectrum.vectors.astype(z.dtype)
        u, rates = self.field.mixing.rotation, self.field.mixing.rates
        # In these coordinates every entry has dh/dt = r h + e and h(0) = e, with r < 0.
        r = self.field.alpha / 2 * (1 + values[:, None]) - 1 - rates
        gain = jnp.exp(r * t) + jnp.expm1(r * t) / r
        return (vectors @ (gain * (vectors.T @ (z @ u)))) @ u.T


class Encoder(eqx.Module):
    """relu(L X W + b) with the words X of the papers. Dropout hits the words that are there, and no zeros."""

    weight: Float[Array, "words hidden"]
    bias: Float[Array, " hidden"]
    dropout: eqx.nn.Dropout

    def __init__(self, num_words: int, hidden: int, dropout: float, *, key: PRNGKeyArray):
        layer = GCN(num_words, hidden, key=key)
        self.weight, self.bias = layer.weight, jnp.zeros(hidden)
        self.dropout = eqx.nn.Dropout(dropout)

    def __call__(self, papers: Papers, key: PRNGKeyArray | None = None) -> Float[Array, "nodes hidden"]:
        words = papers.words
        kept = words.with_weights(self.dropout(words.weights, key=key, inference=key is None))
        num_papers = papers.graph.num_nodes
        # In the graph of words a paper sends nothing.
        sent = jnp.zeros((num_papers, self.weight.shape[1]), self.weight.dtype)
        bag = kept.operator("adjacency") @ jnp.concatenate([sent, self.weight])
        return jax.nn.relu(papers.graph.operator("gcn") @ bag[:num_papers] + self.bias)


class Classifier(eqx.Module):
    """Logits: readout(body(encoder(papers))). With a key the words, the body and the readout's inputs have dropout."""

    encoder: Encoder
    body: AbstractBody | None
    readout: GCN
    dropout: eqx.nn.Dropout

    def __call__(self, papers: Papers, key: PRNGKeyArray | None = None) -> Float[Array, "nodes classes"]:
        k_words, k_body, k_readout = (None, None, None) if key is None else jax.random.split(key, 3)
        z = self.encoder(papers, k_words)
        if self.body is not None:
            z = self.body(z, papers, k_body)
        return self.readout(self.dropout(z, key=k_readout, inference=key is None), papers.graph)

    def path(self, papers: Papers) -> Float[Array, "states nodes hidden"]:
        """The hidden states between the two layers."""
        z = self.encoder(papers)
        return z[None] if self.body is None else self.body.path(z, papers)


def make_classifier(
    name: str, span: float, config: "CoraConfig", num_words: int, num_classes: int, *, key: PRNGKeyArray
) -> Classifier:
    """A classifier by the name of its body, whose length is `span`, or its number of evaluations where it is discrete.

    The MLP is a GCN on papers whose graph has no edges.
    """
    k_encoder, k_body, k_readout = jax.random.split(key, 3)
    dropout = config.regularisation[name].dropout
    return Classifier(
        Encoder(num_words, config.hidden, dropout, key=k_encoder),
        None if name in SHALLOW else _make_body(name, span, config, k_body),
        GCN(config.hidden, num_classes, key=k_readout),
        eqx.nn.Dropout(dropout),
    )


def _make_body(name: str, span: float, config: "CoraConfig", key: PRNGKeyArray) -> AbstractBody:
    size, depth = config.hidden, _STAGES * round(span / config.step)
    dropout = eqx.nn.Dropout(config.regularisation[name].dropout)
    if name == "GCDE":
        return Flow(_at_rest(GCDE((size, size, size), key=key)), dropout, span, _SOLVER, config.step)
    if name == "GADE":
        field = GADE((size, size), key=key, final_activation=jax.nn.tanh)
        return Flow(_at_rest(field), dropout, span, _SOLVER, config.step)
    if name == "residual GCN":
        fields = tuple(_at_rest(GCDE((size, size, size), key=k)) for k in jax.random.split(key, depth))
        # Euler's method with step 1 on parameters that jump is the residual network, in one scan.
        return Flow(ResidualGNN(fields).as_depth_varying(), dropout, float(depth), "euler", 1.0)
    if name == "plain GCN":
        return Stack(size, depth, key=key)
    return Diffusion(ContinuousGNN(size, key=key), span)


def _at_rest(field: Any) -> Any:
    """The field with a last layer of zeros. From random ones states grow with S before anything is learnt."""
    return eqx.tree_at(lambda f: f.layers[-1].weight, field, replace_fn=jnp.zeros_like)
