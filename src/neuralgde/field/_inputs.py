"""Known inputs u(t) as features of every node."""

from collections.abc import Callable

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, ArrayLike, Float

from .._errors import InputError
from .._types import Time
from ..graph import Graph
from ._checks import as_float
from ._protocol import Breakpoints, Field, breakpoints_of, merge_breakpoints, prepare_graph


class LinearInputs(eqx.Module):
    """u(t) by linear interpolation of values at ascending times, constant before the first and after the last.

    Values are one number a time, (times,); the same channels for all nodes, (times, channels); or (times, nodes,
    channels). They are arrays like any other and have gradients: leave them out of what is trained, or build them where
    the loss is.
    """

    times: Float[Array, " times"]
    values: Float[Array, "times *shape"]

    def __init__(self, times: ArrayLike, values: ArrayLike):
        self.times = as_float(times)
        self.values = as_float(values)
        _check(self.times, self.values)

    @property
    def breakpoints(self) -> Breakpoints:
        """The times themselves, where u has kinks."""
        return self.times

    def __call__(self, t: Time) -> Float[Array, "*shape"]:
        t = jnp.asarray(t, self.times.dtype)
        last = len(self.times) - 1
        left = jnp.clip(jnp.searchsorted(self.times, t, side="right") - 1, 0, max(last - 1, 0))
        right = jnp.minimum(left + 1, last)
        gap = self.times[right] - self.times[left]
        share = jnp.clip((t - self.times[left]) / jnp.where(gap > 0, gap, 1), 0, 1).astype(self.values.dtype)
        return (1 - share) * self.values[left] + share * self.values[right]


class WithInputs(eqx.Module):
    """field(t, (z, u(t)), graph): the inputs follow the features of z, so the inner field maps d + c -> d.

    `inputs` is a pair (times, values) to interpolate, as in `LinearInputs`, or any function of t that gives a number,
    (channels,) or (nodes, channels). Interpolated inputs name their times as breakpoints.
    """

    field: Field
    inputs: Callable[[Time], Array]

    def __init__(self, field: Field, inputs: Callable[[Time], Array] | tuple[ArrayLike, ArrayLike]):
        self.field = field
        self.inputs = inputs if callable(inputs) else LinearInputs(*inputs)

    @property
    def breakpoints(self) -> Breakpoints:
        return merge_breakpoints(breakpoints_of(self.field), breakpoints_of(self.inputs))

    def prepare(self, graph: Graph) -> Graph:
        """The graph as the inner field wants it."""
        return prepare_graph(self.field, graph)

    def __call__(self, t: Time, z: Float[Array, "nodes in"], graph: Graph) -> Float[Array, "nodes out"]:
        u = jnp.asarray(self.inputs(t), z.dtype)
        nodes = z.shape[0]
        if u.ndim > 2 or (u.ndim == 2 and u.shape[0] != nodes):
            raise InputError(
                f"inputs: expected u(t) to be a number, or of shape (channels,) or ({nodes}, channels), got {u.shape}."
            )
        u = jnp.broadcast_to(u, (nodes, u.shape[-1] if u.ndim else 1))
        return self.field(t, jnp.concatenate([z, u], axis=1), graph)


def _check(times: Array, values: Array) -> None:
    if times.ndim != 1 or times.size == 0:
        raise InputError(f"inputs: expected times of shape (times,), one or more, got shape {times.shape}.")
    if values.ndim not in (1, 2, 3) or values.shape[0] != times.shape[0]:
        raise InputError(
            f"inputs: expected values of shape ({times.shape[0]},), ({times.shape[0]}, channels) or ({times.shape[0]}, "
            f"nodes, channels), the first axis as long as times, got {values.shape}."
        )
    # Traced arrays have no values to look at.
    if not isinstance(times, Tracer) and not np.all(np.diff(times) > 0):
        raise InputError("inputs: expected times to ascend, each once. Sort them and drop repeated ones.")
    if not isinstance(values, Tracer) and not np.all(np.isfinite(values)):
        raise InputError("inputs: expected finite values. Fill the gaps, or drop the times that have any.")
