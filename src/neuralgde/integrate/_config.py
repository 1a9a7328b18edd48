"""The settings of a solve as one value, which models carry."""

import dataclasses
from typing import Any

import diffrax


@dataclasses.dataclass(frozen=True)
class SolveConfig:
    """Keyword arguments of `solve`, kept together: `solve(field, z0, times, graph, **config.kwargs())`."""

    solver: str | diffrax.AbstractSolver = "tsit5"
    rtol: float = 1e-4
    atol: float = 1e-6
    dt0: float | None = None
    first_step: float | None = None
    adjoint: str | diffrax.AbstractAdjoint = "checkpoint"
    max_steps: int = 4096

    def kwargs(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
