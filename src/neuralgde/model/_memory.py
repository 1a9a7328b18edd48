"""A latent state with a memory beside it: the last value seen of every node, and how long ago that was.

The state of a node is (h, last, age) side by side: `hidden` latent features, the last value of each observed feature,
and the time since the node was last observed. The memory is part of the state, so that whatever solves and stores
states knows it too.
"""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from .._errors import InputError
from .._types import Time
from ..field import Field, prepare_graph
from ..graph import Graph
from ._heads import AbstractHead


class Layout(eqx.Module):
    """Where the parts of the state are."""

    hidden: int = eqx.field(static=True)
    features: int = eqx.field(static=True)

    @property
    def size(self) -> int:
        return self.hidden + self.features + 1

    def split(self, z: Float[Array, "nodes state"]) -> tuple[Array, Array, Array]:
        """h, last and age."""
        if z.shape[-1] != self.size:
            raise InputError(
                f"z: expected {self.size} features, {self.hidden} hidden, {self.features} last values and the age, got "
                f"{z.shape[-1]}."
            )
        return z[:, : self.hidden], z[:, self.hidden : -1], z[:, -1:]


class MemoryFlow(eqx.Module):
    """dh/dt = field(t, h) / time_scale; the last values stay, and the age grows as time does."""

    field: Field | None
    layout: Layout
    time_scale: float = eqx.field(static=True, default=1.0)

    def prepare(self, graph: Graph) -> Graph:
        """The graph as the inner field wants it."""
        return graph if self.field is None else prepare_graph(self.field, graph)

    def __call__(self, t: Time, z: Float[Array, "nodes state"], graph: Graph) -> Float[Array, "nodes state"]:
        h, _, _ = self.layout.split(z)
        memory = jnp.zeros(self.layout.size, z.dtype).at[-1].set(1)
        if self.field is None:
            return jnp.broadcast_to(memory, z.shape)
        dh = self.field(t, h, graph) / self.time_scale
        # Padded, not concatenated: under `vmap` that would move the samples to the front and back again.
        return jnp.pad(dh, ((0, 0), (0, self.layout.features + 1))) + memory


class MemoryJump(eqx.Module):
    """h+ = cell(inputs, h, graph), and the memory takes what was observed.

    The inputs of a node are its values, the last ones seen in the place of those that are missing; which of them were
    observed; the age, in units of `time_scale`; the sine and cosine of the time with its `period`, where there is one;
    the known inputs of the stream; and the node's own vector, where there are `embeddings`. A node of which nothing was
    observed does not jump; with `hold_unobserved=False` it jumps on what it hears of its neighbours.
    """

    cell: Callable[[Array, Array, Graph], Array]
    layout: Layout
    embeddings: Float[Array, "nodes channels"] | None
    period: float | None = eqx.field(static=True)
    time_scale: float = eqx.field(static=True)
    hold_unobserved: bool = eqx.field(static=True)

    def __init__(
        self,
        make_cell: Callable[[int], Callable[[Array, Array, Graph], Array]],
        layout: Layout,
        *,
        inputs: int = 0,
        period: float | None = None,
        time_scale: float = 1.0,
        hold_unobserved: bool = True,
        num_nodes: int | None = None,
        embedding: int = 0,
        key: PRNGKeyArray,
    ):
        self.layout = layout
        self.embeddings = None
        if embedding:
            if num_nodes is None:
                raise InputError("num_nodes: vectors of the nodes' own need their number, got None.")
            self.embeddings = jax.random.normal(key, (num_nodes, embedding))
        self.cell = make_cell(2 * layout.features + 1 + 2 * (period is not None) + inputs + embedding)
        self.period = period
        self.time_scale = time_scale
        self.hold_unobserved = hold_unobserved

    @property
    def state_size(self) -> int:
        """The features of the state, memory included."""
        return self.layout.size

    def prepare(self, graph: Graph) -> Graph:
        """The graph as the cell wants it."""
        return prepare_graph(self.cell, graph)

    def __call__(
        self,
        t: Time,
        z: Float[Array, "nodes state"],
        x: Float[Array, "nodes values"],
        mask: Bool[Array, "nodes values"],
        graph: Graph,
    ) -> Float[Array, "nodes state"]:
        h, last, age = self.layout.split(z)
        features = self.layout.features
        observed, known = mask[:, :features], x[:, features:]
        values = jnp.where(observed, x[:, :features], last)
        columns = [values, observed.astype(z.dtype), age / self.time_scale, known]
        if self.period is not None:
            angle = jnp.asarray(t, z.dtype) * (2 * jnp.pi / self.period)
            columns += [jnp.broadcast_to(f(angle), age.shape) for f in (jnp.sin, jnp.cos)]
        if self.embeddings is not None:
            if self.embeddings.shape[0] != z.shape[0]:
                raise InputError(f"z: expected the {self.embeddings.shape[0]} nodes with vectors, got {z.shape[0]}.")
            columns.append(self.embeddings)
        new = self.cell(jnp.concatenate(columns, axis=1), h, graph)
        seen = jnp.any(observed, axis=1, keepdims=True)
        if self.hold_unobserved:
            new = jnp.where(seen, new, h)
        return jnp.concatenate([new, values, jnp.where(seen, 0, age)], axis=1)


class MemoryHead(eqx.Module):
    """y = head(layer(h, age)), which with `residual` is the change from the last value."""

    layer: Callable[[Array, Graph], Array]
    head: AbstractHead
    layout: Layout
    time_scale: float = eqx.field(static=True, default=1.0)
    residual: bool = eqx.field(static=True, default=False)

    def prepare(self, graph: Graph) -> Graph:
        """The graph as the layer wants it."""
        return prepare_graph(self.layer, graph)

    def __call__(self, z: Float[Array, "nodes state"], graph: Graph):
        h, last, age = self.layout.split(z)
        out = self.layer(jnp.concatenate([h, age / self.time_scale], axis=1), graph)
        return self.head(out, last if self.residual else None)
