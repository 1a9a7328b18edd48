"""Gradients of stochastic solves: through the steps that were taken, or by the adjoint equation along the same path."""

import equinox as eqx
import equinox.internal as eqxi
import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from ._brownian import BrownianPath
from ._control import expand
from ._sde_engine import Outcome, Steps, advance, along, run, take_step
from ._sde_equation import Adjoint, Equation


@eqx.filter_custom_vjp
def integrate(
    state_and_equation: tuple[Array, Equation], knots: Array, paths: BrownianPath, status: Array, steps: Steps
) -> Outcome:
    """States at the knots.

    With `steps.keep_every`, gradients are those of the accepted steps, which are done again from the states that were
    kept; without, those of the adjoint equation, and no state is kept but at the knots.
    """
    z0, equation = state_and_equation
    return run(equation, z0, knots, paths, status, steps, record=False)[0]


@integrate.def_fwd
def _forward(perturbed, state_and_equation, knots, paths, status, steps):
    del perturbed
    z0, equation = state_and_equation
    outcome, record = run(equation, z0, knots, paths, status, steps, record=True)
    return outcome, (record, outcome.states)


@integrate.def_bwd
def _backward(residuals, grad_outcome, perturbed, state_and_equation, knots, paths, status, steps):
    del status
    record, states = residuals
    _, equation = state_and_equation
    theta, rest = eqx.partition(equation, perturbed[1])
    grad_states = jnp.zeros_like(states) if grad_outcome.states is None else grad_outcome.states
    rows = jnp.arange(knots.shape[0])
    turns = eqxi.unvmap_max(record.turns)

    def times_and_noise(turn, w_end):
        bounds = record.bounds[turn]
        return bounds, jnp.concatenate([along(paths, bounds[:-1]), w_end[None]])

    def arriving(turn, adjoint):
        slots = record.slots[turn]
        return slots, adjoint + jnp.where(expand(slots > 0, adjoint), grad_states[rows, slots], 0)

    def through_step(turn, z, carry):
        """One turn of the loop backwards, by the step's own derivative at the state it started from."""
        adjoint, grad_theta, w_end = carry
        bounds, noise = times_and_noise(turn, w_end)
        _, adjoint = arriving(turn, adjoint)
        _, pull = jax.vjp(lambda z, theta: advance(eqx.combine(theta, rest), z, bounds, noise, steps), z, theta)
        adjoint, more = pull(adjoint)
        return adjoint, jax.tree.map(jnp.add, grad_theta, more), noise[0]

    def along_adjoint(turn, carry):
        """One turn of the loop backwards, by the adjoint equation; z starts anew from every knot."""
        z, (adjoint, grad_theta, w_end) = carry
        bounds, noise = times_and_noise(turn, w_end)
        slots, adjoint = arriving(turn, adjoint)
        y = jnp.where(expand(slots > 0, z), states[rows, slots], z), adjoint, grad_theta
        for j in reversed(range(bounds.shape[0] - 1)):
            inc = Adjoint(theta, rest, bounds[j] - bounds[j + 1], noise[j] - noise[j + 1])
            y = take_step(y, bounds[j + 1], bounds[j], inc, steps)
        z, adjoint, grad_theta = y
        return z, (adjoint, grad_theta, noise[0])

    adjoint = jnp.zeros_like(states[:, 0])
    # The last turn of each trajectory ended at the time that it reached.
    w_end = along(paths, record.bounds[jnp.maximum(turns - 1, 0), -1][None])[0]
    carry = adjoint, jax.tree.map(jnp.zeros_like, theta), w_end
    if steps.keep_every:
        carry = _from_kept(through_step, carry, record, turns, rest, theta, paths, steps)
    else:
        _, carry = _downwards(turns - 1, 0, along_adjoint, (states[:, -1], carry))
    adjoint, grad_theta, _ = carry
    return adjoint + grad_states[:, 0], grad_theta


def _from_kept(through_step, carry, record, turns, rest, theta, paths, steps):
    """All turns backwards; those between the states that were kept are done again, one stretch at a time."""
    every, equation = steps.keep_every, eqx.combine(theta, rest)
    if every == 1:
        return _downwards(turns - 1, 0, lambda turn, carry: through_step(turn, record.states[turn], carry), carry)

    def stretch(number, carry):
        first = number * every
        end = jnp.minimum(first + every, turns)

        def redo(j, z_and_kept):
            z, kept = z_and_kept
            kept = kept.at[j].set(z)
            bounds = record.bounds[first + j]
            return advance(equation, z, bounds, along(paths, bounds), steps), kept

        z = record.states[number]
        kept = jnp.zeros((every, *z.shape), z.dtype)
        _, kept = jax.lax.fori_loop(0, end - first, redo, (z, kept))
        return _downwards(end - 1, first, lambda turn, carry: through_step(turn, kept[turn - first], carry), carry)

    return _downwards((turns - 1) // every, 0, stretch, carry)


def _downwards(start: Array, stop: Array | int, body, carry: PyTree) -> PyTree:
    """body(n, carry) for n = start, start - 1, …, stop; not at all where start < stop."""

    def step(n_and_carry):
        n, carry = n_and_carry
        return n - 1, body(n, carry)

    return jax.lax.while_loop(lambda s: s[0] >= stop, step, (start, carry))[1]
