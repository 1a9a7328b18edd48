"""Integrators: the only place that calls Diffrax."""

from ._config import SolveConfig as SolveConfig
from ._ode import solve as solve
from ._sde import solve_sde as solve_sde
from ._sde_methods import SDE_SOLVERS as SDE_SOLVERS
from ._solution import Solution as Solution
from ._solvers import SOLVERS as SOLVERS
from ._status import Status as Status
