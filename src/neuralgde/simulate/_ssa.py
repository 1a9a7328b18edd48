"""The stochastic simulation algorithm of Gillespie, direct method: exact, one reaction after another."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array

from ._expression import Environment
from ._lanes import Lanes, hold, propensities
from ._program import Program
from ._random import threefry, uniform


def ssa_step(program: Program, values: Environment, lanes: Lanes) -> Lanes:
    """One reaction in every lane that runs, or none where the next stop comes first."""
    rates, wrong = propensities(program, values, lanes)
    dtype = lanes.clock.dtype
    first, second = threefry(lanes.key, lanes.draws, jnp.zeros_like(lanes.draws))
    running = ~lanes.stopped
    total = sum(rates[1:], start=rates[0]) if rates else jnp.zeros_like(lanes.clock)
    elapsed = lanes.elapsed - jnp.log(uniform(first, dtype)) / total
    fires = running & (elapsed < lanes.goal - lanes.clock)
    bad = running & (wrong != 0)
    chosen = choose(rates, uniform(second, dtype) * total, fires & ~bad)
    # Few variables are quicker to compute over again than to write down.
    if len(program.variables) > 2:
        chosen, elapsed, fires, bad, wrong = hold((chosen, elapsed, fires, bad, wrong), jnp.any(running))
    return eqx.tree_at(
        lambda s: (s.x, s.elapsed, s.reached, s.stopped, s.draws, s.status),
        lanes,
        (
            fire(program, lanes.x, chosen),
            jnp.where(fires, elapsed, lanes.elapsed),
            lanes.reached | (running & ~fires),
            lanes.stopped | ~fires | bad,
            lanes.draws + running.astype(jnp.uint32),
            jnp.where(bad, wrong, lanes.status),
        ),
    )


def choose(rates: list[Array], level: Array, allowed: Array) -> Array:
    """The number of the reaction whose share of the total contains `level`; -1 where none is allowed."""
    chosen, running = jnp.zeros(level.shape, jnp.int32), jnp.zeros_like(level)
    for a in rates:
        running = running + a
        chosen = chosen + (level >= running).astype(jnp.int32)
    return jnp.where(allowed, chosen, -1)


def fire(program: Program, x: tuple[Array, ...], chosen: Array) -> tuple[Array, ...]:
    """The counts after one firing of the chosen reaction."""
    x_new = list(x)
    for j, change in enumerate(program.changes):
        for i, n in change:
            x_new[i] = x_new[i] + jnp.where(chosen == j, n, 0.0)
    return tuple(x_new)
