"""Solvers by name, and what is known of each: stages, order, whether it can estimate its error."""

import functools
from collections.abc import Callable
from typing import ClassVar, NamedTuple

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import optimistix

from .._errors import InputError, unknown_name


class RK4(diffrax.AbstractERK):
    """The classical Runge-Kutta method of order 4, which has no error estimate."""

    tableau: ClassVar[diffrax.ButcherTableau] = diffrax.ButcherTableau(
        a_lower=(np.array([0.5]), np.array([0.0, 0.5]), np.array([0.0, 0.0, 1.0])),
        b_sol=np.array([1 / 6, 1 / 3, 1 / 3, 1 / 6]),
        b_error=np.zeros(4),
        c=np.array([0.5, 0.5, 1.0]),
    )
    interpolation_cls: ClassVar[Callable] = diffrax.ThirdOrderHermitePolynomialInterpolation.from_k

    def order(self, terms):
        del terms
        return 4


SOLVERS: dict[str, type[diffrax.AbstractSolver]] = {
    "euler": diffrax.Euler,
    "heun": diffrax.Heun,
    "midpoint": diffrax.Midpoint,
    "ralston": diffrax.Ralston,
    "bosh3": diffrax.Bosh3,
    "rk4": RK4,
    "tsit5": diffrax.Tsit5,
    "dopri5": diffrax.Dopri5,
    "dopri8": diffrax.Dopri8,
    "implicit_euler": diffrax.ImplicitEuler,
    "kvaerno3": diffrax.Kvaerno3,
    "kvaerno4": diffrax.Kvaerno4,
    "kvaerno5": diffrax.Kvaerno5,
}


def find_solver(solver: str | diffrax.AbstractSolver, *, fixed: bool) -> diffrax.AbstractSolver:
    if isinstance(solver, diffrax.AbstractSolver):
        return solver
    if not isinstance(solver, str) or solver not in SOLVERS:
        raise InputError(unknown_name("solver", solver, SOLVERS) + " A Diffrax solver object works too.")
    cls = SOLVERS[solver]
    if fixed and issubclass(cls, diffrax.AbstractImplicitSolver):
        # Diffrax's own root finder gives up early and counts on the step being shrunk, which a fixed step is not.
        chord = diffrax.with_stepsize_controller_tols(optimistix.Chord)()
        return cls(root_finder=chord, root_find_max_steps=30)  # pyright: ignore[reportCallIssue]
    return cls()


def estimates_error(solver: diffrax.AbstractSolver) -> bool:
    return isinstance(solver, diffrax.AbstractAdaptiveSolver) and not isinstance(solver, RK4)


class Stages(NamedTuple):
    """An explicit Runge-Kutta step: rows (c_i, a_i) and weights b. Stages that the result does not use are left out."""

    rows: list[tuple[float, np.ndarray]]
    weights: np.ndarray


def explicit_stages(solver: diffrax.AbstractSolver) -> Stages | None:
    """The stages of one step where the solver is an explicit Runge-Kutta method, else None."""
    if isinstance(solver, diffrax.Euler):
        return Stages([(0.0, np.zeros(0))], np.ones(1))
    tableau = getattr(solver, "tableau", None)
    if not isinstance(solver, diffrax.AbstractERK) or not isinstance(tableau, diffrax.ButcherTableau):
        return None
    rows = [(0.0, np.zeros(0)), *zip(map(float, tableau.c), tableau.a_lower, strict=True)]
    weights = np.asarray(tableau.b_sol)
    # A first-same-as-last method closes with a stage for the next step's use; a fixed step needs none.
    used = int(np.flatnonzero(weights)[-1]) + 1
    return Stages(rows[:used], weights[:used])


class Pair(NamedTuple):
    """An embedded explicit pair: rows (c_i, a_i) of all stages, weights b of the result and of its error estimate.

    Inside a step z(t + theta h) = z + h sum_i w_i(theta) k_i, with w_i(theta) = sum_p dense[i, p] theta^(p + 1).
    """

    rows: list[tuple[float, np.ndarray]]
    weights: np.ndarray
    error: np.ndarray
    dense: np.ndarray
    order: int
    # The last stage is the first of the next step.
    fsal: bool


# Every stage is a copy of the field in the compiled program: past this many, a loop over stages compiles faster.
_MOST_STAGES = 7


def explicit_pair(solver: diffrax.AbstractSolver) -> Pair | None:
    """The pair where the solver is an explicit Runge-Kutta method that estimates its error, else None."""
    tableau = getattr(solver, "tableau", None)
    if not isinstance(solver, diffrax.AbstractERK) or not isinstance(tableau, diffrax.ButcherTableau):
        return None
    order = solver.order(diffrax.ODETerm(lambda t, y, args: y))
    if order is None or not estimates_error(solver) or tableau.num_stages > _MOST_STAGES:
        return None
    rows = [(0.0, np.zeros(0)), *zip(map(float, tableau.c), map(np.asarray, tableau.a_lower), strict=True)]
    weights, error = np.asarray(tableau.b_sol), np.asarray(tableau.b_error)
    dense = _dense_weights(solver.interpolation_cls, tuple(weights))
    return Pair(rows, weights, error, dense, order, bool(tableau.fsal))


@functools.cache
def _dense_weights(interpolation: Callable, weights: tuple[float, ...]) -> np.ndarray:
    """The polynomials w_i(theta), found by interpolating over a unit step whose slopes are the unit vectors."""
    degree = 5
    theta = (np.arange(degree) + 1) / degree
    slopes = np.eye(len(weights))
    with jax.ensure_compile_time_eval(), jax.enable_x64():
        inside = interpolation(
            t0=0.0, t1=1.0, y0=jnp.zeros(len(weights)), y1=jnp.asarray(weights), k=jnp.asarray(slopes)
        )
        values = np.stack([np.asarray(inside.evaluate(float(x))) for x in theta])
    powers = theta[:, None] ** (np.arange(degree) + 1)
    coefficients = np.linalg.solve(powers, values).T
    # What is left of powers that the polynomials do not have is rounding.
    coefficients[np.abs(coefficients) < 1e-12] = 0
    return coefficients[:, : 1 + np.flatnonzero(coefficients.any(axis=0))[-1]]


def evaluations_per_step(solver: diffrax.AbstractSolver) -> tuple[int, int] | None:
    """How often Diffrax evaluates the field: (once per solve, per step), or None for implicit methods."""
    if isinstance(solver, diffrax.Euler):
        return 0, 1
    tableau = getattr(solver, "tableau", None)
    if not isinstance(solver, diffrax.AbstractERK) or not isinstance(tableau, diffrax.ButcherTableau):
        return None
    return (1, tableau.num_stages - 1) if tableau.fsal else (0, tableau.num_stages)
