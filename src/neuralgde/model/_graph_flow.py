"""Continuous graph flow: a normalising flow on node features, whose field is a graph network (Deng et al. 2019)."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from .._errors import InputError, unknown_name
from .._types import Time
from ..field import Field, prepare_graph
from ..graph import Graph
from ..integrate import SolveConfig, solve

TRACES = ("exact", "hutchinson")


class GraphFlow(eqx.Module):
    """x = z(1) where dz/dt = field(t, z, graph) from z(0) ~ N(0, 1), for all numbers of all nodes at once.

    log p(x) = log N(z(0)) - the integral over [0, 1] of tr(df/dz), along the path that ends in x. The exact trace takes
    as many derivatives as there are numbers; Hutchinson's is a mean of e^T (df/dz) e over random signs e, unbiased
    whatever their number, which stay the same along a path. Absent nodes take no part.
    """

    field: Field
    config: SolveConfig = eqx.field(static=True)

    def __init__(self, field: Field, config: SolveConfig | None = None):
        self.field = field
        self.config = config or SolveConfig(rtol=1e-5, atol=1e-5)

    def sample(
        self, graph: Graph, features: int, *, key: PRNGKeyArray, samples: int = 1
    ) -> Float[Array, "samples nodes features"]:
        """Draws from the density; zero at absent nodes."""
        z = jax.random.normal(key, (samples, graph.num_nodes, features))
        return solve(self._present(), _masked(z, graph), (0.0, 1.0), graph, **self._options()).states[:, -1]

    def log_likelihood(
        self,
        x: Float[Array, "*batch nodes features"],
        graph: Graph,
        *,
        trace: str = "exact",
        key: PRNGKeyArray | None = None,
        probes: int = 1,
    ) -> Float[Array, "*batch"]:
        """The logarithm of p(x) for each sample; Hutchinson's trace needs a key. Solves that fail give NaN."""
        if trace not in TRACES:
            raise InputError(unknown_name("trace", trace, TRACES))
        signs = None
        if trace == "hutchinson":
            if key is None or probes < 1:
                raise InputError("key, probes: Hutchinson's trace is random. Give a key, and one probe or more.")
            signs = jax.random.rademacher(key, (probes, *x.shape[-2:]), x.dtype)
        batch = x.reshape(-1, *x.shape[-2:])
        start = jnp.pad(_masked(batch, graph), ((0, 0), (0, 0), (0, 1)))
        field = _WithTrace(self._present(), signs)
        end = solve(field, start, (1.0, 0.0), graph, **self._options()).states[:, -1]
        z, change = end[..., :-1], end[..., -1]
        # Backwards the integral of the trace comes with the other sign.
        normal = jnp.where(graph.node_mask[:, None], -(z**2) / 2 - math.log(2 * math.pi) / 2, 0)
        return (jnp.sum(normal, axis=(1, 2)) + jnp.sum(change, axis=1)).reshape(x.shape[:-2])

    def _present(self) -> Field:
        return _Present(self.field)

    def _options(self) -> dict:
        return {**self.config.kwargs(), "throw": False}


def _masked(z: Array, graph: Graph) -> Array:
    return jnp.where(graph.node_mask[:, None], z, 0)


class _Present(eqx.Module):
    """The field, zero at absent nodes."""

    field: Field

    def prepare(self, graph: Graph) -> Graph:
        return prepare_graph(self.field, graph)

    def __call__(self, t: Time, z: Float[Array, "nodes features"], graph: Graph) -> Float[Array, "nodes features"]:
        return _masked(self.field(t, z, graph), graph)


class _WithTrace(eqx.Module):
    """(field, its trace as one more feature): each node has the part of its own numbers."""

    field: Field
    signs: Float[Array, "probes nodes features"] | None

    def prepare(self, graph: Graph) -> Graph:
        return prepare_graph(self.field, graph)

    def __call__(self, t: Time, z: Float[Array, "nodes all"], graph: Graph) -> Float[Array, "nodes all"]:
        state = z[:, :-1]
        f, push = jax.linearize(lambda s: self.field(t, s, graph), state)
        if self.signs is None:
            basis = jnp.eye(state.size, dtype=z.dtype).reshape(-1, *state.shape)
            diagonal = jnp.sum(jax.vmap(push)(basis) * basis, axis=0)
        else:
            diagonal = jnp.mean(jax.vmap(push)(self.signs) * self.signs, axis=0)
        return jnp.concatenate([f, jnp.sum(diagonal, axis=1, keepdims=True)], axis=1)
