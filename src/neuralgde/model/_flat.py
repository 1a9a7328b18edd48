"""The perceptron on the flattened state of all nodes, which Static and the Neural ODE share."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from .._errors import InputError
from ..graph import Graph


class FlatMLP(eqx.Module):
    """All features of all nodes -> as many, by `layers` dense layers with `width` hidden units a node.

    The defaults are the paper's 4n, 8n, 8n, 4n. It names no activation: ours is tanh, as in the fields, on all layers
    but the last. With `adjacency` the dense adjacency is a further input.
    Unlike a graph layer it knows nodes by their number: it is for graphs of one size, and depends on the nodes' order.
    """

    mlp: eqx.nn.MLP
    num_nodes: int = eqx.field(static=True)
    features: int = eqx.field(static=True)
    adjacency: bool = eqx.field(static=True)

    def __init__(
        self,
        num_nodes: int,
        features: int = 4,
        *,
        width: int = 8,
        layers: int = 3,
        activation: Callable[[Array], Array] = jax.nn.tanh,
        adjacency: bool = False,
        key: PRNGKeyArray,
    ):
        for name, value in (("num_nodes", num_nodes), ("features", features), ("width", width), ("layers", layers)):
            if value < 1:
                raise InputError(f"{name}: expected a whole number, 1 or more, got {value}.")
        size = num_nodes * features
        in_size = size + num_nodes**2 if adjacency else size
        self.mlp = eqx.nn.MLP(in_size, size, width * num_nodes, layers - 1, activation=activation, key=key)
        self.num_nodes = num_nodes
        self.features = features
        self.adjacency = adjacency

    def __call__(self, z: Float[Array, "nodes features"], graph: Graph) -> Float[Array, "nodes features"]:
        if z.shape != (self.num_nodes, self.features):
            raise InputError(
                f"z: expected shape {(self.num_nodes, self.features)}, the nodes and features that the network was "
                f"built for, got {z.shape}. It cannot be used on graphs of another size."
            )
        # What absent nodes hold must not reach the others.
        inputs = jnp.where(graph.node_mask[:, None], z, 0).ravel()
        if self.adjacency:
            inputs = jnp.concatenate([inputs, graph.to_dense().astype(z.dtype).ravel()])
        return self.mlp(inputs).reshape(z.shape)
