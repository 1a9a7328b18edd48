"""Augmentation: input networks that start the equation with more features than the data has."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from .._errors import InputError
from ..graph import Graph
from ..nn._init import glorot


class ZeroAugment(eqx.Module):
    """x -> (x, 0): `extra` features that start at zero (Dupont et al. 2019)."""

    extra: int = eqx.field(static=True)

    def __check_init__(self):
        if self.extra < 0:
            raise InputError(f"extra: expected the number of features to add, 0 or more, got {self.extra}.")

    def prepare(self, graph: Graph) -> Graph:
        """The graph as it is."""
        return graph

    def __call__(self, x: Float[Array, "nodes in"], graph: Graph) -> Float[Array, "nodes out"]:
        del graph
        return jnp.pad(x, ((0, 0), (0, self.extra)))


class LearnedAugment(eqx.Module):
    """x -> (x, x W + b): `extra` features that start at a learned map of the data.

    With `operator` the map is a graph layer, x -> (x, L x W + b). In front of `SecondOrder`, with `extra` equal to
    `in_size`, x are the positions and the learned features the velocities.
    """

    weight: Float[Array, "in extra"]
    bias: Float[Array, " extra"]
    operator: str | None = eqx.field(static=True)

    def __init__(self, in_size: int, extra: int, *, operator: str | None = None, key: PRNGKeyArray):
        if in_size < 1 or extra < 1:
            raise InputError(f"in_size and extra: expected 1 or more of each, got {in_size} and {extra}.")
        self.weight = glorot(key, (in_size, extra))
        self.bias = jnp.zeros(extra)
        self.operator = operator

    def prepare(self, graph: Graph) -> Graph:
        """The graph, carrying the operator if there is one."""
        return graph if self.operator is None else graph.prepare(self.operator)

    def __call__(self, x: Float[Array, "nodes in"], graph: Graph) -> Float[Array, "nodes out"]:
        seen = x if self.operator is None else graph.operator(self.operator) @ x
        return jnp.concatenate([x, seen @ self.weight + self.bias], axis=1)
