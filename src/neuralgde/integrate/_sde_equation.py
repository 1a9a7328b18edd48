"""dz = f dt + g ∘ dW on a batch of trajectories, and its increments over a step, forwards and for the adjoint."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from ..field import evaluate_pair
from ..graph import Graph
from ._control import expand


class Equation(eqx.Module):
    """Drift and diffusion, both (batch,) times and (batch, …) states in. Ito's drift is converted on the way."""

    drift: Callable[..., Array]
    diffusion: Callable[..., Array]
    graph: Graph | None
    ito: bool = eqx.field(static=True)
    componentwise: bool = eqx.field(static=True)

    # `jit` for the sake of its cache: traced once for all the steps that call it.
    @eqx.filter_jit
    def f_and_g(self, t: Array, z: Array) -> tuple[Array, Array]:
        def both(t, z, graph):
            f, g = evaluate_pair(self.drift, self.diffusion, t, z, graph)
            return (f - self._correction(t, z, graph) if self.ito else f), g

        return self._each(both, t, z)

    @eqx.filter_jit
    def g(self, t: Array, z: Array) -> Array:
        return self._each(self.diffusion, t, z)

    def _each(self, field: Callable[..., Any], t: Array, z: Array) -> Any:
        if self.graph is None:
            return jax.vmap(lambda t, z: field(t, z, None))(t, z)
        own = 0 if self.graph.senders.ndim == 2 else None
        out = eqx.filter_vmap(field, in_axes=(0, 0, own))(t, z, self.graph)
        # Absent nodes stay as they are, so that nothing they might become can reach the others.
        mask = expand(jnp.broadcast_to(self.graph.node_mask, z.shape[:2]), z)
        return jax.tree.map(lambda x: jnp.where(mask, x, 0), out)

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

    def both(self, t: Array, y: Array) -> tuple[Array, Array]:
        f, g = self.equation.f_and_g(t, y)
        return f * expand(self.h, y), g * self.dw

    def total(self, t: Array, y: Array) -> Array:
        drift, noise = self.both(t, y)
        return drift + noise

    def noise(self, t: Array, y: Array) -> Array:
        return self.equation.g(t, y) * self.dw

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

    def both(self, t: Array, y: PyTree) -> tuple[PyTree, PyTree]:
        z, adjoint, _ = y
        (drift, noise), pull = jax.vjp(lambda *at: self._forwards(at[1]).both(t, at[0]), z, self.theta)
        still = jnp.zeros_like(adjoint)
        return (drift, *pull((-adjoint, still))), (noise, *pull((still, -adjoint)))

    def total(self, t: Array, y: PyTree) -> PyTree:
        z, adjoint, _ = y
        dz, pull = jax.vjp(lambda *at: self._forwards(at[1]).total(t, at[0]), z, self.theta)
        return dz, *pull(-adjoint)

    def noise(self, t: Array, y: PyTree) -> PyTree:
        z, adjoint, _ = y
        dz, pull = jax.vjp(lambda *at: self._forwards(at[1]).noise(t, at[0]), z, self.theta)
        return dz, *pull(-adjoint)

    def _forwards(self, theta: PyTree) -> Forwards:
        return Forwards(eqx.combine(theta, self.rest), self.h, self.dw)
