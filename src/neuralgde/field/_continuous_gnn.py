"""The linear continuous graph neural network (Xhonneux et al. 2020), which has a closed form."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.scipy.linalg import expm
from jaxtyping import Array, Float, PRNGKeyArray

from .._errors import InputError
from .._types import Time
from ..graph import Graph
from ._checks import split_halves

# The normalised adjacency with its sign turned.
_OPERATOR = "scaled_laplacian"


class _Mixing(eqx.Module):
    """I - W = U diag(rates) U^T by its eigenvectors and eigenvalues, which the closed form needs one by one."""

    free: Float[Array, "size size"]
    logits: Float[Array, " size"]

    def __init__(self, size: int, *, key: PRNGKeyArray):
        k_free, k_logits = jax.random.split(key)
        self.free = jax.random.normal(k_free, (size, size)) / size**0.5
        self.logits = jax.random.normal(k_logits, (size,))

    @property
    def rotation(self) -> Float[Array, "size size"]:
        """U, orthogonal whatever the parameters are: the Cayley transform of a skew matrix."""
        skew = self.free - self.free.T
        identity = jnp.eye(skew.shape[0], dtype=skew.dtype)
        return jnp.linalg.solve(identity + skew, identity - skew)

    @property
    def rates(self) -> Float[Array, " size"]:
        """1 - m, in (0, 1)."""
        return jax.nn.sigmoid(self.logits)


class ContinuousGNN(eqx.Module):
    """dh/dt = (A - I) h + h (W - I) + e with A = alpha/2 (I + D^-1/2 A_G D^-1/2), and de/dt = 0, on z = (h, e).

    e is the source, usually the encoded features, which h starts from too: `start(e)`. Carried in the state beside h,
    it leaves this a field like any other. With `size`, the features of h, and a key there is a W that mixes them; else
    h (W - I) is left out. alpha and the eigenvalues of W = U diag(m) U^T stay in (0, 1), so on undirected graphs no
    trajectory explodes.
    """

    logit_alpha: Float[Array, ""]
    mixing: _Mixing | None

    def __init__(self, size: int | None = None, *, alpha: float = 0.9, key: PRNGKeyArray | None = None):
        if not 0 < alpha < 1:
            raise InputError(f"alpha: expected a number between 0 and 1, got {alpha}.")
        if size is not None and size < 1:
            raise InputError(f"size: expected the number of features of h, 1 or more, got {size}.")
        if (size is None) != (key is None):
            raise InputError("size and key: give both for features that mix, or neither.")
        self.logit_alpha = jax.scipy.special.logit(jnp.asarray(alpha, float))
        self.mixing = None if size is None or key is None else _Mixing(size, key=key)

    @property
    def alpha(self) -> Float[Array, ""]:
        """How much of the neighbourhood is kept."""
        return jax.nn.sigmoid(self.logit_alpha)

    @property
    def weight(self) -> Float[Array, "size size"] | None:
        """W, or None where the features do not mix."""
        if self.mixing is None:
            return None
        u, rates = self.mixing.rotation, self.mixing.rates
        return (u * (1 - rates)) @ u.T

    def start(self, e: Float[Array, "nodes size"]) -> Float[Array, "nodes features"]:
        """The state (e, e) that the model starts from."""
        return jnp.concatenate([e, e], axis=1)

    def prepare(self, graph: Graph) -> Graph:
        """The graph, carrying the normalised adjacency."""
        return graph.prepare(_OPERATOR)

    def __call__(self, t: Time, z: Float[Array, "nodes features"], graph: Graph) -> Float[Array, "nodes features"]:
        del t
        h, e = self._split(z)
        dh = self.alpha / 2 * (h - graph.operator(_OPERATOR) @ h) - h + e
        if self.mixing is not None:
            u = self.mixing.rotation
            dh = dh - ((h @ u) * self.mixing.rates) @ u.T
        return jnp.concatenate([dh, jnp.zeros_like(e)], axis=1)

    def closed_form(self, z0: Float[Array, "nodes features"], t: Time, graph: Graph) -> Float[Array, "nodes features"]:
        """The state at time t from z0 at time 0, by matrix exponentials of twice the number of nodes: small graphs."""
        h, e = self._split(z0)
        n = graph.num_nodes
        identity, zero = jnp.eye(n, dtype=z0.dtype), jnp.zeros((n, n), z0.dtype)
        adjacency = self.alpha / 2 * (identity - graph.operator(_OPERATOR).to_dense().astype(z0.dtype))
        if self.mixing is None:
            u, rates = jnp.eye(h.shape[1], dtype=z0.dtype), jnp.zeros(1, z0.dtype)
        else:
            u, rates = self.mixing.rotation, self.mixing.rates

        def propagators(rate):
            # exp of [[M, I], [0, 0]] t holds exp(M t) and the integral of exp(M s) from 0 to t, M singular or not.
            block = jnp.block([[adjacency - (1 + rate) * identity, identity], [zero, zero]])
            return expm(block * jnp.asarray(t, z0.dtype))[:n]

        # In the coordinates h U the features do not mix: each decays at a rate of its own.
        both = jnp.concatenate([h @ u, e @ u])
        whole = jnp.broadcast_to(jax.vmap(propagators)(rates), (h.shape[1], n, 2 * n))
        return jnp.concatenate([jnp.einsum("knm,mk->nk", whole, both) @ u.T, e], axis=1)

    def _split(self, z: Array) -> tuple[Array, Array]:
        h, e = split_halves(z, "ContinuousGNN", "the state h and its source e")
        if self.mixing is not None and h.shape[1] != self.mixing.logits.shape[0]:
            size = self.mixing.logits.shape[0]
            raise InputError(f"z: expected h and e of {size} features each, side by side, got {z.shape[1]} in all.")
        return h, e
