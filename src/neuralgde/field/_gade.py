"""Neural graph attention differential equations."""

from collections.abc import Callable

import equinox as eqx
import jax
from jaxtyping import Array, Float, PRNGKeyArray

from .._errors import InputError
from .._types import Time
from ..graph import Graph
from ..nn import GAT, fast_activation
from ._checks import check_state, check_widths


class GADE(eqx.Module):
    """dz/dt by attention layers: each node takes a mean of z W over its neighbours and itself, weighed by attention.

    Hidden layers have `heads` heads side by side, so the next one takes heads * width features; the last layer has one.
    The last layer is linear, so that dz/dt is not bounded; the paper's σ there is `final_activation`.
    """

    layers: tuple[GAT, ...]
    activation: Callable[[Array], Array] = eqx.field(static=True)
    final_activation: Callable[[Array], Array] | None = eqx.field(static=True)

    def __init__(
        self,
        widths: tuple[int, ...],
        heads: int = 1,
        *,
        key: PRNGKeyArray,
        activation: Callable[[Array], Array] = jax.nn.tanh,
        final_activation: Callable[[Array], Array] | None = None,
    ):
        widths = check_widths(widths, "GADE")
        if heads < 1:
            raise InputError(f"heads: expected 1 or more, got {heads}.")
        in_sizes = (widths[0], *(heads * w for w in widths[1:-1]))
        layer_heads = (*(heads for _ in widths[1:-1]), 1)
        keys = jax.random.split(key, len(widths) - 1)
        self.layers = tuple(
            GAT(a, b, heads=h, key=k) for a, b, h, k in zip(in_sizes, widths[1:], layer_heads, keys, strict=True)
        )
        self.activation = fast_activation(activation)
        self.final_activation = final_activation

    def prepare(self, graph: Graph) -> Graph:
        """The graph as the layers want it."""
        return self.layers[0].prepare(graph)

    def __call__(self, t: Time, z: Float[Array, "nodes in"], graph: Graph) -> Float[Array, "nodes out"]:
        del t
        out = self.layers[-1](self._inputs(z, graph)[-1], graph)
        return out if self.final_activation is None else self.final_activation(out)

    def attention(self, t: Time, z: Float[Array, "nodes in"], graph: Graph) -> tuple[Float[Array, "slots heads"], ...]:
        """The attention of each layer at this state: a weight per edge and head, the self loop of each node last."""
        del t
        inputs = self._inputs(z, graph)
        return tuple(layer.attention(x, graph) for layer, x in zip(self.layers, inputs, strict=True))

    def _inputs(self, z: Array, graph: Graph) -> list[Array]:
        """What each layer is given."""
        check_state(z, self.layers[0].weight.shape[0], graph, "GADE")
        inputs = [z]
        for layer in self.layers[:-1]:
            inputs.append(self.activation(layer(inputs[-1], graph)))
        return inputs
