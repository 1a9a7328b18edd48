"""Jumps that the state itself triggers."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from ._hybrid_span import Span, over_states, per_sample, present, rate, sample_axis

BISECTIONS, NEWTON_STEPS = 30, 3


class Event(eqx.Module):
    """z jumps to `jump(t, z, graph)` where `condition(t, z, graph)`, a number, rises through zero.

    It is looked for between the two ends of every step, located to the precision of the step itself, and found at most
    once in each: take steps shorter than the time between events. Gradients see that the time of the event depends on
    the state and on the parameters.
    """

    condition: Callable[..., Array]
    jump: Callable[..., Array]


def step_to_event(event: Event, step: Callable, z: Array, span: Span, s: Array, h: float) -> tuple[Array, Array]:
    """One step of all samples, with the event inside it for those that meet it, and how many did."""
    graph, axis = span.graph, sample_axis(span.graph)

    def time(s):
        return span.start + s * span.length

    def condition(s, z):
        shared = graph.senders.ndim == 1
        found = eqx.filter_vmap(event.condition, in_axes=(0, axis, None if shared else 0))(time(s), z, graph)
        return found.reshape(span.start.shape)

    plain = step(z, span, s, h)
    each_s = jnp.broadcast_to(s, span.start.shape)
    met = (condition(each_s, z) < 0) & (condition(each_s + h, plain) >= 0)

    def with_event(z):
        shares = _locate(condition, step, z, plain, span, each_s, h)
        there = step(z, span, each_s, shares * h)
        jumped = per_sample(event.jump, graph, 0, axis)(time(each_s + shares * h), there, graph)
        jumped = jnp.where(present(graph), jumped, there)
        rest = step(jumped, span, each_s + shares * h, (1 - shares) * h)
        return jnp.where(over_states(met, graph), rest, plain)

    return jax.lax.cond(jnp.any(met), with_event, lambda z: plain, z), jnp.sum(met, dtype=jnp.int32)


def _locate(condition, step, z, plain, span, s, h) -> Array:
    """The share of the step, for every sample, at which the condition is zero."""

    def at(share, z, span):
        return condition(s + share * h, step(z, span, s, share * h))

    # Cheap first: bisection on the cubic through both ends of the step. Then Newton on the step itself.
    still = jax.lax.stop_gradient
    z_still, span_still, plain = (
        still(z),
        jax.tree.map(lambda a: still(a) if eqx.is_array(a) else a, span),
        still(plain),
    )
    d0, d1 = h * rate(s, z_still, span_still), h * rate(s + h, plain, span_still)

    def cubic(share):
        a = over_states(share, span.graph)
        b = 1 - a
        return b**2 * ((1 + 2 * a) * z_still + a * d0) + a**2 * ((1 + 2 * b) * plain - b * d1)

    def halve(_, bounds):
        low, high = bounds
        middle = (low + high) / 2
        over = condition(s + middle * h, cubic(middle)) >= 0
        return jnp.where(over, low, middle), jnp.where(over, middle, high)

    bounds = jnp.zeros_like(s), jnp.ones_like(s)
    share = sum(jax.lax.fori_loop(0, BISECTIONS, halve, bounds)) / 2
    slope = jnp.ones_like(s)
    for _ in range(NEWTON_STEPS):
        value, slope = jax.jvp(lambda x: at(x, z_still, span_still), (share,), (jnp.ones_like(share),))
        slope = jnp.where(slope == 0, 1, slope)
        share = jnp.clip(share - value / slope, 0, 1)
    # The last step of Newton is the one to differentiate: d share = -d condition / slope.
    share, slope = still(share), still(slope)
    return share - at(share, z, span) / slope
