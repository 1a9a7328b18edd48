"""Failures, raised: outside `jit` as `SolveError`, inside as a runtime error with the same words."""

from typing import TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from .._errors import SolveError
from ._hybrid_config import HybridSolution
from ._solution import Solution
from ._status import Status, describe

_AnySolution = TypeVar("_AnySolution", Solution, HybridSolution)


def raise_or_return(sol: _AnySolution, field, max_steps: int) -> _AnySolution:
    if isinstance(sol.status, Tracer):
        causes = [status for status in Status if status != Status.SUCCESS]
        messages = [describe(status, max_steps=max_steps) for status in causes]
        worst = jnp.max(sol.status)
        states = eqx.branched_error_if(sol.states, worst != Status.SUCCESS, jnp.maximum(worst, 1) - 1, messages)
        return eqx.tree_at(lambda s: s.states, sol, states)
    statuses = np.ravel(sol.status)
    first = int(np.flatnonzero(statuses)[0]) if statuses.any() else 0
    status = Status(int(statuses[first]))
    if status == Status.SUCCESS:
        return sol
    # A joint batch has one status and stops all samples at the same place, so the first tells of all.
    reached = None if isinstance(sol.reached, Tracer) else float(np.ravel(sol.reached)[first])
    where = "" if reached is None or status in (Status.BAD_STATE, Status.BAD_TIMES) else f" after t = {reached:.6g}"
    if statuses.size > 1:
        where = f" in trajectory {first} of the batch{where}"
    message = describe(status, max_steps=max_steps, where=where)
    if bad := _first_bad_parameter(field):
        message += f" The field's parameter {bad} is not finite."
    raise SolveError(message, status=status.name.lower(), time=reached)


def _first_bad_parameter(field) -> str | None:
    for path, leaf in jax.tree_util.tree_leaves_with_path(field):
        known = eqx.is_inexact_array(leaf) and not isinstance(leaf, Tracer)
        if known and not bool(jnp.all(jnp.isfinite(leaf))):
            return jax.tree_util.keystr(path)
    return None
