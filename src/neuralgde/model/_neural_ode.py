"""The Neural ODE baseline: Static's network as a vector field."""

from typing import Any

import equinox as eqx
from jaxtyping import Array, Float, PRNGKeyArray

from .._types import Time
from ..graph import Graph
from ..integrate import SolveConfig
from ._flat import FlatMLP
from ._neural_gde import NeuralGDE


class FlatField(eqx.Module):
    """dz/dt = network(z) on the flattened state: the graph is not used, unless the adjacency is an input."""

    network: FlatMLP

    def __init__(self, num_nodes: int, features: int = 4, *, key: PRNGKeyArray, **options: Any):
        self.network = FlatMLP(num_nodes, features, key=key, **options)

    def __call__(self, t: Time, z: Float[Array, "nodes features"], graph: Graph) -> Float[Array, "nodes features"]:
        del t
        return self.network(z, graph)


def neural_ode(
    num_nodes: int,
    features: int = 4,
    *,
    key: PRNGKeyArray,
    config: SolveConfig | None = None,
    **options: Any,
) -> NeuralGDE:
    """The paper's Neural ODE; it takes the options of `FlatMLP`: `width`, `layers`, `activation` and `adjacency`."""
    return NeuralGDE(None, FlatField(num_nodes, features, key=key, **options), None, config or SolveConfig())
