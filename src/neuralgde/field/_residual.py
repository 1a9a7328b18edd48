"""The residual graph neural network that the differential equation is the limit of."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._errors import InputError
from ..graph import Graph
from ._depth import DepthVarying
from ._protocol import Field, prepare_graph


class ResidualGNN(eqx.Module):
    """Z_{k+1} = Z_k + f^k(k, Z_k), one field with parameters of its own per layer: a discrete model, called on Z_0.

    It is Euler's method with step 1 on `as_depth_varying()`.
    """

    fields: tuple[Field, ...]

    def __init__(self, fields: tuple[Field, ...]):
        self.fields = tuple(fields)
        if not self.fields:
            raise InputError("fields: expected one field per layer, got none.")

    def prepare(self, graph: Graph) -> Graph:
        """The graph as all of the fields want it."""
        for field in self.fields:
            graph = prepare_graph(field, graph)
        return graph

    def __call__(self, z: Float[Array, "nodes features"], graph: Graph) -> Float[Array, "nodes features"]:
        return self._states(z, graph)[-1]

    def states(self, z: Float[Array, "nodes features"], graph: Graph) -> Float[Array, "states nodes features"]:
        """Z_0, Z_1, …, Z_N."""
        return jnp.stack(self._states(z, graph))

    def as_depth_varying(self) -> DepthVarying:
        """The field on [0, N] whose parameters on the cell [k, k + 1) are those of layer k."""
        parts = [eqx.partition(field, eqx.is_inexact_array) for field in self.fields]
        alike = all(eqx.tree_equal(rest, parts[0][1]) for _, rest in parts)
        shapes = [jax.tree.map(jnp.shape, theta) for theta, _ in parts]
        if not alike or any(s != shapes[0] for s in shapes):
            raise InputError("fields: expected layers that differ in nothing but the values of their parameters.")
        depth = len(self.fields)
        field = DepthVarying(self.fields[0], "piecewise", depth, (0.0, float(depth)))
        stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *(theta for theta, _ in parts))
        return eqx.tree_at(lambda f: f.coefficients, field, stacked)

    def _states(self, z: Array, graph: Graph) -> list[Array]:
        graph = self.prepare(graph)
        out = [z]
        for k, field in enumerate(self.fields):
            out.append(out[-1] + field(float(k), out[-1], graph))
        return out
