"""Parameters that vary in t: theta(t) as a sum of basis functions."""

from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from .._arrays import on_device
from .._errors import InputError, unknown_name
from .._types import Time
from ..graph import Graph
from ._basis import BASES
from ._checks import as_float
from ._protocol import Breakpoints, Field, breakpoints_of, merge_breakpoints, prepare_graph


class DepthVarying(eqx.Module):
    """A field whose every parameter is theta(t) = sum over j of basis_j(t) Theta_j, with j = 0 … degree - 1.

    `basis` is "fourier" (1, cos, sin, … whose period is the interval), "chebyshev" (polynomials), "piecewise" (constant
    on `degree` equal cells) or "piecewise_linear" (between `degree` knots, the ends among them). It starts as the given
    field; with `scale` a normal of that deviation is added to all coefficients but the first, which takes a `key`.
    Outside of the interval "fourier" goes on and the others keep their value at its end.

    "piecewise" jumps at its `breakpoints` and has the value on the right there. An integrator has to end a step at a
    breakpoint and evaluate the stages that fall on it from the left, at the largest number below it.
    """

    field: PyTree
    coefficients: PyTree[Float[Array, "degree ..."]]
    basis: str = eqx.field(static=True)
    degree: int = eqx.field(static=True)
    interval: tuple[float, float] = eqx.field(static=True)

    def __init__(
        self,
        field: Field,
        basis: str = "fourier",
        degree: int = 5,
        interval: tuple[float, float] = (0.0, 1.0),
        *,
        scale: float = 0.0,
        key: PRNGKeyArray | None = None,
    ):
        if basis not in BASES:
            raise InputError(unknown_name("basis", basis, BASES))
        if degree < 1:
            raise InputError(f"degree: expected the number of basis functions, 1 or more, got {degree}.")
        t0, t1 = (float(t) for t in interval)
        if not t0 < t1:
            raise InputError(f"interval: expected (t0, t1) with t0 < t1, got {interval}.")
        if scale and key is None:
            raise InputError("key: expected one to draw the random part of size `scale`, got None.")
        parameters, rest = eqx.partition(field, eqx.is_inexact_array)
        leaves, treedef = jax.tree.flatten(parameters)
        if not leaves:
            raise InputError(
                f"field: expected a module with parameters to vary in t, but {field!r} has none. A plain function can "
                "depend on t by itself."
            )
        keys = [None] * len(leaves) if key is None or scale == 0 else list(jax.random.split(key, len(leaves)))
        local = BASES[basis].local
        self.field = rest
        self.coefficients = treedef.unflatten(_start(leaves, keys, degree, local, on_device(scale, float)))
        self.basis = basis
        self.degree = degree
        self.interval = (t0, t1)

    def at(self, t: Time) -> Field:
        """The field with its parameters at time t."""
        values = BASES[self.basis].values(as_float(t), self.degree, self.interval)
        theta = jax.tree.map(lambda c: jnp.tensordot(values.astype(c.dtype), c, axes=1), self.coefficients)
        return eqx.combine(theta, self.field)

    @property
    def breakpoints(self) -> Breakpoints:
        """The times inside of the interval where theta jumps or kinks; None for the smooth bases."""
        own = BASES[self.basis].breakpoints
        inner = breakpoints_of(self.at(self.interval[0]))
        return inner if own is None else merge_breakpoints(inner, own(self.degree, self.interval))

    def prepare(self, graph: Graph) -> Graph:
        """The graph as the inner field wants it."""
        return prepare_graph(self.at(self.interval[0]), graph)

    def __call__(self, t: Time, z: Float[Array, "nodes in"], graph: Graph) -> Float[Array, "nodes out"]:
        return self.at(t)(t, z, graph)


@eqx.filter_jit
def _start(
    leaves: Sequence[Array], keys: Sequence[PRNGKeyArray | None], degree: int, local: bool, scale: Array
) -> list[Array]:
    """The coefficients of all parameters, in one program."""

    def of(leaf: Array, key: PRNGKeyArray | None) -> Array:
        rest = jnp.broadcast_to(leaf if local else jnp.zeros_like(leaf), (degree - 1, *leaf.shape))
        if key is not None:
            rest = rest + scale.astype(rest.dtype) * jax.random.normal(key, rest.shape, rest.dtype)
        return jnp.concatenate([leaf[None], rest])

    return [of(leaf, key) for leaf, key in zip(leaves, keys, strict=True)]
