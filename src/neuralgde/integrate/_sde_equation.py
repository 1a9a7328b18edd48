"""dz = f dt + g ∘ dW on a batch of trajectories, and its increments over a step, forwards and for the adjoint."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from ..graph import Graph
from ._control import expand


class Equation(eqx.Module):
    """Drift and diffusion, both (batch,) times and (batch, …) states in. Ito's drift is converted on the way."""

    drift: Callable[..., Array]
    diffusion: Callable[..., Array]
    graph: Graph | None
    ito: bool = eqx.field(static=True)
    componentwise: bool = eqx.field(static=True)

    def f(self, t: Array, z: Array) -> Array:
        def one(t, z, graph):
            f = self.drift(t, z, graph)
            return f - self._correction(t, z, graph) if self.ito else f

        return self._each(one, t, z)

    def g(self, t: Array, z: Array) -> Array:
        return self._each(self.diffusion, t, z)

    def _each(self, field: Callable[..., Array], t: Array, z: Array) -> Array:
        if self.graph is None:
            return jax.vmap(lambda t, z: field(t, z, None))(t, z)
        own = 0 if self.graph.senders.ndim == 2 else None
        out = eqx.filter_vmap(field, in_axes=(0, 0, own))(t, z, self.graph)
        # Absent nodes stay as they are, so that nothing they might become can reach the others.
        mask = jnp.broadcast_to(self.graph.node_mask, z.shape[:2])
        return jnp.where(expand(mask, out), out, 0)

    def _correction(self, t: Array, z: Array, graph: Graph | None) -> Array:
        """(1/2) g_i dg_i/dz_i, the difference between Ito's drift and Stratonovich's."""

        def g(z):
            return self.diffusion(t, z, graph)

        if self.componentwise:
            here = g(z)
            return jax.jvp(g, (z,), (here,))[1] / 2
        here, push = jax.linearize(g, z)
        unit = jnp.eye(z.size, dtype=z.dtype).reshape(z.size, *z.shape)
        own = jax.vmap(lambda e: jnp.sum(push(e) * e))(unit)
        return here * own.reshape(z.shape) / 2


class Forwards(eqx.Module):
    """The increments of z itself over steps of lengths h and noise dw."""

    equation: Equation
    h: Array
    dw: Array

    def drift(self, t: Array, y: Array) -> Array:
        return self.equation.f(t, y) * expand(self.h, y)

    def noise(self, t: Array, y: Array) -> Array:
        return self.equation.g(t, y) * self.dw

    def both(self, t: Array, y: Array) -> Array:
        return self.drift(t, y) + self.noise(t, y)

    def noise_squared(self, t: Array, y: Array) -> Array:
        """Milstein's (1/2) g_i dg_i/dz_i dw_i^2: where g_i depends on z_i alone, one derivative along g has all."""
        here = self.equation.g(t, y)
        return jax.jvp(lambda y: self.equation.g(t, y), (y,), (here,))[1] * self.dw**2 / 2


class Adjoint(eqx.Module):
    """The increments of (z, lambda, dL/dtheta) by the adjoint equation (Li et al. 2020).

    dlambda = -(df/dz)^T lambda dt - (dg/dz)^T lambda ∘ dW, and the same with theta in place of z for the gradient.
    `theta` are the arrays of the equation that gradients are wanted for, `rest` all else of it.
    """

    theta: PyTree
    rest: PyTree
    h: Array
    dw: Array

    def drift(self, t: Array, y: PyTree) -> PyTree:
        return self._pull("drift", t, y)

    def noise(self, t: Array, y: PyTree) -> PyTree:
        return self._pull("noise", t, y)

    def both(self, t: Array, y: PyTree) -> PyTree:
        return self._pull("both", t, y)

    def _pull(self, name: str, t: Array, y: PyTree) -> Any:
        z, adjoint, _ = y

        def increment(z, theta):
            return getattr(Forwards(eqx.combine(theta, self.rest), self.h, self.dw), name)(t, z)

        dz, pull = jax.vjp(increment, z, self.theta)
        return dz, *pull(-adjoint)
