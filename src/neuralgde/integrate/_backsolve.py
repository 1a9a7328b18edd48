"""The continuous adjoint: gradients by solving backwards in time, with memory that does not grow with the steps."""

from collections.abc import Callable
from typing import Any

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from ._adaptive import can_adapt, run_adaptive
from ._engines import Outcome, Steps, VectorField, run_diffrax
from ._status import Status


class _AdjointNorm(eqx.Module):
    """The worst of three: z and lambda as in the solve itself, and the integrals in theta.

    The last feed back into nothing, but where df/dtheta jumps, as behind a ReLU, they are what needs small steps.
    """

    norm: Callable[[PyTree], Array]

    def __call__(self, error: PyTree) -> Array:
        z, adjoint, theta = error
        squares = [jnp.mean(leaf**2) for leaf in jax.tree.leaves(theta) if leaf.size]
        worst = jnp.sqrt(jnp.max(jnp.stack(squares))) if squares else 0.0
        return jnp.maximum(jnp.maximum(self.norm(z), self.norm(adjoint)), worst)


@eqx.filter_custom_vjp
def solve_with_adjoint(state_and_args: tuple[PyTree, Any], times: Array, field: VectorField, steps: Steps) -> Outcome:
    """As the engines; its gradient restarts from the stored state at every output time and keeps nothing between."""
    y0, args = state_and_args
    # Reverse mode never goes through these steps, so that they are a plain loop.
    return _run(field, y0, times, args, steps, diffrax.ForwardMode())


def _run(
    field: VectorField, y0: PyTree, times: Array, args: Any, steps: Steps, adjoint: diffrax.AbstractAdjoint
) -> Outcome:
    """By the lighter engine where it can take these steps, else by Diffrax with this adjoint."""
    if can_adapt(steps):
        return run_adaptive(field, y0, times, args, steps)
    return run_diffrax(field, y0, times, args, steps, adjoint)


@solve_with_adjoint.def_fwd
def _forward(perturbed, state_and_args, times, field, steps):
    del perturbed
    outcome = solve_with_adjoint(state_and_args, times, field, steps)
    # Behind a failure no state is one to go back from, and what comes of it must not pass for a gradient.
    ok = outcome.status == Status.SUCCESS
    return outcome, jax.tree.map(lambda y: jnp.where(ok, y, jnp.nan), outcome.states)


@solve_with_adjoint.def_bwd
def _backward(states, grad_outcome, perturbed, state_and_args, times, field, steps):
    _, args = state_and_args
    _, wanted = perturbed
    theta, rest = eqx.partition(args, wanted)
    steps = steps._replace(norm=_AdjointNorm(steps.norm))

    # `jit` for the sake of its cache: every stage calls it.
    @eqx.filter_jit
    def augmented(t, y, args):
        z, adjoint, _ = y
        theta, rest = args
        dz, pull = jax.vjp(lambda z, theta: field(t, z, eqx.combine(theta, rest)), z, theta)
        return dz, *pull(jax.tree.map(jnp.negative, adjoint))

    def interval(carry, knots):
        adjoint, grad_theta, guess = carry
        later, earlier, z, grad_z = knots
        outcome = _run(
            augmented,
            (z, adjoint, grad_theta),
            jnp.stack([later, earlier]),
            (theta, rest),
            steps._replace(guess=guess),
            diffrax.RecursiveCheckpointAdjoint(),
        )
        # A backward solve that fails must not pass for a gradient.
        ok = outcome.status == Status.SUCCESS
        _, adjoint, grad_theta = jax.tree.map(lambda y: jnp.where(ok, y[-1], jnp.nan), outcome.states)
        # What would have been right here is a better first step for the interval before than any rule.
        if guess is not None and outcome.opening is not None:
            guess = jnp.where(outcome.opening > 0, outcome.opening, guess)
        return (jax.tree.map(jnp.add, adjoint, grad_z), grad_theta, guess), None

    grad_states = jax.tree.map(
        lambda g, z: jnp.zeros_like(z) if g is None else g, grad_outcome.states, states, is_leaf=lambda x: x is None
    )
    guess = steps.guess
    if guess is None and times.shape[0] > 2:
        guess = jnp.zeros_like(times[0])
    start = jax.tree.map(lambda g: g[-1], grad_states), jax.tree.map(jnp.zeros_like, theta), guess
    knots = (
        times[1:],
        times[:-1],
        jax.tree.map(lambda z: z[1:], states),
        jax.tree.map(lambda g: g[:-1], grad_states),
    )
    (adjoint, grad_theta, _), _ = jax.lax.scan(interval, start, knots, reverse=True)
    return adjoint, grad_theta
