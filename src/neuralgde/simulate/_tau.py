"""Tau-leaping with adaptive steps (Cao, Gillespie and Petzold 2006): many reactions at a time, no negative counts."""

from dataclasses import dataclass

import equinox as eqx
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array

from ._expression import Environment
from ._lanes import Lanes, hold, propensities
from ._poisson import poisson_quantile
from ._program import Program
from ._random import threefry, uniform
from ._ssa import choose, fire

# A reaction that could use up a reactant in fewer firings is critical: at most one such firing happens in a leap.
CRITICAL = 10
# A leap that would be shorter than this many mean waiting times is not worth it: one reaction is simulated exactly.
SHORT = 10.0


@dataclass(frozen=True)
class TauStep:
    """One leap, or one exact reaction where leaps would be short, in every lane that runs.

    The paper takes a hundred exact reactions before it tries to leap again; here every step decides anew, as lanes
    side by side gain nothing from the former. A leap that would make a count negative is not made, and tried again at
    half the length.
    """

    epsilon: float

    def __call__(self, program: Program, values: Environment, lanes: Lanes) -> Lanes:
        """The lanes after it."""
        dtype, zero = lanes.clock.dtype, jnp.zeros_like(lanes.clock)
        running = ~lanes.stopped
        some = jnp.any(running)
        rates, wrong = hold(propensities(program, values, lanes), some)
        left = lanes.goal - lanes.clock - lanes.elapsed
        total = sum(rates, start=zero)
        critical = [_critical(change, lanes.x, a) for change, a in zip(program.changes, rates, strict=True)]
        calm = [jnp.where(c, 0.0, a) for c, a in zip(critical, rates, strict=True)]
        hasty = [jnp.where(c, a, 0.0) for c, a in zip(critical, rates, strict=True)]

        length = lanes.shrink * self._length(program, lanes.x, calm)
        first, second = threefry(lanes.key, lanes.draws, jnp.zeros_like(lanes.draws))
        hasty_total = sum(hasty, start=zero)
        calm, hasty, length, total, hasty_total, waiting, level = hold(
            (calm, hasty, length, total, hasty_total, -jnp.log(uniform(first, dtype)), uniform(second, dtype)), some
        )
        exact = length < SHORT / total
        # The time to the next single firing: of any reaction where it is exact, of a critical one in a leap.
        single = waiting / jnp.where(exact, total, hasty_total)
        tau = jnp.minimum(jnp.where(exact, single, jnp.minimum(length, single)), left)
        fires = running & (single <= tau) & (single < left)
        bad = running & (wrong != 0)
        weights = [jnp.where(exact, a, h) for a, h in zip(rates, hasty, strict=True)]
        chosen = choose(weights, level * jnp.where(exact, total, hasty_total), fires & ~bad)

        leaps = running & ~exact & ~bad
        chosen, tau, leaps, bad = hold((chosen, tau, leaps, bad), some)
        x = fire(program, lanes.x, chosen)
        x = _leap(program, x, lanes, calm, jnp.where(leaps, tau, 0.0), leaps)
        negative = zero < 0
        for i in program.counted:
            negative = negative | (leaps & (x[i] < 0))
        x, negative = hold((x, negative), some)
        done = running & ~negative
        elapsed = lanes.elapsed + tau
        reached = done & (tau >= left)
        return eqx.tree_at(
            lambda s: (s.x, s.elapsed, s.reached, s.stopped, s.draws, s.shrink, s.status),
            lanes,
            (
                tuple(jnp.where(done, new, old) for new, old in zip(x, lanes.x, strict=True)),
                jnp.where(done, elapsed, lanes.elapsed),
                lanes.reached | reached,
                lanes.stopped | reached | bad,
                lanes.draws + running.astype(jnp.uint32),
                jnp.where(running, jnp.where(negative, lanes.shrink / 2, 1.0), lanes.shrink),
                jnp.where(bad, wrong, lanes.status),
            ),
        )

    def _length(self, program: Program, x: tuple[Array, ...], rates: list[Array]) -> Array:
        """The longest leap in which no species that rates depend on is likely to change by more than its share."""
        like = x[0] if x else jnp.zeros(())
        out = jnp.full_like(like, jnp.inf)
        orders: dict[int, set[tuple[float, int]]] = {}
        for entries in program.orders:
            for i, order, copies in entries:
                orders.setdefault(i, set()).add((order, copies))
        for i, found in orders.items():
            drift, spread = jnp.zeros_like(like), jnp.zeros_like(like)
            for change, a in zip(program.changes, rates, strict=True):
                n = dict(change).get(i, 0.0)
                if n:
                    drift, spread = drift + n * a, spread + n * n * a
            share = jnp.zeros_like(like)
            for order, copies in sorted(found):
                # With several copies the rate goes as x (x - 1) …, which is steeper than a power where x is small.
                steep = sum(x[i] / jnp.maximum(x[i] - m, 1.0) if m else 1.0 for m in range(copies))
                share = jnp.maximum(share, order / copies * steep)
            most = jnp.maximum(self.epsilon * x[i] / share, 1.0)
            out = jnp.minimum(out, jnp.minimum(most / jnp.abs(drift), most * most / spread))
        return out


def _critical(change: tuple[tuple[int, float], ...], x: tuple[Array, ...], rate: Array) -> Array:
    out = jnp.zeros(rate.shape, bool)
    for i, n in change:
        if n < 0:
            out = out | (x[i] < -n * CRITICAL)
    return out & (rate > 0)


def _leap(
    program: Program, x: tuple[Array, ...], lanes: Lanes, rates: list[Array], tau: Array, leaps: Array
) -> tuple[Array, ...]:
    """The counts after Poisson numbers of firings."""
    some = jnp.any(leaps)
    low = jnp.arange(1, (len(rates) + 1) // 2 + 1, dtype=jnp.uint32)[:, None]
    words = jnp.concatenate(hold(threefry(lanes.key, lanes.draws[None], low), some))[: len(rates)]
    # Stacked, so that one kernel serves all reactions.
    firings = lax.cond(
        some,
        lambda words, rates: poisson_quantile(uniform(words, tau.dtype), rates * tau),
        lambda words, rates: jnp.zeros_like(rates),
        words,
        jnp.stack(rates),
    )
    out = list(x)
    for change, count in zip(program.changes, firings, strict=True):
        for i, n in change:
            out[i] = out[i] + n * count
    return tuple(out)
