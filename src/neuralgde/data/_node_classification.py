"""NodeClassification: a graph whose nodes have features and labels, some of them for training."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ..graph import Graph


class NodeClassification(eqx.Module):
    """One graph, the features and the label of each node, and which nodes are for training, validation and test.

    `train`, `val` and `test` are node indices, so that `logits[data.train]` has a shape that `jit` knows. Nodes in none
    of them have labels that no one should look at.
    """

    features: Float[Array, "nodes features"]
    labels: Int[Array, " nodes"]
    graph: Graph
    train: Int[Array, " train"]
    val: Int[Array, " val"]
    test: Int[Array, " test"]
    num_classes: int = eqx.field(static=True)
    name: str = eqx.field(static=True)


def assemble(
    features: np.ndarray,
    labels: np.ndarray,
    edges: np.ndarray,
    splits: tuple[np.ndarray, np.ndarray, np.ndarray],
    num_classes: int,
    name: str,
    row_normalise: bool,
) -> NodeClassification:
    """A data set from host arrays; `edges` are pairs (i, j) of an undirected graph, each once, no self loops."""
    if row_normalise:
        total = features.sum(1, keepdims=True)
        features = features / np.where(total == 0, 1, total)
    train, val, test = map(np.sort, splits)
    return NodeClassification(
        jnp.asarray(features, float),
        jnp.asarray(labels, jnp.int32),
        Graph.from_edges(edges[:, 0], edges[:, 1], num_nodes=len(features), undirected=True),
        jnp.asarray(train, jnp.int32),
        jnp.asarray(val, jnp.int32),
        jnp.asarray(test, jnp.int32),
        num_classes,
        name,
    )
