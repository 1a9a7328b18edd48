"""Which engine solves, by the steps asked for and by how gradients are to be had."""

from typing import Any

import diffrax
from jaxtyping import Array, Float, PyTree

from ._adaptive import can_adapt, run_adaptive
from ._backsolve import solve_with_adjoint
from ._engines import Outcome, Steps, VectorField, run_diffrax


def run(
    field: VectorField,
    y0: PyTree,
    times: Float[Array, " times"],
    args: Any,
    steps: Steps,
    adjoint: str | diffrax.AbstractAdjoint,
) -> Outcome:
    """The states at `times`, differentiable in y0 and args by the adjoint named."""
    if adjoint == "backsolve":
        return solve_with_adjoint((y0, args), times, field, steps)
    if adjoint == "checkpoint" and can_adapt(steps):
        return run_adaptive(field, y0, times, args, steps)
    if isinstance(adjoint, str):
        adjoint = diffrax.RecursiveCheckpointAdjoint() if adjoint == "checkpoint" else diffrax.DirectAdjoint()
    return run_diffrax(field, y0, times, args, steps, adjoint)
