"""Neural graph message passing differential equations."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from .._types import Time
from ..graph import Graph
from ..nn import fast_activation
from ..nn._init import glorot
from ._checks import check_state, check_widths


class GMDE(eqx.Module):
    """dz_v/dt = g(z_v, sum over edges u -> v of m(z_v, z_u)), with widths (in, hidden, out).

    m is a layer, σ(z_v W_v + z_u W_u + b) with `hidden` features; g is a perceptron with one hidden layer. A linear map
    at the end of m would change nothing: it commutes with the sum and merges into g. `self_term=False` is the paper's
    g(sum), without z_v. Edge weights and features are not used: for those, write a field around `nn.MessagePassing`.
    """

    message_target: Float[Array, "in hidden"]
    message_source: Float[Array, "in hidden"]
    message_bias: Float[Array, " hidden"]
    update_self: Float[Array, "in hidden"] | None
    update_sum: Float[Array, "hidden hidden"]
    update_bias: Float[Array, " hidden"]
    out_weight: Float[Array, "hidden out"]
    out_bias: Float[Array, " out"]
    activation: Callable[[Array], Array] = eqx.field(static=True)

    def __init__(
        self,
        widths: tuple[int, int, int],
        *,
        key: PRNGKeyArray,
        activation: Callable[[Array], Array] = jax.nn.tanh,
        self_term: bool = True,
    ):
        in_size, hidden, out_size = check_widths(widths, "GMDE", length=3)
        k_message, k_update, k_out = jax.random.split(key, 3)
        message = glorot(k_message, (2 * in_size, hidden))
        self.message_target, self.message_source = message[:in_size], message[in_size:]
        self.message_bias = jnp.zeros(hidden)
        own = in_size if self_term else 0
        update = glorot(k_update, (own + hidden, hidden))
        self.update_self = update[:own] if self_term else None
        self.update_sum = update[own:]
        self.update_bias = jnp.zeros(hidden)
        self.out_weight = glorot(k_out, (hidden, out_size))
        self.out_bias = jnp.zeros(out_size)
        self.activation = fast_activation(activation)

    def prepare(self, graph: Graph) -> Graph:
        """The graph as it is: messages need no operator."""
        return graph

    def __call__(self, t: Time, z: Float[Array, "nodes in"], graph: Graph) -> Float[Array, "nodes out"]:
        del t
        check_state(z, self.message_target.shape[0], graph, "GMDE")
        # Products run over nodes, never over edges: a message is linear in z_v and z_u up to its activation.
        arriving = graph.at_receivers(z @ self.message_target + self.message_bias)
        messages = self.activation(arriving + graph.at_senders(z @ self.message_source))
        total = graph.sum_to_receivers(jnp.where(graph.active_edges[:, None], messages, 0))
        hidden = total @ self.update_sum + self.update_bias
        if self.update_self is not None:
            hidden = hidden + z @ self.update_self
        return self.activation(hidden) @ self.out_weight + self.out_bias
