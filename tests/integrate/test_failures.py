"""Nothing that is not finite passes for a solution: every cause has its name, for every solver."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import neuralgde as gde
from neuralgde.integrate import SOLVERS
from problems import small_graph

NO_ESTIMATE = ("euler", "rk4", "implicit_euler")
WAYS = [(s, None) for s in SOLVERS if s not in NO_ESTIMATE] + [(s, 0.05) for s in SOLVERS]


def explode(t, z, graph):
    return z**2


def turn_nan(t, z, graph):
    return jnp.where(t > 0.5, jnp.nan, -z)


def turn_infinite(t, z, graph):
    return jnp.where(t > 0.5, jnp.inf, -z)


def always_nan(t, z, graph):
    return jnp.nan * z


class OneOf(eqx.Module):
    """Every way to fail in one field, so that a solver is compiled once for all of them."""

    which: jax.Array

    def __call__(self, t, z, graph):
        ways = (explode, turn_nan, turn_infinite, always_nan)
        return jax.lax.switch(self.which, [lambda t, z, f=f: f(t, z, graph) for f in ways], t, z)


@pytest.mark.parametrize(("solver", "dt0"), WAYS)
def test_field_that_fails(solver, dt0):
    for which, latest in enumerate((1.6, 0.56, 0.56, 0.0)):
        with pytest.raises(gde.SolveError) as error:
            gde.solve(OneOf(jnp.asarray(which)), jnp.ones(2), [0.0, 3.0], solver=solver, dt0=dt0)
        assert error.value.status in ("not_finite", "step_underflow", "implicit_failed")
        assert error.value.time <= latest
        assert "Usual fix" in str(error.value)


@pytest.mark.parametrize(("solver", "dt0"), [("tsit5", None), ("rk4", 0.05)])
def test_causes_are_told_apart(solver, dt0):
    def status(field, z0=1.0, times=(0.0, 3.0)):
        return gde.Status(int(gde.solve(field, jnp.full(2, z0), times, solver=solver, dt0=dt0, throw=False).status))

    assert status(turn_nan) == gde.Status.NOT_FINITE
    assert status(turn_nan, times=(0.0, 0.4)) == gde.Status.SUCCESS
    assert status(turn_nan, z0=np.nan) == gde.Status.BAD_STATE
    assert status(turn_nan, z0=np.inf) == gde.Status.BAD_STATE
    if dt0 is None:
        assert status(explode) == gde.Status.STEP_UNDERFLOW


def test_steps_exhausted():
    with pytest.raises(gde.SolveError, match="max_steps=20") as error:
        gde.solve(lambda t, z, g: -1e4 * (z - jnp.cos(t)), jnp.ones(2), [0.0, 30.0], max_steps=20)
    assert error.value.status == "max_steps"


def test_the_part_solved_comes_back():
    sol = gde.solve(turn_nan, jnp.ones(2), [0.0, 0.25, 0.4, 1.0, 2.0], solver="rk4", dt0=0.05, throw=False)
    np.testing.assert_allclose(sol.states[:3, 0], np.exp([0, -0.25, -0.4]), rtol=1e-5)
    assert np.isnan(sol.states[3:]).all()
    assert 0.4 < float(sol.reached) <= 0.51


def test_bad_parameters_are_named():
    field = gde.GCDE((4, 5, 4), key=jax.random.key(0))
    field = eqx.tree_at(lambda f: f.layers[1].bias, field, jnp.full(4, jnp.nan))
    with pytest.raises(gde.SolveError, match=r"layers\[1\].bias is not finite"):
        gde.solve(field, jnp.ones((6, 4)), [0.0, 1.0], small_graph())


@pytest.mark.parametrize("backwards", [False, True])
def test_inside_jit_the_status_comes_back(backwards):
    times = jnp.array([3.0, 0.0]) if backwards else jnp.array([0.0, 3.0])

    @jax.jit
    def run(z, times):
        return gde.solve(lambda t, z, g: (-1 if backwards else 1) * z**2, z, times, throw=False)

    assert int(run(jnp.ones(2), times).status) == gde.Status.STEP_UNDERFLOW
    assert int(run(jnp.ones(2), times / 10).status) == gde.Status.SUCCESS
    assert int(run(jnp.ones(2) * jnp.nan, times).status) == gde.Status.BAD_STATE
    for bad in (jnp.array([0.0, jnp.nan]), jnp.array([jnp.inf, 0.0])):
        sol = run(jnp.ones(2), bad)
        assert int(sol.status) == gde.Status.BAD_TIMES


def test_inside_jit_the_error_names_the_same_cause():
    @eqx.filter_jit
    def run(z):
        return gde.solve(turn_nan, z, jnp.array([0.0, 3.0]), solver="rk4", dt0=0.05)

    with pytest.raises(eqx.EquinoxRuntimeError, match="became NaN or infinite"):
        jax.block_until_ready(run(jnp.ones(2)).states)


def test_one_failing_sample_under_vmap():
    """Seeds are an axis: one that fails does not stop the others."""

    def run(rate):
        return gde.solve(lambda t, z, g: rate * z**2, jnp.ones(2), jnp.array([0.0, 3.0]), throw=False)

    sol = jax.vmap(run)(jnp.array([-1.0, 1.0]))
    assert sol.status.tolist() == [gde.Status.SUCCESS, gde.Status.STEP_UNDERFLOW]
    np.testing.assert_allclose(sol.states[0, -1], 0.25, rtol=1e-3)


GRAPH = small_graph()


@pytest.mark.parametrize(
    ("change", "names"),
    [
        ({"solver": "dopri"}, ["solver", "dopri5"]),
        ({"adjoint": "backsolv"}, ["adjoint", "backsolve"]),
        ({"solver": "euler"}, ["dt0", "Euler"]),
        ({"solver": "rk4"}, ["dt0", "RK4"]),
        ({"dt0": -0.1}, ["dt0", "-0.1"]),
        ({"dt0": 0.1, "first_step": 0.1}, ["first_step", "dt0"]),
        ({"max_steps": 0}, ["max_steps", "0"]),
        ({"times": []}, ["times", "(0,)"]),
        ({"times": [0.0, np.nan]}, ["times[1]", "nan"]),
        ({"times": [0.0, 2.0, 1.0]}, ["2.0", "1.0", "position 2"]),
        ({"times": np.array([[0.0, 1.0]])}, ["times", "(1, 2)"]),
        ({"z0": np.ones((5, 4))}, ["z0", "(6, features)"]),
        ({"z0": np.ones((6, 4), int)}, ["z0", "int"]),
        ({"z0": np.ones((2, 6, 4)), "times": np.zeros((3, 2))}, ["times", "(3, 2)"]),
    ],
    ids=str,
)
def test_bad_arguments_are_named(change, names):
    given = {"z0": np.ones((6, 4)), "times": [0.0, 1.0], **change}
    with pytest.raises(gde.InputError) as error:
        gde.solve(explode, given.pop("z0"), given.pop("times"), GRAPH, **given)
    for name in names:
        assert name in str(error.value)
