"""Integrators: the only place that calls Diffrax."""

from ._config import SolveConfig as SolveConfig
from ._ode import solve as solve
from ._solution import Solution as Solution
from ._solvers import SOLVERS as SOLVERS
from ._status import Status as Status
