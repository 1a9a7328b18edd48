"""What `solve` is given, checked before anything runs."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array

from .._arrays import on_device
from .._errors import InputError
from ._solvers import estimates_error


def as_state(z0: Any) -> Array:
    z0 = on_device(z0) if isinstance(z0, np.ndarray) else jnp.asarray(z0)
    if not jnp.issubdtype(z0.dtype, jnp.floating):
        raise InputError(f"z0: expected floating-point numbers, got dtype {z0.dtype}. Convert it first.")
    return z0


def as_times(times: Any, z0: Array, batched: bool) -> tuple[Array, np.ndarray | None]:
    """The times in the state's precision, and on the host where they are known there. A batch may share them."""
    traced = any(isinstance(t, Tracer) for t in jax.tree.leaves(times))
    host = None if traced else np.asarray(times, float)
    times = jnp.asarray(times).astype(z0.dtype) if host is None else on_device(host, z0.dtype)
    expected = f"(times,) or ({z0.shape[0]}, times)" if batched else "(times,)"
    wrong_batch = times.ndim == 2 and not (batched and times.shape[0] == z0.shape[0])
    if times.ndim not in (1, 2) or wrong_batch or times.shape[-1] == 0:
        raise InputError(f"times: expected shape {expected} with at least one time, got {times.shape}.")
    if host is not None:
        _check_times(host)
    return times, host


def _check_times(times: np.ndarray) -> None:
    if bad := np.argwhere(~np.isfinite(times))[:1].tolist():
        raise InputError(f"times{bad[0]} is {times[tuple(bad[0])]}: expected finite times.")
    steps = np.diff(times, axis=-1)
    turns = ~(np.all(steps >= 0, axis=-1) | np.all(steps <= 0, axis=-1))
    if np.any(turns):
        row = np.atleast_2d(times)[np.flatnonzero(np.atleast_1d(turns))[0]]
        sign = np.sign(row[-1] - row[0]) or 1.0
        k = int(np.flatnonzero(np.diff(row) * sign < 0)[0])
        raise InputError(
            f"times: expected all in one direction, but {row[k]} is followed by {row[k + 1]} at position {k + 1}. "
            "Sort them first."
        )


def times_are_right(times: Array) -> Array:
    steps = jnp.diff(times, axis=-1)
    one_way = jnp.all(steps >= 0, axis=-1) | jnp.all(steps <= 0, axis=-1)
    return jnp.all(jnp.isfinite(times)) & jnp.all(one_way)


def check_steps(solver, dt0, first_step, max_steps) -> None:
    name = type(solver).__name__
    if dt0 is None and not estimates_error(solver):
        raise InputError(
            f"dt0: {name} has no error estimate, so its step cannot adapt. Give a fixed step dt0=…, or take a solver "
            "that adapts, such as 'tsit5'."
        )
    check_positive(dt0, first_step, max_steps)


def check_positive(dt0, first_step, max_steps) -> None:
    """What all solves ask of their steps."""
    if dt0 is not None and first_step is not None:
        raise InputError("first_step: only adaptive steps have one, and dt0 asks for fixed steps. Give one of the two.")
    for label, value in (("dt0", dt0), ("first_step", first_step)):
        if value is None or isinstance(value, Tracer):
            continue
        if not (np.ndim(value) == 0 and np.isfinite(value) and value > 0):
            raise InputError(f"{label}: expected a positive number whatever the direction of time, got {value}.")
    if not isinstance(max_steps, int) or max_steps < 1:
        raise InputError(f"max_steps: expected a whole number, 1 or more, got {max_steps!r}.")
