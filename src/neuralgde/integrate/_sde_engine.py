"""The loop that steps a batch of trajectories along their Brownian paths, each with steps of its own."""

from typing import Any, NamedTuple

import equinox as eqx
import equinox.internal as eqxi
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from ._brownian import BrownianPath
from ._control import MaskedRMS, expand, step_count
from ._sde_equation import Equation, Forwards
from ._sde_methods import Increments, Method
from ._status import Status


class Steps(NamedTuple):
    """How to step. `dt` is None where the steps adapt; `gap` where nothing jumps; every how many states one is kept."""

    method: Method
    rtol: Array
    atol: Array
    dt: Array | None
    first_step: Array | None
    gap: Array | None
    mask: Bool[Array, "batch nodes"] | None
    max_steps: int
    keep_every: int


class Record(NamedTuple):
    """What a backward pass needs: the times stepped over in each turn of the loop, and the states that were kept.

    The times are all alike where no step was accepted; `slots` name the knot that was reached, 0 for none.
    """

    bounds: Float[Array, "turns points batch"]
    slots: Int[Array, "turns batch"]
    states: Float[Array, "kept ..."] | None
    turns: Int[Array, ""]


class Outcome(NamedTuple):
    """States at the knots, and how it went, for each trajectory."""

    states: Float[Array, "batch knots ..."]
    status: Int[Array, " batch"]
    reached: Float[Array, " batch"]
    stats: dict[str, Any]


class _State(NamedTuple):
    """Each trajectory at time t has passed `done` of the `parts` that it cuts the interval behind its knot into."""

    turn: Array
    t: Array
    z: Array
    w: Array
    knot: Array
    done: Array
    parts: Array
    wish: Array
    status: Array
    accepted: Array
    tried: Array
    out: Array
    record: Record | None


