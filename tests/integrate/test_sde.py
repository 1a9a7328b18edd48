"""`solve_sde`: orders of convergence, one path for all steps, batches, Ito, and what is refused."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import neuralgde as gde
from neuralgde.integrate import SDE_SOLVERS
from problems import small_graph

KEY = jax.random.key(11)
RATE, NOISE = -0.5, 0.6


def still(t, z, graph):
    return jnp.zeros_like(z)


def ones(t, z, graph):
    return jnp.ones_like(z)


def linear(t, z, graph):
    return RATE * z


def proportional(t, z, graph):
    return NOISE * z


def over_graph(t, z, graph):
    """Noise that mixes the nodes, and whose directions do not commute."""
    return 0.5 * (graph.operator("gcn") @ jnp.sin(2 * z)) + 0.3


def constant(t, z, graph):
    return jnp.full_like(z, NOISE)


def noise_at(times, shape, **options):
    return gde.solve_sde(still, ones, jnp.zeros(shape), times, key=KEY, solver="heun", dt0=1.0, **options).states


def slope(steps, errors):
    return np.polyfit(np.log(steps), np.log(errors), 1)[0]


STEPS = 2.0 ** -np.arange(3, 8)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("solver", SDE_SOLVERS)
def test_strong_order_for_componentwise_noise(solver):
    """Geometric Brownian motion, whose solution on the same path is known."""
    shape = (1000,)
    exact = np.exp(RATE + NOISE * np.asarray(noise_at([0.0, 1.0], shape)[-1]))
    errors = []
    for dt in STEPS:
        # As an array: a number would compile a program for each count of steps.
        dt0 = jnp.asarray(dt)
        sol = gde.solve_sde(linear, proportional, jnp.ones(shape), [0.0, 1.0], key=KEY, solver=solver, dt0=dt0)
        errors.append(np.mean(np.abs(sol.states[-1] - exact)))
    assert slope(STEPS, errors) > 0.9
    assert errors[-1] < 0.01


@pytest.mark.usefixtures("x64", "optimised")
@pytest.mark.parametrize("solver", ["euler_heun", "heun", "midpoint"])
def test_strong_order_for_noise_coupled_over_a_graph(solver):
    graph = small_graph()
    z0 = jnp.asarray(np.random.default_rng(0).standard_normal((200, 6, 1)))

    def end(dt):
        return np.asarray(
            gde.solve_sde(linear, over_graph, z0, [0.0, 1.0], graph, key=KEY, solver=solver, dt0=jnp.asarray(dt)).states
        )[:, -1]

    reference = end(2.0**-11)
    errors = [np.sqrt(np.mean((end(dt) - reference) ** 2)) for dt in STEPS]
    assert 0.4 < slope(STEPS, errors) < 0.7


@pytest.mark.usefixtures("x64", "optimised")
@pytest.mark.parametrize("solver", ["euler_heun", "heun", "midpoint"])
def test_weak_order(solver):
    steps, shape = 2.0 ** -np.arange(1, 6), (2, 10_000)
    # Ornstein-Uhlenbeck and geometric Brownian motion from 1, at time 1.
    second_moments = {
        "Ornstein-Uhlenbeck": np.exp(2 * RATE) + NOISE**2 * (np.exp(2 * RATE) - 1) / (2 * RATE),
        "geometric": np.exp(2 * RATE + 2 * NOISE**2),
    }

    def both(t, z, graph):
        return jnp.stack([constant(t, z[0], graph), proportional(t, z[1], graph)])

    def moments(dt):
        z = gde.solve_sde(
            linear, both, jnp.ones(shape), [0.0, 1.0], key=KEY, solver=solver, dt0=jnp.asarray(dt)
        ).states[-1]
        return np.asarray(z) ** 2

    # On the same paths the chance in the two means cancels, and the difference of the laws is left.
    reference, coarse = moments(2.0**-8), [moments(dt) for dt in steps]
    for i, (name, exact) in enumerate(second_moments.items()):
        np.testing.assert_allclose(reference[i].mean(), exact, atol=4 * reference[i].std() / 100, err_msg=name)
        errors = [np.abs(np.mean(found[i] - reference[i])) for found in coarse]
        assert slope(steps, errors) > 0.9, name


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("solver", SDE_SOLVERS)
def test_tighter_tolerances_come_closer_along_the_same_path(solver):
    shape, times = (50,), [0.0, 0.37, 1.0]
    exact = np.exp(RATE * np.array(times)[:, None] + NOISE * np.asarray(noise_at(times, shape)))
    errors, counts = [], []
    for tolerance in (1e-2, 1e-3, 1e-4):
        sol = gde.solve_sde(
            linear, proportional, jnp.ones(shape), times, key=KEY, solver=solver, rtol=tolerance, atol=tolerance
        )
        errors.append(np.abs(sol.states - exact).max())
        counts.append(int(sol.stats["num_accepted_steps"]))
    assert errors[0] > 3 * errors[1] > 9 * errors[2]
    assert counts[0] < counts[1] < counts[2]


def test_adaptive_steps_leave_the_law_as_it_is():
    """Rejected steps must not tell of the noise to come: the mean stays right where steps depend on the noise a lot."""
    z0 = jnp.ones((2000, 1, 1))
    graph = gde.Graph.from_edges([], [], num_nodes=1)
    sol = gde.solve_sde(still, lambda t, z, g: 2 * z, z0, [0.0, 0.25], graph, key=KEY, rtol=0.03, atol=0.03)
    assert int(sol.stats["num_rejected_steps"].sum()) > 200
    logs = np.log(np.asarray(sol.states)[:, -1].ravel())
    assert abs(logs.mean()) < 4 / np.sqrt(2000)
    assert abs(logs.std() - 1) < 0.08


@pytest.mark.usefixtures("x64")
def test_one_key_is_one_path():
    """Whatever the outputs, the steps, and where a solve starts; and backwards to where it came from."""
    # As an array: a number would compile a program for each count of steps.
    z0, fine = jnp.full(20, 0.7), {"key": KEY, "solver": "heun", "dt0": jnp.asarray(2.0**-9)}
    all_at_once = gde.solve_sde(linear, proportional, z0, [0.0, 1.0], **fine).states[-1]
    many = gde.solve_sde(linear, proportional, z0, np.linspace(0, 1, 24), **fine).states
    first = gde.solve_sde(linear, proportional, z0, [0.0, 0.4], **fine).states[-1]
    rest = gde.solve_sde(linear, proportional, first, [0.4, 1.0], **fine).states[-1]
    back = gde.solve_sde(linear, proportional, rest, [1.0, 0.0], **fine).states[-1]
    adaptive = gde.solve_sde(linear, proportional, z0, [0.0, 1.0], key=KEY, solver="heun", rtol=1e-5, atol=1e-5).states[
        -1
    ]
    for found, expected in ((many[-1], all_at_once), (rest, all_at_once), (back, z0), (adaptive, all_at_once)):
        np.testing.assert_allclose(found, expected, atol=3e-3)
    other = gde.solve_sde(linear, proportional, z0, [0.0, 1.0], **{**fine, "key": jax.random.key(12)}).states[-1]
    assert np.abs(other - all_at_once).max() > 0.3


def test_a_batch_is_as_if_each_was_solved_alone():
    graphs = [small_graph(seed) for seed in range(3)]
    z0 = jnp.asarray(np.random.default_rng(0).standard_normal((3, 6, 2)) * [[[0.1]], [[1.0]], [[3.0]]], jnp.float32)
    times = np.array([[0.0, 0.5, 1.0], [1.0, 1.3, 1.4], [0.0, -0.2, -2.0]])
    from neuralgde.graph._stack import alike, stacked

    joint = gde.solve_sde(linear, over_graph, z0, times, stacked(alike(graphs, "graphs")), key=KEY)
    assert joint.states.shape == (3, 3, 6, 2)
    assert len(set(joint.stats["num_steps"].tolist())) > 1
    for b, key in enumerate(jax.random.split(KEY, 3)):
        alone = gde.solve_sde(linear, over_graph, z0[b], times[b], graphs[b], key=key)
        np.testing.assert_allclose(joint.states[b], alone.states, atol=1e-4)
        assert int(joint.stats["num_steps"][b]) == int(alone.stats["num_steps"])


def test_state_of_any_shape_and_precision():
    for shape in ((), (3,), (2, 3, 4)):
        sol = gde.solve_sde(linear, proportional, jnp.ones(shape), [0.0, 0.5, 0.5, 1.0], key=KEY)
        assert sol.states.shape == (4, *shape)
        assert sol.states.dtype == jnp.float32
        np.testing.assert_array_equal(sol.states[1], sol.states[2])
    assert gde.solve_sde(linear, proportional, jnp.ones(2), [1.0], key=KEY).states.shape == (1, 2)
    raw = gde.solve_sde(linear, proportional, jnp.ones(2), [0.0, 1.0], key=jax.random.PRNGKey(0))
    assert np.isfinite(raw.states).all()


@pytest.mark.usefixtures("x64")
def test_ito_is_converted():
    """Ito's geometric Brownian motion on the known path; and noise over a graph, against Ito's own method."""
    shape, times = (50,), [0.0, 1.0]
    ito = {"key": KEY, "interpretation": "ito", "dt0": 2.0**-9, "solver": "heun"}
    found = gde.solve_sde(linear, proportional, jnp.ones(shape), times, **ito).states[-1]
    exact = np.exp(RATE - NOISE**2 / 2 + NOISE * np.asarray(noise_at(times, shape)[-1]))
    np.testing.assert_allclose(found, exact, atol=2e-3)
    assert np.abs(exact * (1 - np.exp(NOISE**2 / 2))).min() > 0.01

    graph, n = small_graph(), 2**11
    z0 = jnp.asarray(np.random.default_rng(0).standard_normal((6, 2)))
    grid = np.linspace(0, 1, n + 1)
    dw = np.diff(gde.solve_sde(still, ones, jnp.zeros((6, 2)), grid, graph, key=KEY, dt0=1.0).states, axis=0)

    def euler_maruyama(z, dw):
        return z + linear(0, z, graph) / n + over_graph(0, z, graph) * dw, None

    expected = jax.lax.scan(euler_maruyama, z0, jnp.asarray(dw))[0]
    found = gde.solve_sde(linear, over_graph, z0, times, graph, **ito).states[-1]
    np.testing.assert_allclose(found, expected, atol=0.05)
    mixed = gde.solve_sde(linear, over_graph, z0, times, graph, **{**ito, "interpretation": "stratonovich"}).states[-1]
    assert np.abs(mixed - expected).max() > 0.1


def test_jumps_of_the_drift_are_stepped_onto():
    class Switch(eqx.Module):
        breakpoints = np.array([0.3, 0.7])

        def __call__(self, t, z, graph):
            return jnp.where((t >= 0.3) & (t < 0.7), 1.0, -1.0) * jnp.ones_like(z)

    for options in ({"dt0": 0.2}, {}):
        for times, expected in (([0.0, 0.5, 1.0], [0, -0.1, -0.2]), ([1.0, 0.5, 0.0], [0, 0.1, 0.2])):
            sol = gde.solve_sde(Switch(), still, jnp.zeros(2), times, key=KEY, solver="heun", **options)
            np.testing.assert_allclose(sol.states[:, 0], expected, atol=1e-5)


def test_absent_nodes_stay():
    graph = small_graph().with_node_mask(np.array([True, True, False, True, True, True]))
    sol = gde.solve_sde(linear, over_graph, jnp.ones((6, 2)), [0.0, 1.0], graph, key=KEY)
    np.testing.assert_array_equal(sol.states[-1, 2], 1)
    assert np.abs(sol.states[-1, [0, 1, 3, 4, 5]] - 1).min() > 0


MIXING = {
    "over the graph": over_graph,
    "over features": lambda t, z, g: jnp.mean(z, axis=1, keepdims=True) + 0 * z,
    "reversed": lambda t, z, g: z[::-1],
    "cumulative": lambda t, z, g: jnp.cumsum(z, axis=0),
    "not where it starts": lambda t, z, g: z * jax.nn.relu(jnp.abs(z[::-1] - 1) - 1),
}
SEPARATE = {
    "by time": lambda t, z, g: jnp.sin(t) * jax.nn.softplus(z) + jnp.where(z > 0, z, 0),
    "constant": lambda t, z, g: jnp.full_like(z, 0.3),
    "stacked": lambda t, z, g: jnp.stack([0.1 * z[:, 0], jnp.cos(z[:, 1])], axis=1),
}


@pytest.mark.parametrize("name", MIXING)
def test_milstein_refuses_noise_that_is_coupled(name):
    def run(z0):
        return gde.solve_sde(linear, MIXING[name], z0, [0.0, 1.0], small_graph(), key=KEY, solver="milstein", dt0=0.1)

    for call in (run, jax.jit(run)):
        with pytest.raises(gde.InputError, match="componentwise.*'heun'"):
            call(jnp.ones((6, 2)))


@pytest.mark.parametrize("name", SEPARATE)
def test_milstein_takes_componentwise_noise(name):
    sol = gde.solve_sde(
        linear, SEPARATE[name], jnp.ones((6, 2)), [0.0, 1.0], small_graph(), key=KEY, solver="milstein", dt0=0.1
    )
    assert np.isfinite(sol.states).all()


def test_large_coupled_ito_is_refused():
    graph = gde.Graph.from_edges(np.arange(1099), np.arange(1, 1100), num_nodes=1100)
    with pytest.raises(gde.InputError, match=r"interpretation.*1100.*Stratonovich"):
        gde.solve_sde(linear, over_graph, jnp.ones((1100, 1)), [0.0, 1.0], graph, key=KEY, interpretation="ito")


@pytest.mark.parametrize(
    ("change", "names"),
    [
        ({"solver": "euler_huen"}, ["solver", "euler_heun"]),
        ({"interpretation": "Ito"}, ["interpretation", "ito"]),
        ({"adjoint": "direct"}, ["adjoint", "backsolve"]),
        ({"adjoint": "backsolve", "solver": "milstein"}, ["milstein", "checkpoint"]),
        ({"dt0": 0.0}, ["dt0", "0.0"]),
        ({"dt0": 0.1, "first_step": 0.1}, ["first_step", "dt0"]),
        ({"max_steps": 0}, ["max_steps", "0"]),
        ({"times": [0.0, 2.0, 1.0]}, ["2.0", "1.0", "position 2"]),
        ({"times": [0.0, 2.0**31]}, ["times", "2^30", "unit"]),
        ({"z0": np.ones((5, 4))}, ["z0", "(6, features)"]),
        ({"z0": np.ones((6, 4), int)}, ["z0", "int"]),
    ],
    ids=str,
)
def test_bad_arguments_are_named(change, names):
    given = {"z0": np.ones((6, 4)), "times": [0.0, 1.0], **change}
    with pytest.raises(gde.InputError) as error:
        gde.solve_sde(linear, proportional, given.pop("z0"), given.pop("times"), small_graph(), key=KEY, **given)
    for name in names:
        assert name in str(error.value)
