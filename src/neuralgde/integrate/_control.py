"""Step-size control: a fixed grid that meets every output time, and a guard that finds out why a solve fails."""

from collections.abc import Callable
from typing import Any, NamedTuple

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PyTree

from ._status import Status


class Grid(diffrax.AbstractAdaptiveStepSizeController):
    """Fixed steps: each interval between knots is cut into the fewest equal steps no longer than `dt`.

    It is marked as adaptive only because Diffrax takes the tolerances of implicit solvers from such controllers; it
    never rejects a step.
    """

    knots: Float[Array, " knots"]
    dt: Float[Array, ""]
    rtol: float
    atol: float
    norm: Callable[[PyTree], Array]

    def wrap(self, direction):
        return eqx.tree_at(lambda c: c.knots, self, jnp.sort(self.knots * direction))

    def init(self, terms, t0, t1, y0, dt0, args, func, error_order):
        del terms, t1, y0, dt0, args, func, error_order
        return self._after(t0), None

    def adapt_step_size(self, t0, t1, y0, y1_candidate, args, y_error, error_order, controller_state):
        del t0, y0, y1_candidate, args, y_error, error_order
        return jnp.asarray(True), t1, self._after(t1), False, controller_state, diffrax.RESULTS.successful

    def _after(self, t):
        j = jnp.clip(jnp.searchsorted(self.knots, t, side="right"), 1, self.knots.shape[0] - 1)
        start, end = self.knots[j - 1], self.knots[j]
        count = step_count(end - start, self.dt)
        step = (end - start) / count
        done = jnp.floor((t - start) / step + 1e-3)
        return jnp.where(done + 1 >= count, end, start + (done + 1) * step)


def step_count(length, dt, xp=jnp):
    """The fewest steps no longer than dt. A hair of slack keeps 1 / 0.1 at ten steps whatever the rounding."""
    return xp.maximum(xp.ceil(length / dt * (1 - 1e-5)), 1)


class GuardState(NamedTuple):
    """What the guard knows: the other controller's state, why the solve has to stop, how far it came, jumps passed."""

    inner: Any
    cause: Array
    reached: Array
    num_jumps: Array


class Guard(diffrax.AbstractAdaptiveStepSizeController):
    """Watches another controller: keeps its steps clear of jumps, and finds out why a solve fails.

    A step ends a `gap` before each jump of the field and the next one starts a gap behind it: a stage that falls on the
    jump itself would take the wrong side. The solve stops at the first state that is not finite, and at a step too
    small to move the time; the state, which the solve returns, holds the cause.
    """

    inner: diffrax.AbstractAdaptiveStepSizeController
    span: Float[Array, ""]
    jumps: Float[Array, " jumps"] | None
    gap: Float[Array, ""]
    rtol: Any
    atol: Any
    norm: Callable[[PyTree], Any]

    def __init__(self, inner: Any, span: Array, jumps: Array | None, gap: Array):
        self.inner, self.span, self.jumps, self.gap = inner, span, jumps, gap
        self.rtol, self.atol, self.norm = inner.rtol, inner.atol, inner.norm

    def wrap(self, direction):
        jumps = None if self.jumps is None else jnp.sort(self.jumps * direction)
        return Guard(self.inner.wrap(direction), self.span, jumps, self.gap)

    def init(self, terms, t0, t1, y0, dt0, args, func, error_order):
        first, state = self.inner.init(terms, t0, t1, y0, dt0, args, func, error_order)
        zero = jnp.zeros((), jnp.int32)
        return self._before_jump(t0, first), GuardState(state, zero, jnp.asarray(t0), zero)

    def adapt_step_size(self, t0, t1, y0, y1_candidate, args, y_error, error_order, controller_state):
        keep, next_t0, next_t1, _, inner, result = self.inner.adapt_step_size(
            t0, t1, y0, y1_candidate, args, y_error, error_order, controller_state.inner
        )
        finite = all_finite(y1_candidate)
        kept = keep & finite
        eps = jnp.finfo(jnp.result_type(t0)).eps
        stuck = ~keep & (next_t1 - next_t0 <= 16 * eps * jnp.maximum(jnp.abs(t0), 1e-6 * self.span))
        cause = jnp.where(stuck, Status.STEP_UNDERFLOW.value, Status.SUCCESS.value)
        cause = jnp.where(~finite & (keep | stuck), Status.NOT_FINITE.value, cause).astype(jnp.int32)
        result = diffrax.RESULTS.where(cause == 0, result, diffrax.RESULTS.dt_min_reached)
        reached = jnp.where(kept, t1, t0)
        if self.jumps is None:
            jumped, num_jumps = False, controller_state.num_jumps
        else:
            jump = self.jumps[jnp.argmin(jnp.abs(self.jumps - next_t0))]
            jumped = kept & (jnp.abs(next_t0 - jump) <= 1.5 * self.gap) & (next_t0 <= jump)
            # The step length stays: what the other controller planned from t1 it may do from behind the jump.
            shift = jnp.where(jumped, jump + self.gap - next_t0, 0)
            next_t0, next_t1 = next_t0 + shift, next_t1 + shift
            next_t1 = self._before_jump(next_t0, next_t1)
            num_jumps = controller_state.num_jumps + jumped.astype(jnp.int32)
        return kept, next_t0, next_t1, jumped, GuardState(inner, cause, reached, num_jumps), result

    def _before_jump(self, start, end):
        if self.jumps is None:
            return end
        ahead = jnp.where(self.jumps > start + self.gap, self.jumps, jnp.inf)
        return jnp.minimum(end, jnp.min(ahead) - self.gap)


def gap_around(times):
    """How far to stay clear of a jump: a few units of rounding in the largest time that enters."""
    return 64 * jnp.finfo(times.dtype).eps * jnp.max(jnp.abs(times))


def all_finite(tree) -> Array:
    leaves = [jnp.all(jnp.isfinite(x)) for x in jax.tree.leaves(tree) if eqx.is_inexact_array(x)]
    return jnp.stack(leaves).all() if leaves else jnp.asarray(True)


class MaskedRMS(eqx.Module):
    """The error norm: root mean square over what the mask lets count; of a batch, that of its worst sample."""

    mask: Bool[Array, "*batch nodes"] | None
    batched: bool = eqx.field(static=True)

    def __call__(self, error: Array) -> Array:
        axes = tuple(range(1, error.ndim)) if self.batched else None
        squares = error**2
        if self.mask is None:
            mean = jnp.mean(squares, axis=axes)
        else:
            on = jnp.broadcast_to(expand(self.mask, error), error.shape)
            count = jnp.maximum(jnp.sum(on, axis=axes), 1).astype(error.dtype)
            mean = jnp.sum(jnp.where(on, squares, 0), axis=axes) / count
        worst = jnp.max(mean)
        # The gradient of a root at zero is not finite; no step size is differentiated, but NaN checks look.
        return jnp.where(worst > 0, jnp.sqrt(jnp.where(worst > 0, worst, 1)), 0)


def expand(mask: Array, like: Array) -> Array:
    """The mask with axes of size one behind its own, so that it lines up with the leading axes of `like`."""
    return mask.reshape(*mask.shape, *[1] * (like.ndim - mask.ndim))