def run(
    equation: Equation,
    z0: Float[Array, "batch ..."],
    knots: Float[Array, "batch knots"],
    paths: BrownianPath,
    status: Int[Array, " batch"],
    steps: Steps,
    *,
    record: bool,
) -> tuple[Outcome, Record | None]:
    """Step from knot to knot until all have come to the last one, or failed; those with a bad `status` do not start.

    An interval between knots is cut into equal parts. Fixed steps are the fewest that are no longer than dt. Adaptive
    ones are powers of two: a rejected step is halved, and two halves behind each other that were easy become one again.
    So every time at which the noise was looked at is stepped onto later, without which errors and noise would become
    dependent and the limit wrong (Gaines and Lyons 1997).
    """
    batch, last = knots.shape[0], knots.shape[1] - 1
    rows = jnp.arange(batch)
    adaptive = steps.dt is None
    step = _adaptive_step if adaptive else _fixed_step
    finest_level = 22 if z0.dtype == jnp.float32 else 28
    finest = 2**finest_level
    span = jnp.abs(knots[:, -1] - knots[:, 0])

    def length(knot):
        knot = jnp.minimum(knot, last - 1)
        return jnp.abs(knots[rows, knot + 1] - knots[rows, knot])

    def first_parts(knot, wish):
        if adaptive:
            # The slack keeps intervals that rounding has made a little longer at the steps of the one before.
            exponent = jnp.ceil(jnp.log2(jnp.maximum(length(knot) / wish * 0.99, 1)))
            # Shifted and not raised to a power: rounding would break the alignment of the parts.
            return jnp.left_shift(1, jnp.minimum(exponent, finest_level).astype(jnp.int32))
        return step_count(length(knot), steps.dt).astype(jnp.int32)

    def body(s: _State) -> _State:
        active = (s.status == Status.SUCCESS) & (s.knot < last)
        left = knots[rows, jnp.minimum(s.knot, last - 1)]
        right = knots[rows, jnp.minimum(s.knot + 1, last)]

        def point(numerator, denominator):
            share = numerator.astype(z0.dtype) / denominator.astype(z0.dtype)
            t = jnp.where(numerator == denominator, right, left + share * (right - left))
            return jnp.where(active, t, s.t)

        middle = [point(2 * s.done + 1, 2 * s.parts)] if adaptive else []
        bounds = jnp.stack([s.t, *middle, point(s.done + 1, s.parts)])
        noise = jnp.concatenate([s.w[None], along(paths, bounds[1:])])
        z, ratio = step(equation, s.z, bounds, noise, steps)
        finite = jnp.all(jnp.isfinite(z.reshape(batch, -1)), axis=1)
        ratio = jnp.where(finite & (ratio >= 0), ratio, jnp.inf)
        ok = active & (ratio <= 1)

        h = jnp.abs(bounds[-1] - bounds[0])
        eps = jnp.finfo(z0.dtype).eps
        stuck = (s.parts >= finest) | (h <= 16 * eps * jnp.maximum(jnp.abs(s.t), 1e-6 * span)) | (not adaptive)
        failed = active & ~ok & stuck
        cause = jnp.where(finite, Status.STEP_UNDERFLOW.value, Status.NOT_FINITE.value)
        status = jnp.where(failed, cause, s.status)

        done = jnp.where(ok, s.done + 1, s.done)
        arrived = ok & (done == s.parts)
        knot = jnp.where(arrived, s.knot + 1, s.knot)
        parts = s.parts
        if adaptive:
            levels = jnp.floor(jnp.log2(0.9 / jnp.maximum(ratio, 1e-3)))
            coarser = jnp.where(ok, jnp.clip(levels, 0, 3), 0).astype(jnp.int32)
            # Only as coarse as the place allows: the trailing zeros of the parts done so far.
            zeros = jax.lax.population_count((done & -done) - 1)
            fewer = jnp.where(arrived, 0, jnp.minimum(coarser, zeros))
            finer = jnp.where(active & ~ok, jnp.clip(-levels, 1, 3), 0).astype(jnp.int32)
            wish = jnp.where(h > 0, h * jnp.exp2(coarser.astype(h.dtype)), s.wish)
            finer = jnp.where(s.parts << finer > finest, 1, finer)
            done, parts = (done >> fewer) << finer, (parts >> fewer) << finer
        else:
            wish = s.wish
        parts = jnp.where(arrived, first_parts(knot, wish), parts)
        done = jnp.where(arrived, 0, done)

        slots = jnp.where(arrived, knot, last + 1)
        out = s.out.at[rows, slots].set(z, mode="drop")
        written = s.record
        if written is not None:
            kept = written.states
            if kept is not None:
                due = s.turn % steps.keep_every == 0
                kept = kept.at[jnp.where(due, s.turn // steps.keep_every, kept.shape[0] - 1)].set(s.z)
            written = Record(
                written.bounds.at[s.turn].set(jnp.where(ok, bounds, s.t)),
                written.slots.at[s.turn].set(jnp.where(arrived, knot, 0)),
                kept,
                s.turn + 1,
            )
        return _State(
            s.turn + 1,
            jnp.where(ok, bounds[-1], s.t),
            jnp.where(expand(ok, z), z, s.z),
            jnp.where(expand(ok, z), noise[-1], s.w),
            knot,
            done,
            parts,
            wish,
            status,
            s.accepted + ok.astype(jnp.int32),
            s.tried + active.astype(jnp.int32),
            out,
            written,
        )

    def going(s: _State):
        # Not one predicate per sample: under `vmap` the loop would copy all that was written in every turn.
        running = jnp.any((s.status == Status.SUCCESS) & (s.knot < last))
        return eqxi.unvmap_any(running) & (s.turn < steps.max_steps)

    zeros = jnp.zeros(batch, jnp.int32)
    out = jnp.zeros((batch, last + 1, *z0.shape[1:]), z0.dtype).at[:, 0].set(z0)
    written = None
    if record:
        points = 3 if adaptive else 2
        kept = None
        if steps.keep_every:
            # The last place takes the states that are not to be kept.
            room = -(-steps.max_steps // steps.keep_every) + 1
            kept = jnp.zeros((room, *z0.shape), z0.dtype)
        written = Record(
            jnp.zeros((steps.max_steps, points, batch), z0.dtype),
            jnp.zeros((steps.max_steps, batch), jnp.int32),
            kept,
            jnp.zeros((), jnp.int32),
        )
    # A twentieth of the whole; not zero, where there is nowhere to go.
    first = jnp.maximum(span / 20, jnp.finfo(z0.dtype).tiny) if steps.first_step is None else steps.first_step
    first = jnp.broadcast_to(first, (batch,))
    w0 = along(paths, knots[None, :, 0])[0]
    parts = first_parts(zeros, first)
    turn = jnp.zeros((), jnp.int32)
    start = _State(turn, knots[:, 0], z0, w0, zeros, zeros, parts, first, status, zeros, zeros, out, written)
    s = jax.lax.while_loop(going, body, start)
    unfinished = (s.status == Status.SUCCESS) & (s.knot < last)
    status = jnp.where(unfinished, Status.MAX_STEPS.value, s.status)
    stats = {"num_steps": s.tried, "num_accepted_steps": s.accepted, "num_rejected_steps": s.tried - s.accepted}
    stats["num_evaluations"] = s.tried * evaluations(steps.method, adaptive)
    return Outcome(s.out, status, s.t, stats), s.record


def along(paths: BrownianPath, times: Float[Array, "points batch"]) -> Float[Array, "points batch ..."]:
    """Each trajectory's noise at its times."""
    return jax.vmap(lambda t: eqx.filter_vmap(lambda path, t: path(t))(paths, t))(times)


def advance(equation: Equation, z: Array, bounds: Array, noise: Array, steps: Steps) -> Array:
    """The state over all of the bounds in turn: what an accepted step is, and what gradients go through."""
    for j in range(bounds.shape[0] - 1):
        inc = Forwards(equation, bounds[j + 1] - bounds[j], noise[j + 1] - noise[j])
        z = take_step(z, bounds[j], bounds[j + 1], inc, steps)
    return z


def take_step(y: Any, start: Array, end: Array, increments: Increments, steps: Steps) -> Any:
    if steps.gap is not None:
        # The field may jump at either end, and what counts is the side that the step is on.
        inwards = jnp.minimum(steps.gap, jnp.abs(end - start) / 4) * jnp.sign(end - start)
        start, end = start + inwards, end - inwards
    return steps.method.step(start, end, y, increments)


def _fixed_step(equation, z, bounds, noise, steps):
    return advance(equation, z, bounds, noise, steps), jnp.zeros(z.shape[0], z.dtype)


def _adaptive_step(equation, z, bounds, noise, steps):
    """Two halves, and their difference from the whole as a share of what is allowed."""

    def from_start(end, noise_there):
        inc = Forwards(equation, end - bounds[0], noise_there - noise[0])
        return take_step(z, bounds[0], end, inc, steps)

    # Mapped over the two, so that what both do at the start is done once.
    half, whole = jax.vmap(from_start)(bounds[1:], noise[1:])
    new = advance(equation, half, bounds[1:], noise[1:], steps)
    error = (new - whole) / (steps.atol + steps.rtol * jnp.maximum(jnp.abs(z), jnp.abs(new)))
    if steps.mask is None:
        return new, jax.vmap(lambda e: MaskedRMS(None, False)(e))(error)
    return new, jax.vmap(lambda e, mask: MaskedRMS(mask, False)(e))(error, steps.mask)


def evaluations(method: Method, adaptive: bool) -> int:
    """How often drift and diffusion are evaluated in a step: an adaptive one is three, two of which start together."""
    return 3 * method.evaluations - method.at_start if adaptive else method.evaluations
