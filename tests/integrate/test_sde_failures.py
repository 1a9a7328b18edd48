"""Stochastic solves that fail: every cause has its name, and one trajectory does not stop the others."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import neuralgde as gde

KEY = jax.random.key(4)
WAYS = [("euler_heun", None), ("heun", 0.05)]


class OneOf(eqx.Module):
    """Every way to fail in one drift, so that a solver is compiled once for all of them."""

    which: jax.Array

    def __call__(self, t, z, graph):
        return jnp.select(
            [self.which == 0, self.which == 1, self.which == 2],
            [z**2, jnp.where(t > 0.5, jnp.nan, -z), jnp.nan * z],
            -z,
        )


def small_noise(t, z, graph):
    return 0.01 * z


@pytest.mark.parametrize(("solver", "dt0"), WAYS)
def test_drift_that_fails(solver, dt0):
    for which, latest in enumerate((1.7, 0.56, 0.0)):
        drift = OneOf(jnp.asarray(which))
        with pytest.raises(gde.SolveError, match="Usual fix") as error:
            gde.solve_sde(drift, small_noise, jnp.ones(2), [0.0, 3.0], key=KEY, solver=solver, dt0=dt0)
        assert error.value.status in ("not_finite", "step_underflow")
        assert error.value.time <= latest
        sol = gde.solve_sde(drift, small_noise, jnp.ones(2), [0.0, 3.0], key=KEY, solver=solver, dt0=dt0, throw=False)
        assert int(sol.status) != gde.Status.SUCCESS
        assert np.isnan(sol.states[-1]).all()


@pytest.mark.parametrize(("solver", "dt0"), WAYS)
def test_causes_are_told_apart(solver, dt0):
    @jax.jit
    def run(z0, times):
        return gde.solve_sde(
            OneOf(jnp.asarray(1)), small_noise, z0, times, key=KEY, solver=solver, dt0=dt0, throw=False
        )

    def status(z0=1.0, times=(0.0, 3.0)):
        return gde.Status(int(run(jnp.full(2, z0), jnp.asarray(times)).status))

    assert status() == gde.Status.NOT_FINITE
    assert status(times=(0.0, 0.4)) == gde.Status.SUCCESS
    assert status(z0=np.nan) == gde.Status.BAD_STATE
    assert status(times=(0.0, np.nan)) == gde.Status.BAD_TIMES
    assert status(times=(0.0, 1e10)) == gde.Status.BAD_TIMES


def test_diffusion_that_fails():
    with pytest.raises(gde.SolveError, match="became NaN or infinite"):
        gde.solve_sde(lambda t, z, g: -z, lambda t, z, g: jnp.nan * z, jnp.ones(2), [0.0, 1.0], key=KEY)


def test_steps_exhausted():
    with pytest.raises(gde.SolveError, match="max_steps=20") as error:
        gde.solve_sde(lambda t, z, g: -1e3 * z, small_noise, jnp.ones(2), [0.0, 9.0], key=KEY, max_steps=20)
    assert error.value.status == "max_steps"


def test_one_trajectory_fails_and_the_others_go_on():
    graph = gde.Graph.from_edges([], [], num_nodes=1)
    z0 = jnp.array([0.5, 1.0, 0.2])[:, None, None]
    options = {"key": KEY, "rtol": 1e-3}
    sol = gde.solve_sde(lambda t, z, g: z**2, small_noise, z0, [0.0, 0.3, 1.5], graph, throw=False, **options)
    assert sol.status.tolist()[::2] == [gde.Status.SUCCESS] * 2
    assert sol.status.tolist()[1] == gde.Status.STEP_UNDERFLOW
    assert np.isfinite(sol.states[0]).all()
    np.testing.assert_allclose(sol.states[2, -1, 0, 0], 0.2 / (1 - 0.3), rtol=0.05)
    assert np.isfinite(sol.states[1, 1]).all()
    assert np.isnan(sol.states[1, 2]).all()
    with pytest.raises(gde.SolveError, match="trajectory 1 of the batch"):
        gde.solve_sde(lambda t, z, g: z**2, small_noise, z0, [0.0, 0.3, 1.5], graph, **options)


def test_inside_jit_the_error_names_the_cause():
    @eqx.filter_jit
    def run(z0):
        return gde.solve_sde(lambda t, z, g: jnp.nan * z, small_noise, z0, [0.0, 1.0], key=KEY)

    with pytest.raises(eqx.EquinoxRuntimeError, match="became NaN or infinite"):
        jax.block_until_ready(run(jnp.ones(2)).states)
