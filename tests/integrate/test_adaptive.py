"""The loop of adaptive explicit steps: its gradient over few and many steps, and solves side by side."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import neuralgde as gde
from neuralgde.integrate._record import _num_slots

pytestmark = pytest.mark.usefixtures("x64")


class Pendulums(eqx.Module):
    """x'' = -w^2 sin x on every node, driven a little: long solves that neither settle nor blow up."""

    frequency: jax.Array | np.ndarray

    def __call__(self, t, z, graph):
        x, v = z[:, :1], z[:, 1:]
        return jnp.concatenate([v, -(self.frequency**2) * jnp.sin(x) + 0.1 * jnp.cos(t)], axis=1)


Z0 = np.random.default_rng(2).standard_normal((6, 2))
PENDULUMS = Pendulums(np.asarray(2.0))


def solve(field, z0, times, rtol=1e-6, **options):
    options = {"solver": "bosh3", "max_steps": 8192, "throw": False, **options}
    # The field asks nothing of a graph, so that states may have any number of nodes.
    return gde.solve(field, z0, times, rtol=rtol, atol=rtol, **options)


@eqx.filter_jit
def gradients(inputs, rtol, adjoint, solver):
    def loss(inputs):
        sol = solve(*inputs, rtol, adjoint=adjoint, solver=solver)
        return jnp.mean(sol.states**2), sol.stats["num_steps"]

    return eqx.filter_grad(loss, has_aux=True)(inputs)


@pytest.mark.parametrize(
    ("rtol", "least", "most"),
    [(1e-3, 10, 32), (1e-5, 64, 1000), (2e-9, 1500, 4000)],
    ids=["all states kept", "some thinned out", "some computed twice"],
)
def test_the_gradient_goes_back_over_any_number_of_steps(rtol, least, most):
    inputs = jax.tree.map(jnp.asarray, (PENDULUMS, Z0, np.linspace(0.0, 5.0, 4)))
    found, count = gradients(inputs, rtol, "checkpoint", "bosh3")
    exact, _ = gradients(inputs, 1e-10, "checkpoint", "dopri8")
    assert least <= count <= most
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(exact), strict=True):
        np.testing.assert_allclose(a, b, atol=200 * rtol)


def test_large_states_of_which_fewer_are_kept_have_the_same_gradient():
    copies, times = 6_000, jnp.linspace(0.0, 5.0, 3)
    frequency, z0 = jnp.asarray(2.0), jnp.asarray(Z0)
    small, count = gradients((Pendulums(frequency), z0, times), 1e-4, "checkpoint", "bosh3")
    large, same = gradients((Pendulums(frequency), jnp.tile(z0, (copies, 1)), times), 1e-4, "checkpoint", "bosh3")
    assert (_num_slots(8192, Z0.nbytes), _num_slots(8192, copies * Z0.nbytes)) == (46, 24)
    assert count == same > 46
    np.testing.assert_allclose(large[0].frequency, small[0].frequency, rtol=1e-9)
    np.testing.assert_allclose(large[1].reshape(copies, *Z0.shape).sum(0), small[1], rtol=1e-9)


@pytest.mark.parametrize("times", [(0.0, 1.0), (1.0, 0.3, 0.3, -0.5), (0.0, 0.0, 0.5)])
def test_gradients_in_times(times):
    times = jnp.asarray(times)

    @jax.jit
    def loss(times):
        return jnp.sum(jnp.sin(solve(PENDULUMS, Z0, times, 1e-9, solver="dopri5").states))

    found = jax.grad(loss)(times)
    # Only the last time can move both ways and leave the others in order.
    step = jnp.zeros_like(times).at[-1].set(1e-5)
    np.testing.assert_allclose(found[-1], (loss(times + step) - loss(times - step)) / 2e-5, atol=1e-5)
    # All times later by the same: the field depends on t, so that this changes the solution.
    np.testing.assert_allclose(found.sum(), (loss(times + 1e-5) - loss(times - 1e-5)) / 2e-5, atol=1e-5)


def test_side_by_side_as_alone():
    times = jnp.linspace(0.0, 2.0, 5)
    fields = Pendulums(jnp.array([0.5, 2.0, 9.0]))

    @eqx.filter_jit
    def run(field, z0):
        def loss(inputs):
            sol = solve(*inputs, times)
            return jnp.mean(sol.states**2), sol

        (_, sol), grads = eqx.filter_value_and_grad(loss, has_aux=True)((field, z0))
        return sol, grads

    sol, grads = eqx.filter_vmap(run, in_axes=(eqx.if_array(0), None))(fields, jnp.asarray(Z0))
    assert len(set(sol.stats["num_steps"].tolist())) == 3
    z0 = jnp.asarray(Z0)
    for i, frequency in enumerate(fields.frequency):
        alone, grads_alone = run(Pendulums(frequency), z0)
        assert sol.stats["num_steps"][i] == alone.stats["num_steps"]
        np.testing.assert_allclose(sol.states[i], alone.states, atol=1e-12)
        np.testing.assert_allclose(grads[0].frequency[i], grads_alone[0].frequency, atol=1e-12)
        np.testing.assert_allclose(grads[1][i], grads_alone[1], atol=1e-12)

    def total(z0):
        sol = eqx.filter_vmap(lambda field: solve(field, z0, times).states)(fields)
        return jnp.mean(sol**2)

    # The gradient of many is the mean of theirs.
    np.testing.assert_allclose(jax.jit(jax.grad(total))(z0), grads[1].mean(0), atol=1e-12)


def test_many_outputs_forwards_and_backwards_alone_and_side_by_side():
    """More than one block of outputs, the last not full; several steps lie between some, none between others."""
    rng = np.random.default_rng(3)
    dense = np.sort(rng.uniform(2.0, 2.2, 80))
    ahead = np.concatenate([[0.0, 0.0, 0.5], dense, dense[-1:], [4.0, 5.0, 5.0]])
    both = jnp.asarray([ahead, 3.0 - ahead])
    weights = jnp.asarray(rng.standard_normal((len(ahead), *Z0.shape)))

    def run(times, field, adjoint):
        def loss(inputs):
            states = solve(*inputs, rtol=1e-9, solver="dopri5", adjoint=adjoint).states
            return jnp.sum(weights * states), states

        inputs = field, jnp.asarray(Z0), times
        (_, states), grads = eqx.filter_value_and_grad(loss, has_aux=True)(inputs)
        return states, grads[0].frequency, grads[1]

    field = Pendulums(jnp.asarray(2.0))
    alone = eqx.filter_jit(lambda times: run(times, field, "checkpoint"))
    exact = eqx.filter_jit(lambda times: run(times, field, "direct"))
    side_by_side = eqx.filter_jit(eqx.filter_vmap(lambda times: run(times, field, "checkpoint")))(both)
    for i, times in enumerate(both):
        for found, lane, want in zip(alone(times), side_by_side, exact(times), strict=True):
            np.testing.assert_allclose(found, want, rtol=1e-6, atol=1e-6)
            np.testing.assert_allclose(lane[i], found, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    "rate, cause", [(1.0, gde.Status.MAX_STEPS), (jnp.inf, gde.Status.NOT_FINITE)], ids=["steps", "values"]
)
def test_of_many_outputs_those_before_a_failure_are_there(rate, cause):
    def field(t, z, graph):
        return jnp.where(t > 1.5, rate, 1.0) * jnp.cos(10 * t) * jnp.ones_like(z)

    times = np.linspace(0.0, 3.0, 200)
    sol = solve(field, np.zeros(1), times, solver="dopri5", max_steps=2000 if np.isinf(rate) else 20)
    assert sol.status == cause and 0.3 < sol.reached <= 1.6
    there = times <= float(sol.reached)
    assert 20 < there.sum() < 180
    np.testing.assert_allclose(sol.states[there, 0], np.sin(10 * times[there]) / 10, atol=1e-4)
    assert np.isnan(sol.states[~there]).all()


class Stairs(eqx.Module):
    """dz/dt is 1 and -2 in turn, and changes at the breakpoints."""

    breakpoints: jax.Array | np.ndarray

    def __call__(self, t, z, graph):
        odd = jnp.sum(t >= self.breakpoints) % 2
        return jnp.where(odd, -2.0, 1.0).astype(z.dtype) * jnp.ones_like(z)


def test_steps_land_on_jumps_in_single_precision_too():
    """Far from t = 0, where rounding leaves gaps as wide as some distances between a step's end and a jump."""
    rng = np.random.default_rng(4)
    ends = np.array([1000.0, 1003.0, 1010.0])
    for _ in range(4):
        at = (1000.1 + 0.5 * np.arange(19) + rng.uniform(0, 0.4, 19)).astype(np.float32)
        with jax.enable_x64(False):

            def run(first_step, at=at):
                tight = {"rtol": 1e-3, "atol": 1e-3, "throw": False}
                return gde.solve(Stairs(at), jnp.zeros(1), ends, first_step=first_step, **tight).states[:, 0]

            # Side by side, with steps that end elsewhere.
            found = jax.vmap(run)(jnp.asarray(rng.uniform(0.01, 1.0, 5), jnp.float32))
        edges = np.concatenate([ends[:1], at, ends[-1:]])
        lengths = np.diff(np.minimum(edges, ends[:, None]), axis=1)
        exact = lengths[:, ::2].sum(1) - 2 * lengths[:, 1::2].sum(1)
        np.testing.assert_allclose(found, np.stack([exact] * 5), atol=2e-3)


