"""Neural graph convolution differential equations."""

from collections.abc import Callable

import equinox as eqx
import jax
from jaxtyping import Array, Float, PRNGKeyArray

from .._types import Time
from ..graph import Graph
from ..nn import GCN, fast_activation
from ._checks import check_state, check_widths


class GCDE(eqx.Module):
    """dz/dt = f^N ∘ σ ∘ … ∘ σ ∘ f^1 (z) with f^k(z) = L z W_k + b_k; no activation after the last layer.

    `operator` names L, or several paths side by side, as in `nn.GCN`.
    """

    layers: tuple[GCN, ...]
    activation: Callable[[Array], Array] = eqx.field(static=True)

    def __init__(
        self,
        widths: tuple[int, ...],
        *,
        key: PRNGKeyArray,
        activation: Callable[[Array], Array] = jax.nn.tanh,
        operator: str | tuple[str, ...] = "gcn",
    ):
        widths = check_widths(widths, "GCDE")
        keys = jax.random.split(key, len(widths) - 1)
        self.layers = tuple(
            GCN(a, b, operator=operator, key=k) for a, b, k in zip(widths[:-1], widths[1:], keys, strict=True)
        )
        self.activation = fast_activation(activation)

    def prepare(self, graph: Graph) -> Graph:
        """The graph, carrying the operator that the layers multiply by."""
        return self.layers[0].prepare(graph)

    def __call__(self, t: Time, z: Float[Array, "nodes in"], graph: Graph) -> Float[Array, "nodes out"]:
        del t
        check_state(z, self.layers[0].in_size, graph, "GCDE")
        # The layers share one operator: without this, each of them would normalise the graph for itself.
        graph = self.prepare(graph)
        for layer in self.layers[:-1]:
            z = self.activation(layer(z, graph))
        return self.layers[-1](z, graph)
