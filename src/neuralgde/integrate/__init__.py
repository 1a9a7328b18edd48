"""Integrators: the only place that calls Diffrax."""

from ._config import SolveConfig as SolveConfig
from ._hybrid import solve_hybrid as solve_hybrid
from ._hybrid_config import HybridConfig as HybridConfig
from ._hybrid_config import HybridSolution as HybridSolution
from ._hybrid_event import Event as Event
from ._ode import solve as solve
from ._sde import solve_sde as solve_sde
from ._sde_methods import SDE_SOLVERS as SDE_SOLVERS
from ._solution import Solution as Solution
from ._solvers import SOLVERS as SOLVERS
from ._status import Status as Status
