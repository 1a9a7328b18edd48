"""Static: the baseline that predicts the next state by one dense network, with no assumption on the dynamics."""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float, PRNGKeyArray

from ..graph import Graph
from ._batch import over_batch
from ._flat import FlatMLP


class Static(eqx.Module):
    """x_{k+1} = network(x_k): one application a time, however far apart the times are.

    It takes the options of `FlatMLP`: `width`, `layers`, `activation` and `adjacency`.
    """

    network: FlatMLP

    def __init__(self, num_nodes: int, features: int = 4, *, key: PRNGKeyArray, **options: Any):
        self.network = FlatMLP(num_nodes, features, key=key, **options)

    def __call__(
        self,
        x: Float[Array, "*batch nodes features"],
        times: ArrayLike | Sequence[float],
        graph: Graph,
    ) -> Float[Array, "*batch times nodes features"]:
        """The states at `times`, x itself first. Of the times only the number counts."""
        steps = np.shape(times)[-1] - 1

        def states(x, graph):
            def advance(x, _):
                x = self.network(x, graph)
                return x, x

            return jnp.concatenate([x[None], jax.lax.scan(advance, x, length=steps)[1]])

        return over_batch(states, x, graph)(x, graph)
