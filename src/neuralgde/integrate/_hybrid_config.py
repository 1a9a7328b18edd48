"""The settings of a hybrid solve, and what it returns."""

import dataclasses
from typing import Any

import diffrax
import equinox as eqx
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float, Int

from .._errors import InputError, unknown_name
from ._solvers import estimates_error, find_solver

ADJOINTS = ("direct", "checkpoint", "backsolve")


@dataclasses.dataclass(frozen=True)
class HybridConfig:
    """Keyword arguments of `solve_hybrid`, kept together.

    With `num_steps` every interval is cut into so many equal steps, whatever its length; with None the steps adapt to
    `rtol` and `atol`, starting from `first_step`, a share of the interval; without one, steps of explicit solvers
    start as would have been right in the interval before.
    """

    solver: str | diffrax.AbstractSolver = "heun"
    num_steps: int | None = 2
    rtol: float = 1e-4
    atol: float = 1e-6
    first_step: float | None = None
    adjoint: str | None = None
    max_steps: int = 4096

    def kwargs(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}

    def checked(self) -> "HybridConfig":
        """The same settings, if they can be used, with the solver itself for its name, and the adjoint that None is."""
        solver = find_solver(self.solver, fixed=self.num_steps is not None)
        adjoint = self.adjoint
        if adjoint is None:
            adjoint = "direct" if self.num_steps is not None else "checkpoint"
        if adjoint not in ADJOINTS:
            raise InputError(unknown_name("adjoint", adjoint, ADJOINTS))
        for name, value in (("num_steps", self.num_steps), ("max_steps", self.max_steps)):
            if value is not None and (not isinstance(value, int) or value < 1):
                raise InputError(f"{name}: expected a whole number, 1 or more, got {value!r}.")
        if self.num_steps is None and not estimates_error(solver):
            raise InputError(
                f"num_steps: {type(solver).__name__} has no error estimate, so its step cannot adapt. Give the number "
                "of steps in an interval, num_steps=…, or take a solver that adapts, such as 'tsit5'."
            )
        if self.first_step is not None and self.num_steps is not None:
            raise InputError(
                "first_step: only adaptive steps have one, and num_steps asks for fixed steps. Give num_steps=None."
            )
        step = self.first_step
        if step is not None and not isinstance(step, Tracer) and not (np.isfinite(step) and 0 < step <= 1):
            raise InputError(f"first_step: expected a share of the interval in (0, 1], got {step}.")
        return dataclasses.replace(self, solver=solver, adjoint=adjoint)


class HybridSolution(eqx.Module):
    """States at the times asked for, and on both sides of every jump. In a batch, the batch is the first axis of all.

    - `states` (queries, nodes, features) at `times`; one at a time of observation is that before the jump.
    - `before`, `after` (steps, nodes, features): at each t_k before and after the jump. Steps that pad repeat the last.
    - `seen` (queries,): the step whose observation was the last one known at each of `times`, -1 where none was.
    - `status` compares to `Status`; `reached` is the time of the last jump up to which all is finite and solved.
    - `stats`: `num_steps` and `num_evaluations` of the flow (None for implicit solvers), and `num_events`, the jumps
      that the state triggered.
    """

    times: Float[Array, "*batch queries"]
    states: Float[Array, "*batch queries nodes features"]
    before: Float[Array, "*batch steps nodes features"]
    after: Float[Array, "*batch steps nodes features"]
    seen: Int[Array, "*batch queries"]
    status: Int[Array, ""]
    reached: Float[Array, "*batch"]
    stats: dict[str, Any]
