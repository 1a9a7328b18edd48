"""Neural graph differential equations: encode, solve, read out."""

from collections.abc import Callable, Sequence
from typing import TypeAlias

import equinox as eqx
from jaxtyping import Array, ArrayLike, Float

from .._errors import InputError
from ..field import Field, prepare_graph
from ..graph import Graph
from ..integrate import Solution, SolveConfig, solve
from ._batch import over_batch

# layer(z, graph), (nodes, in) -> (nodes, out): any function of this shape is one. None leaves z as it is.
Layer: TypeAlias = Callable[[Array, Graph], Array] | None


class NeuralGDE(eqx.Module):
    """y_t = readout(z_t) with z_0 = encoder(x) and dz/dt = field(t, z), all of them on a graph.

    A batch of samples, x of shape (batch, nodes, in), is solved jointly, with one graph or one for each, and times of
    all or of each, as in `solve`. Where a solve fails the predictions are NaN; `solve` gives the cause.
    """

    encoder: Layer
    field: Field
    readout: Layer
    config: SolveConfig = eqx.field(static=True, default=SolveConfig())

    def __call__(
        self,
        x: Float[Array, "*batch nodes in"],
        times: ArrayLike | Sequence[float],
        graph: Graph,
    ) -> Float[Array, "*batch times nodes out"]:
        """The predictions at `times`."""
        graph = self._prepare(graph)
        states = self._solve(x, times, graph).states
        if self.readout is None:
            return states
        readout = eqx.filter_vmap(self.readout, in_axes=(0, None))
        return over_batch(readout, x, graph)(states, graph)

    def solve(
        self,
        x: Float[Array, "*batch nodes in"],
        times: ArrayLike | Sequence[float],
        graph: Graph,
    ) -> Solution:
        """The states before the readout, with a status that compares to `Status` and the counts of the solver."""
        return self._solve(x, times, self._prepare(graph))

    def _solve(self, x: Array, times: ArrayLike | Sequence[float], graph: Graph) -> Solution:
        if x.ndim not in (2, 3):
            raise InputError(f"x: expected shape (nodes, features) or (batch, nodes, features), got {x.shape}.")
        z0 = x if self.encoder is None else over_batch(self.encoder, x, graph)(x, graph)
        return solve(self.field, z0, times, graph, throw=False, **self.config.kwargs())

    def _prepare(self, graph: Graph) -> Graph:
        """The graph with what all parts need, made once."""

        def prepare(graph: Graph) -> Graph:
            for part in (self.encoder, self.field, self.readout):
                graph = graph if part is None else prepare_graph(part, graph)
            return graph

        return eqx.filter_vmap(prepare)(graph) if graph.senders.ndim == 2 else prepare(graph)
