"""Cora as its classifiers take it: two sparse graphs, the labels, the split, and the graph's spectrum."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ..data import NodeClassification
from ..graph import Graph


class Spectrum(eqx.Module):
    """D^-1/2 A D^-1/2 = Q diag(values) Q^T, for the closed form of linear diffusion."""

    values: Float[Array, " nodes"]
    vectors: Float[Array, "nodes nodes"]


class Papers(eqx.Module):
    """The graph of citations with its operator made once, and the words as a graph of their own.

    In the graph of words each word, a node after the papers, sends to the papers that have it. Its edges are about a
    hundredth of the matrix of features, so products with it, and dropout on it, cost a hundredth.
    """

    graph: Graph
    words: Graph
    labels: Int[Array, " nodes"]
    train: Int[Array, " train"]
    val: Int[Array, " val"]
    test: Int[Array, " test"]
    num_classes: int = eqx.field(static=True)
    spectrum: Spectrum | None = None

    @property
    def num_words(self) -> int:
        return self.words.num_nodes - self.graph.num_nodes


def make_papers(data: NodeClassification) -> Papers:
    """The data set as the classifiers take it (host code).

    A paper's words have equal weights, whose sum is the mean number of words in all papers. With the usual sum of 1
    hidden states start so small that a field learns to blow them up before it learns anything else.
    """
    features = np.asarray(data.features)
    num_papers, num_words = features.shape
    papers, words = np.nonzero(features)
    count = np.bincount(papers, minlength=num_papers)
    weights = (count.mean() / count[papers]).astype(features.dtype)
    bag = Graph.from_edges(num_papers + words, papers, weights, num_nodes=num_papers + num_words).with_layout("csr")
    return Papers(data.graph.prepare("gcn"), bag, data.labels, data.train, data.val, data.test, data.num_classes)


def without_edges(papers: Papers) -> Papers:
    """The same papers, none of which cites another."""
    graph = papers.graph.with_edge_mask(np.zeros(papers.graph.num_edges, bool)).prepare("gcn")
    return eqx.tree_at(lambda p: p.graph, papers, graph)


def with_spectrum(papers: Papers) -> Papers:
    """The same papers with the spectrum of their graph, which is undirected (host code)."""
    adjacency = -np.asarray(papers.graph.operator("scaled_laplacian").to_dense(), float)
    values, vectors = np.linalg.eigh(adjacency)
    dtype = papers.words.weights.dtype
    spectrum = Spectrum(jnp.asarray(values, dtype), jnp.asarray(vectors, dtype))
    return eqx.tree_at(lambda p: p.spectrum, papers, spectrum, is_leaf=lambda x: x is None)
