"""The stochastic simulation algorithm of Gillespie, direct method: exact, one reaction after another."""

import equinox as eqx
import jax.numpy as jnp

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
    level = uniform(second, dtype) * total
    # Few variables are quicker to compute over again than to write down.
    if len(program.variables) > 2:
        rates, wrong, elapsed, level = hold((rates, wrong, elapsed, level), jnp.any(running))
    fires = running & (elapsed < lanes.goal - lanes.clock)
    bad = running & (wrong != 0)
    chosen = choose(rates, level, fires & ~bad)
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


def choose(rates, level, allowed) -> list:
    """For each reaction the lanes in which it is the one whose share of the total contains `level`."""
    chosen, below = [], jnp.zeros_like(allowed)
    running = jnp.zeros_like(level)
    for a in rates:
        running = running + a
        within = level < running
        chosen.append(allowed & within & ~below)
        below = within
    return chosen


def fire(program: Program, x: tuple, chosen: list) -> tuple:
    """The counts after one firing of the chosen reactions."""
    x_new = list(x)
    for change, picked in zip(program.changes, chosen, strict=True):
        for i, n in change:
            x_new[i] = x_new[i] + jnp.where(picked, n, 0.0)
    return tuple(x_new)
