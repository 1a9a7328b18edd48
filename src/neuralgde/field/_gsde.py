"""The paper's network for drift and diffusion of neural graph stochastic differential equations."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from .._errors import InputError
from .._types import Time
from ..graph import Graph
from ..nn import GAT, GCN
from ._checks import check_state, check_widths


class GSDEField(eqx.Module):
    """GCN ∘ σ ∘ GAT ∘ σ ∘ GCN: convolution, attention, convolution, from widths[0] features to widths[3].

    With `final_activation=jax.nn.sigmoid` it is the diffusion, which is then positive; without one, the drift.
    """

    first: GCN
    middle: GAT
    last: GCN
    activation: Callable[[Array], Array] = eqx.field(static=True)
    final_activation: Callable[[Array], Array] | None = eqx.field(static=True)

    def __init__(
        self,
        widths: tuple[int, ...] = (1, 3, 3, 1),
        heads: int = 1,
        *,
        key: PRNGKeyArray,
        activation: Callable[[Array], Array] = jax.nn.tanh,
        final_activation: Callable[[Array], Array] | None = None,
    ):
        a, b, c, d = check_widths(widths, "GSDEField", length=4)
        if heads < 1:
            raise InputError(f"heads: expected 1 or more, got {heads}.")
        k_first, k_middle, k_last = jax.random.split(key, 3)
        self.first = GCN(a, b, key=k_first)
        self.middle = GAT(b, c, heads=heads, key=k_middle)
        self.last = GCN(heads * c, d, key=k_last)
        self.activation = activation
        self.final_activation = final_activation

    def prepare(self, graph: Graph) -> Graph:
        """The graph, carrying the operator that the convolutions multiply by."""
        return self.first.prepare(graph)

    def __call__(self, t: Time, z: Float[Array, "nodes in"], graph: Graph) -> Float[Array, "nodes out"]:
        del t
        return self._finish(self._network(z, graph))

    def attention(self, t: Time, z: Float[Array, "nodes in"], graph: Graph) -> tuple[Float[Array, "slots heads"], ...]:
        """The attention of the middle layer at this state: a weight per edge and head, self loops last."""
        del t
        return (self.middle.attention(self._attended(z, graph), graph),)

    def _network(self, z: Array, graph: Graph) -> Array:
        # The convolutions share one operator: without this, each of them would normalise the graph for itself.
        graph = self.prepare(graph)
        return self.last(self.activation(self.middle(self._attended(z, graph), graph)), graph)

    def _finish(self, out: Array) -> Array:
        return out if self.final_activation is None else self.final_activation(out)

    def _attended(self, z: Array, graph: Graph) -> Array:
        """What the attention layer is given."""
        check_state(z, self.first.weight.shape[0], graph, "GSDEField")
        return self.activation(self.first(z, graph))


def evaluate_pair(
    drift: Callable[..., Array], diffusion: Callable[..., Array], t: Time, z: Array, graph: Any
) -> tuple[Array, Array]:
    """(drift, diffusion) at one state; networks of one shape as one with twice the weights, which saves many calls."""
    if not (isinstance(drift, GSDEField) and isinstance(diffusion, GSDEField)) or not _alike(drift, diffusion):
        return drift(t, z, graph), diffusion(t, z, graph)
    pairs = zip(jax.tree.leaves(drift), jax.tree.leaves(diffusion), strict=True)
    together = jax.tree.unflatten(jax.tree.structure(drift), [jnp.stack(pair) for pair in pairs])
    f, g = eqx.filter_vmap(lambda net: net._network(z, graph))(together)
    return drift._finish(f), diffusion._finish(g)


def _alike(first: GSDEField, second: GSDEField) -> bool:
    shapes = [[leaf.shape for leaf in jax.tree.leaves(net)] for net in (first, second)]
    return shapes[0] == shapes[1] and first.activation == second.activation
