"""`solve` on problems with exact solutions: orders, counts, directions, batches, breakpoints."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.integrate

import neuralgde as gde
from neuralgde.integrate import SOLVERS
from problems import PROBLEMS, forced, heat, make_field, small_graph

ORDERS = {
    "euler": 1, "heun": 2, "midpoint": 2, "ralston": 2, "bosh3": 3, "rk4": 4, "tsit5": 5, "dopri5": 5, "dopri8": 8,
    "implicit_euler": 1, "kvaerno3": 3, "kvaerno4": 4, "kvaerno5": 5,
}  # fmt: skip
# Steps per unit of time in the range where the error is the method's: above round-off, below the first visible power.
RATES = {1: (100, 200, 400), 2: (20, 40, 80), 3: (10, 20, 40), 4: (10, 20, 40), 5: (6, 12, 24), 8: (2, 4, 8)}
ADAPTIVE = [name for name in SOLVERS if name not in ("euler", "rk4", "implicit_euler")]
EXPLICIT = [name for name in SOLVERS if name not in ("implicit_euler", "kvaerno3", "kvaerno4", "kvaerno5")]


def test_every_solver_has_an_order_here():
    assert set(ORDERS) == set(SOLVERS)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("solver", ORDERS)
def test_order(solver):
    problem = forced()
    rates = np.array(RATES[ORDERS[solver]])
    times = np.linspace(0, 4, 9)  # the largest of many errors: at a single time the leading term may vanish
    errors = []
    for rate in rates:
        sol = gde.solve(problem.field, problem.z0, times, solver=solver, dt0=float(1 / rate), rtol=1e-12, atol=1e-13)
        errors.append(np.abs(sol.states - problem.exact(times)).max())
    slope = np.polyfit(np.log(1 / rates), np.log(errors), 1)[0]
    assert abs(slope - ORDERS[solver]) < 0.3, errors


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("solver", ADAPTIVE)
def test_adaptive_meets_tolerance(solver):
    problem = heat()
    times = np.array([0.0, 0.3, 0.31, 1.7])
    loose = solver in ("heun", "midpoint", "ralston")
    rtol, atol = (1e-4, 1e-6) if loose else (1e-7, 1e-9)
    sol = gde.solve(problem.field, problem.z0, times, problem.graph, solver=solver, rtol=rtol, atol=atol)
    np.testing.assert_array_equal(sol.states[0], problem.z0)
    np.testing.assert_allclose(sol.states, problem.exact(times), rtol=100 * rtol, atol=1000 * atol)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("problem", PROBLEMS)
def test_problems_with_exact_solutions(problem):
    problem = PROBLEMS[problem]()
    times = np.array([0.0, 0.3, 0.31, 1.7])
    sol = gde.solve(problem.field, problem.z0, times, problem.graph, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(sol.states, problem.exact(times), atol=1e-7)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("name", ["gcde", "gade", "chebyshev"])
def test_against_scipy(name):
    field, graph = make_field(name), small_graph()
    z0 = np.random.default_rng(0).standard_normal((graph.num_nodes, 4))
    times = np.linspace(0, 1, 5)
    evaluate = jax.jit(lambda t, z: field(t, z.reshape(z0.shape), graph).ravel())
    reference = scipy.integrate.solve_ivp(
        lambda t, z: np.asarray(evaluate(t, z)), (0, 1), z0.ravel(), "DOP853", times, rtol=1e-11, atol=1e-12
    )
    sol = gde.solve(field, z0, times, graph, solver="dopri8", rtol=1e-10, atol=1e-11)
    np.testing.assert_allclose(sol.states.reshape(5, -1), reference.y.T, atol=1e-6)


def counting(count):
    """A field that tells the host each time it is really evaluated."""

    def field(t, z, graph):
        jax.debug.callback(lambda: count.append(1))
        return -z * jnp.cos(t)

    return field


@pytest.mark.parametrize("traced", [False, True], ids=["times known", "times traced"])
@pytest.mark.parametrize("solver", EXPLICIT)
def test_evaluations_of_fixed_steps_are_counted_exactly(solver, traced):
    count = []
    field = counting(count)
    times = jnp.array([0.0, 0.5, 1.3])

    def run(times):
        return gde.solve(field, jnp.ones(2), times, solver=solver, dt0=0.125, throw=False)

    sol = jax.jit(run)(times) if traced else run(times)
    jax.effects_barrier()
    assert int(sol.stats["num_steps"]) == 4 + 7
    assert int(sol.stats["num_evaluations"]) == len(count)


@pytest.mark.parametrize("solver", [s for s in EXPLICIT if s in ADAPTIVE])
def test_evaluations_of_adaptive_steps_are_counted_exactly(solver):
    count = []
    sol = gde.solve(counting(count), jnp.ones(2), [0.0, 0.5, 3.0], solver=solver, rtol=1e-3)
    jax.effects_barrier()
    stats = sol.stats
    assert int(stats["num_accepted_steps"] + stats["num_rejected_steps"]) == int(stats["num_steps"])
    assert int(stats["num_evaluations"]) == len(count)


class CountingWithJumps:
    """The same with breakpoints, where a step has to end and the next one begins with a slope of its own."""

    breakpoints = np.array([0.5, 0.7])

    def __init__(self, count):
        self.field = counting(count)

    def __call__(self, t, z, graph):
        return self.field(t, z, graph)


@pytest.mark.parametrize("solver", ["bosh3", "dopri5", "dopri8"])
def test_evaluations_are_counted_exactly_where_the_field_jumps(solver):
    count = []
    sol = gde.solve(CountingWithJumps(count), jnp.ones(2), [0.0, 0.5, 3.0], solver=solver, rtol=1e-3)
    jax.effects_barrier()
    assert int(sol.stats["num_evaluations"]) == len(count)


def test_implicit_solvers_count_no_evaluations():
    assert gde.solve(forced().field, jnp.ones(1), [0.0, 1.0], solver="kvaerno3").stats["num_evaluations"] is None


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("options", [{}, {"solver": "rk4", "dt0": 0.01}, {"solver": "kvaerno3", "dt0": 0.02}], ids=str)
class TestTimes:
    def test_backwards(self, options):
        problem = heat()
        times = np.array([1.0, 0.4, 0.0])
        sol = gde.solve(problem.field, problem.exact(times[:1])[0], times, problem.graph, **options)
        np.testing.assert_allclose(sol.states, problem.exact(times), atol=2e-3)

    def test_nowhere_to_go(self, options):
        for times in ([1.0], [1.0, 1.0], [1.0, 1.0, 1.0]):
            sol = gde.solve(forced().field, jnp.ones(1), times, **options)
            np.testing.assert_array_equal(sol.states, np.ones((len(times), 1)))
            assert int(sol.stats["num_steps"]) == 0

    def test_repeated_times(self, options):
        times = np.array([0.0, 0.0, 0.5, 0.5, 1.0, 1.0])
        problem = forced()
        sol = gde.solve(problem.field, problem.z0, times, **options)
        np.testing.assert_allclose(sol.states, problem.exact(times), atol=1e-3)
        np.testing.assert_array_equal(sol.states[::2], sol.states[1::2])

    def test_traced_times_give_the_same(self, options):
        problem = forced()
        times = jnp.array([0.0, 0.37, 1.1])
        sol = gde.solve(problem.field, problem.z0, times, **options)
        traced = jax.jit(lambda ts: gde.solve(problem.field, problem.z0, ts, throw=False, **options))(times)
        np.testing.assert_allclose(traced.states, sol.states, rtol=1e-9)


@pytest.mark.usefixtures("x64")
class TestBatch:
    """A joint solve of samples with times and graphs of their own."""

    times = np.array([[0.0, 0.2, 1.0], [3.0, 3.5, 3.6], [1.0, 0.5, -1.0], [2.0, 2.0, 2.0]])

    def states(self):
        return jnp.asarray(np.random.default_rng(1).standard_normal((4, 6, 4)))

    def alone(self, graphs, **options):
        field = make_field("chebyshev")
        return np.stack(
            [
                gde.solve(field, z, t, g, **options).states
                for z, t, g in zip(self.states(), self.times, graphs, strict=True)
            ]
        )

    # How steps are taken has nothing to do with how a graph is laid out, so that fixed ones meet two of the layouts.
    @pytest.mark.parametrize(
        ("layout", "own", "stepping"),
        [
            ("dense", False, "adaptive"),
            ("dense", True, "adaptive"),
            ("csr", False, "adaptive"),
            ("csr", True, "adaptive"),
            ("pairs", True, "adaptive"),
            ("dense", False, "fixed"),
            ("csr", True, "fixed"),
        ],
    )
    def test_equals_lone_solves(self, layout, own, stepping):
        options, tolerance = {
            "adaptive": ({"solver": "dopri8", "rtol": 1e-9, "atol": 1e-9}, 1e-7),
            "fixed": ({"solver": "rk4", "dt0": 0.02}, 1e-6),
        }[stepping]
        graphs = [small_graph(seed if own else 0, layout=layout) for seed in range(4)]
        graph = graphs[0]
        if own:
            edges = None if layout == "pairs" else max(g.num_edges for g in graphs)
            graphs = [g.pad(num_edges=edges) for g in graphs]
            graph = jax.tree.map(lambda *x: jnp.stack(x), *graphs)
        sol = gde.solve(make_field("chebyshev"), self.states(), self.times, graph, **options)
        np.testing.assert_allclose(sol.states, self.alone(graphs, **options), atol=tolerance)
        np.testing.assert_array_equal(sol.states[3], np.stack([self.states()[3]] * 3))

    @pytest.mark.parametrize(
        "options", [{"solver": "dopri5", "rtol": 1e-9, "atol": 1e-9}, {"solver": "rk4", "dt0": 0.02}], ids=str
    )
    def test_common_times_are_one_solve_without_a_clock(self, options):
        field, graph, times = make_field("chebyshev"), small_graph(), self.times[2]
        sol = gde.solve(field, self.states(), times, graph, **options)
        np.testing.assert_array_equal(sol.times, np.stack([times] * 4))
        np.testing.assert_array_equal(sol.reached, times[-1].repeat(4))
        for states, z0 in zip(sol.states, self.states(), strict=True):
            np.testing.assert_allclose(states, gde.solve(field, z0, times, graph, **options).states, atol=1e-6)
        # As many times as there are samples are still times for all.
        square = gde.solve(field, self.states(), np.linspace(0, 1, 4), graph, **options)
        assert square.states.shape == (4, 4, 6, 4)

    def test_gradients_in_times_of_each_sample(self):
        graph, weights = small_graph(), np.random.default_rng(2).standard_normal((4, 3, 6, 4))

        def field(t, z, graph):
            return jnp.sin(3 * t) * jnp.cos(z) + 0.3 * z

        @jax.jit
        def loss(times):
            sol = gde.solve(field, self.states(), times, graph, solver="dopri5", rtol=1e-10, atol=1e-10, throw=False)
            return jnp.sum(weights * sol.states)

        # The last sample stands still, and its times cannot move one by one.
        times, last = jnp.asarray(self.times[:3]), jnp.asarray(self.times[3:])
        found = jax.jit(jax.grad(lambda times: loss(jnp.concatenate([times, last]))))(times)
        for place in np.ndindex(times.shape):
            step = np.zeros(times.shape)
            step[place] = 1e-5
            ahead, behind = (loss(jnp.concatenate([times + h, last])) for h in (step, -step))
            np.testing.assert_allclose(found[place], (ahead - behind) / 2e-5, atol=1e-5)

    def test_padding_changes_nothing(self):
        graph = small_graph()
        wide = graph.pad(num_nodes=9, num_edges=40)
        z0 = self.states()[0]
        field = make_field("gmde")
        for options in ({"solver": "rk4", "dt0": 0.1}, {"solver": "tsit5"}):
            sol = gde.solve(field, z0, [0.0, 1.0], graph, **options)
            padded = gde.solve(field, jnp.pad(z0, ((0, 3), (0, 0))), [0.0, 1.0], wide, **options)
            np.testing.assert_allclose(padded.states[:, :6], sol.states, atol=1e-6)
            assert int(padded.stats["num_steps"]) == int(sol.stats["num_steps"])

    def test_breakpoints_of_each_sample(self):
        field, graph = make_field("piecewise"), small_graph()
        times = np.array([[0.0, 1.0], [0.2, 0.5], [1.0, 0.1], [0.4, 0.4]])
        tight = {"rtol": 1e-9, "atol": 1e-9}
        for options in ({"solver": "rk4", "dt0": 0.02}, {"solver": "dopri8", **tight}, {"solver": "tsit5", **tight}):
            sol = gde.solve(field, self.states(), times, graph, **options)
            lone = [gde.solve(field, z, t, graph, **options).states for z, t in zip(self.states(), times, strict=True)]
            np.testing.assert_allclose(sol.states, np.stack(lone), atol=1e-7)


@pytest.mark.usefixtures("x64")
def test_steps_end_at_breakpoints():
    """A step across a jump of the parameters would cost the method its order."""
    field, graph = make_field("piecewise"), small_graph()
    z0 = jnp.asarray(np.random.default_rng(1).standard_normal((6, 4)))
    pieces, z = [0.0, 1 / 3, 2 / 3, 1.0], z0
    for a, b in itertools.pairwise(pieces):
        frozen = field.at((a + b) / 2)
        z = gde.solve(frozen, z, [a, b], graph, solver="dopri8", rtol=1e-11, atol=1e-12).states[-1]
    for options in ({"solver": "rk4", "dt0": 0.02}, {"solver": "tsit5", "rtol": 1e-9, "atol": 1e-10}):
        sol = gde.solve(field, z0, [0.0, 1.0], graph, **options)
        np.testing.assert_allclose(sol.states[-1], z, atol=1e-7)
        back = gde.solve(field, z, [1.0, 0.0], graph, **options)
        np.testing.assert_allclose(back.states[-1], z0, atol=1e-6)
        traced = jax.jit(lambda ts, o=options: gde.solve(field, z0, ts, graph, throw=False, **o))(jnp.array([0.0, 1.0]))
        np.testing.assert_allclose(traced.states, sol.states, atol=1e-9)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize(
    "options", [{"solver": "rk4", "dt0": 0.02}, {"solver": "tsit5", "rtol": 1e-9, "atol": 1e-10}], ids=str
)
@pytest.mark.parametrize("times", [(1 / 3, 2 / 3), (2 / 3, 1 / 3)], ids=["forwards", "backwards"])
def test_a_solve_may_start_and_end_at_breakpoints(times, options):
    field, graph = make_field("piecewise"), small_graph()
    z0 = jnp.asarray(np.random.default_rng(1).standard_normal((6, 4)))
    sol = gde.solve(field, z0, times, graph, **options)
    frozen = gde.solve(field.at(0.5), z0, times, graph, **options)
    np.testing.assert_allclose(sol.states, frozen.states, atol=1e-9)


@pytest.mark.usefixtures("x64")
def test_residual_network_is_euler_with_unit_steps():
    graph = small_graph()
    z0 = jnp.asarray(np.random.default_rng(1).standard_normal((6, 4)))
    net = gde.ResidualGNN(tuple(gde.GCDE((4, 5, 4), key=k) for k in jax.random.split(jax.random.key(0), 3)))
    sol = gde.solve(net.as_depth_varying(), z0, jnp.arange(4.0), graph, solver="euler", dt0=1.0)
    np.testing.assert_allclose(sol.states[-1], net(z0, graph), atol=1e-12)


@pytest.mark.usefixtures("x64")
def test_linear_model_has_its_closed_form():
    from neuralgde.field import ContinuousGNN

    graph = small_graph()
    z0 = jnp.asarray(np.random.default_rng(1).standard_normal((6, 4)))
    field = ContinuousGNN()
    sol = gde.solve(field, z0, [0.0, 2.0], graph, rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(sol.states[-1], field.closed_form(z0, 2.0, graph), atol=1e-7)


def test_diffrax_objects_are_taken():
    import diffrax

    sol = gde.solve(
        forced().field, jnp.ones(1), [0.0, 1.0], solver=diffrax.Dopri5(), adjoint=diffrax.RecursiveCheckpointAdjoint()
    )
    np.testing.assert_allclose(sol.states[-1], forced().exact(np.array([1.0]))[0], atol=1e-3)


def test_config_is_what_solve_takes():
    config = gde.SolveConfig(solver="rk4", dt0=0.1)
    sol = gde.solve(forced().field, jnp.ones(1), [0.0, 1.0], **config.kwargs())
    assert sol.stats["num_evaluations"] == 40