def test_gradients_where_the_field_jumps():
    """In times, and in the breakpoints themselves."""
    at, times = jnp.array([0.3, 0.7]), jnp.array([0.0, 0.5, 1.0])

    @jax.jit
    def end(at, times):
        return solve(Stairs(at), jnp.zeros(1), times, solver="dopri5").states[:, 0] @ jnp.array([0.0, 1.0, 10.0])

    for there_and_back in (times, times[::-1]):
        by_at, by_times = jax.grad(end, argnums=(0, 1))(at, there_and_back)
        by_jumps = [33, -30] if there_and_back is times else [-30, 33]
        np.testing.assert_allclose(by_at, by_jumps, atol=1e-6)
        np.testing.assert_allclose(by_times, [-11, -2, 10], atol=1e-6)


def test_jacobians_share_one_solve():
    def end(z0):
        return solve(PENDULUMS, z0, (0.0, 1.0), 1e-9).states[-1].ravel()[:3]

    z0 = jnp.asarray(Z0)
    jacobian = jax.jit(jax.jacrev(end))(z0)
    _, pull = jax.vjp(end, z0)
    for row, unit in zip(jacobian, jnp.eye(3), strict=True):
        np.testing.assert_allclose(row, pull(unit)[0], atol=1e-12)


def test_the_last_output_is_in_the_last_step_whatever_rounding_does():
    """In single precision the start of a step plus its length may fall short of where it ended."""

    def end(z0, last):
        times = jnp.stack([jnp.zeros_like(last), last / 2, last])
        sol = gde.solve(lambda t, z, g: -0.01 * z, z0, times, solver="dopri5", first_step=0.3, throw=False)
        return sol.states[-1, 0]

    with jax.enable_x64(False):
        lasts = jnp.linspace(0.7, 3.0, 400, dtype=jnp.float32)
        slopes = jax.jit(jax.vmap(jax.grad(end), in_axes=(None, 0)))(jnp.ones(1, jnp.float32), lasts)
    np.testing.assert_allclose(slopes[:, 0], np.exp(-0.01 * np.asarray(lasts)), rtol=1e-3)


def test_the_gradient_of_a_solve_that_takes_all_steps_it_may():
    def run(z0, limit):
        sol = solve(PENDULUMS, z0, (0.0, 1.0), max_steps=limit)
        return jnp.sum(sol.states[-1]), sol

    run = jax.jit(jax.value_and_grad(run, has_aux=True), static_argnums=1)
    (_, sol), free = run(jnp.asarray(Z0), 64)
    (_, at_limit), found = run(jnp.asarray(Z0), int(sol.stats["num_steps"]))
    assert at_limit.status == 0
    np.testing.assert_allclose(found, free, rtol=1e-12)


@pytest.mark.parametrize("options", [{"solver": "tsit5"}, {"solver": "rk4", "dt0": 0.1}], ids=str)
def test_a_field_is_traced_once_for_all_stages(options):
    calls = []

    def field(t, z, graph):
        calls.append(t)
        return -z

    slope = jax.grad(lambda z: jnp.sum(gde.solve(field, z, (0.0, 1.0), **options).states[-1]))(jnp.ones(3))
    np.testing.assert_allclose(slope, np.exp(-1), rtol=1e-4)
    # Not once a stage, of which tsit5 has seven and rk4 four.
    assert len(calls) <= 2
