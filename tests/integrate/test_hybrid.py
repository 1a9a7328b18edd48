"""solve_hybrid: flow and jump in their order, masks, batches, changing graphs, queries, events, failures."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import neuralgde as gde
from neuralgde._errors import InputError, SolveError
from neuralgde.graph import Graph, GraphStream
from problems import small_graph
from streams import NODES, SIZE, TIMES, Cell, make_stream, parts, start

QUERIES = np.array([0.2, 0.5, 0.7, 2.0, 2.2, 3.1])


def by_hand(flow, jump, z, stream, t0, **options):
    """The same by single solves: the states on both sides of each jump."""
    jump = eqx.filter_jit(jump)
    before, after, t, graph = [], [], t0, stream.graph_at(0)
    for k, t_k in enumerate(np.asarray(stream.times)):
        z = gde.solve(flow, z, [t, t_k], graph, **options).states[-1]
        before.append(z)
        graph, t = stream.graph_at(k), t_k
        z = jump(t, z, stream.values[k], stream.mask[k], graph)
        after.append(z)
    return np.stack(before), np.stack(after)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize(("changing", "t0"), [(False, 0.1), (True, 0.1), (True, None)])
def test_flow_and_jump_in_turn(changing, t0):
    (flow, jump), stream, z0 = parts(), make_stream(changing=changing), start()
    queries = QUERIES if t0 is not None else QUERIES[1:]
    tight = {"solver": "tsit5", "rtol": 1e-9, "atol": 1e-9}
    sol = gde.solve_hybrid(flow, jump, z0, stream, queries, t0=t0, num_steps=None, **tight)
    before, after = by_hand(flow, jump, z0, stream, TIMES[0] if t0 is None else t0, **tight)
    np.testing.assert_allclose(sol.before, before, atol=1e-7)
    np.testing.assert_allclose(sol.after, after, atol=1e-7)
    # A query at the time of an observation is a forecast: it does not know it.
    at = {t: k for k, t in enumerate(queries)}
    np.testing.assert_allclose(sol.states[at[0.5]], before[0], atol=1e-7)
    np.testing.assert_allclose(sol.states[at[2.0]], before[2], atol=1e-7)
    for t, last in ((0.7, 0), (2.2, 2), (3.1, 3)):
        graph = stream.graph_at(last)
        alone = gde.solve(flow, after[last], [TIMES[last], t], graph, **tight)
        np.testing.assert_allclose(sol.states[at[t]], alone.states[-1], atol=1e-7)
        assert sol.seen[at[t]] == last
    assert sol.seen[at[0.5]] == -1 and sol.status == gde.Status.SUCCESS and sol.reached == TIMES[-1]


def test_fixed_steps_converge_with_their_order(x64):
    (flow, jump), stream, z0 = parts(), make_stream(), start()
    exact = gde.solve_hybrid(flow, jump, z0, stream, [3.1], solver="rk4", num_steps=100)

    def error(solver, num_steps):
        sol = gde.solve_hybrid(flow, jump, z0, stream, [3.1], solver=solver, num_steps=num_steps)
        assert sol.stats["num_steps"] == num_steps * len(TIMES)
        return np.abs(sol.states - exact.states).max()

    for solver, order in (("euler", 1), ("heun", 2), ("rk4", 4)):
        assert np.log2(error(solver, 5) / error(solver, 10)) == pytest.approx(order, abs=0.35), solver


def test_intervals_learn_their_first_step_from_the_one_before():
    # At zero the rule for the first step knows nothing, and takes a tiny one. Alike intervals need it only once.
    stream = GraphStream(np.arange(8.0), np.ones((8, NODES, 1)), small_graph())
    jump = lambda t, z, x, mask, graph: jnp.zeros_like(z)  # noqa: E731
    flow = lambda t, z, graph: 3 * jnp.cos(2 * z)  # noqa: E731
    sol = gde.solve_hybrid(flow, jump, jnp.zeros((NODES, 2)), stream, [8.0], solver="dopri5", num_steps=None)
    alone = gde.solve(flow, jnp.zeros((NODES, 2)), [0.0, 1.0], None, solver="dopri5", rtol=1e-4, atol=1e-6)
    assert int(sol.stats["num_evaluations"]) < 0.9 * 8 * int(alone.stats["num_evaluations"])
    np.testing.assert_allclose(sol.before[1:], np.broadcast_to(alone.states[-1], sol.before[1:].shape), atol=1e-3)


def test_padding_changes_no_step():
    flow = lambda t, z, graph: 3 * jnp.cos(2 * z)  # noqa: E731
    jump = lambda t, z, x, mask, graph: jnp.zeros_like(z)  # noqa: E731
    stream = GraphStream(np.array([0.0, 0.1, 5.0, 6.0]), np.ones((4, NODES, 1)), small_graph())
    plain, one, two = (
        gde.solve_hybrid(flow, jump, jnp.zeros((NODES, 2)), s, [6.5], solver="dopri5", num_steps=None)
        for s in (stream, stream.pad(5), stream.pad(6))
    )
    # Where no time passes steps cost what they cost, and nothing is learned for the flow to the query.
    n = [int(sol.stats["num_steps"]) for sol in (plain, one, two)]
    assert n[2] - n[1] == n[1] - n[0]
    np.testing.assert_allclose(one.states, plain.states, atol=1e-6)


def test_a_flow_that_depends_on_time(x64):
    # dz/dt = cos t between jumps that add x: z is a sum of sines and of what was seen.
    stream = make_stream(changing=False)
    jump = lambda t, z, x, mask, graph: z + x  # noqa: E731
    sol = gde.solve_hybrid(
        lambda t, z, graph: jnp.cos(t) * jnp.ones_like(z), jump, jnp.zeros((NODES, 2)), stream, [3.1], t0=0.0,
        solver="rk4", num_steps=8,
    )  # fmt: skip
    expected = np.sin(3.1) + np.sum(np.asarray(stream.values), axis=0)
    expected[-1] = np.asarray(stream.values)[:, -1].sum(0) + np.sin(3.1)
    np.testing.assert_allclose(sol.states[0], expected, atol=1e-6)


@pytest.mark.parametrize(
    ("kind", "num_steps"), [("shared", 2), ("own", 2), ("changing", 2), ("shared", None), ("changing", None)]
)
def test_a_batch_is_its_streams(kind, num_steps, x64):
    flow, jump = parts()
    lengths = [4, 2, 2]
    streams = [make_stream(b, TIMES[:n] * (1 + 0.3 * b), kind == "changing") for b, n in enumerate(lengths)]
    if kind == "shared":
        streams = [make_stream(b, TIMES * (1 + 0.3 * b), False) for b in range(3)]
        fields = [[getattr(s, name) for s in streams] for name in ("times", "values", "mask")]
        times, values, mask = (np.stack(f) for f in fields)
        batch = GraphStream.batch(times, values, small_graph(), mask)
        assert batch.graphs.senders.ndim == 1 and batch.times.shape == (3, 4)
    else:
        batch = GraphStream.stack(streams)
        # With as many edges, so that those of one length share a program.
        streams = [s.pad(len(s), num_edges=batch.graphs.senders.shape[-1]) for s in streams]
    queries = np.stack([np.asarray(s.times)[0] + np.array([0.0, 0.3, 4.0]) for s in streams])
    options = {"solver": "bosh3", "num_steps": num_steps, "rtol": 1e-8, "atol": 1e-8}
    z0 = jnp.stack([start(b) for b in range(3)])
    together = gde.solve_hybrid(flow, jump, z0, batch, queries, **options)
    for b, stream in enumerate(streams):
        alone = gde.solve_hybrid(flow, jump, z0[b], stream, queries[b], **options)
        np.testing.assert_allclose(together.states[b], alone.states, atol=1e-6)
        np.testing.assert_allclose(together.after[b, : len(stream)], alone.after, atol=1e-6)
        np.testing.assert_array_equal(together.seen[b], alone.seen)


def test_streams_of_any_length_share_a_program():
    flow, jump = parts()
    traces = []

    @eqx.filter_jit
    def run(stream, queries):
        traces.append(None)
        return gde.solve_hybrid(flow, jump, start(), stream, queries, throw=False).states

    for n in (2, 3, 4):
        stream = make_stream(n, TIMES[:n] ** 1.1)
        query = stream.times[-1:] + 1
        padded = run(stream.pad(6, num_edges=40), query)
        np.testing.assert_allclose(padded, gde.solve_hybrid(flow, jump, start(), stream, query).states, atol=1e-5)
    assert len(traces) == 1


def test_what_was_not_observed_does_not_matter():
    (flow, jump), stream = parts(), make_stream(changing=False)
    other = eqx.tree_at(lambda s: s.values, stream, jnp.where(stream.mask, stream.values, 7.0))
    # The stream stores zeros there; nothing but the mask may tell.
    assert not jnp.array_equal(other.values, stream.values)
    hidden = Cell(jump.cell)
    seen = lambda t, z, x, mask, graph: hidden(t, z, jnp.where(mask, x, 0), mask, graph)  # noqa: E731
    a, b = (gde.solve_hybrid(flow, seen, start(), s, [3.0]).states for s in (stream, other))
    np.testing.assert_array_equal(a, b)
    sol = gde.solve_hybrid(flow, jump, start(), stream)
    silent = ~np.asarray(stream.mask).any(-1)
    assert silent.any()
    np.testing.assert_array_equal(sol.after[silent], sol.before[silent])


def test_nodes_join_and_leave():
    flow, jump = parts()
    present = np.ones((4, NODES), bool)
    present[0, 1], present[2, 3] = False, False
    gs = [small_graph().with_node_mask(p) for p in present]
    stream = GraphStream(TIMES, np.random.default_rng(0).standard_normal((4, NODES, 2)), gs)
    z0 = start()
    sol = gde.solve_hybrid(flow, jump, z0, stream, [3.0])
    # Absent: the row of z0, until it joins; gone: back to it.
    np.testing.assert_array_equal(sol.before[1, 1], z0[1])
    assert not np.allclose(sol.after[1, 1], z0[1])
    np.testing.assert_array_equal(sol.after[2, 3], z0[3])
    np.testing.assert_array_equal(sol.before[3, 3], z0[3])
    # What an absent node holds reaches nobody.
    others = np.arange(NODES) != 1
    moved = gde.solve_hybrid(flow, jump, z0.at[1].set(50.0), stream, [3.0])
    np.testing.assert_array_equal(moved.before[1][others], sol.before[1][others])


def test_permutation_and_absent_nodes_change_nothing():
    (flow, jump), stream, z0 = parts(), make_stream(), start()
    sol = gde.solve_hybrid(flow, jump, z0, stream, QUERIES[1:])
    order = np.random.default_rng(1).permutation(NODES)
    shuffled = GraphStream(
        TIMES, stream.values[:, order], [stream.graph_at(k).permute(order) for k in range(4)], stream.mask[:, order]
    )
    again = gde.solve_hybrid(flow, jump, z0[order], shuffled, QUERIES[1:])
    np.testing.assert_allclose(again.states, sol.states[:, order], atol=1e-5)
    wider = stream.pad(4, num_nodes=NODES + 3)
    z0_wider = jnp.concatenate([z0, jnp.full((3, SIZE), 9.0)])
    again = gde.solve_hybrid(flow, jump, z0_wider, wider, QUERIES[1:])
    np.testing.assert_allclose(again.states[:, :NODES], sol.states, atol=1e-5)


def test_inputs_follow_the_values():
    seen = []

    def jump(t, z, x, mask, graph):
        seen.append((x.shape, mask.shape))
        return z + x[:, -1:]

    inputs = np.arange(4.0)[:, None]
    stream = GraphStream(TIMES, np.full((4, NODES, 2), np.nan), small_graph(), inputs=inputs)
    sol = gde.solve_hybrid(None, jump, jnp.zeros((NODES, 1)), stream)
    np.testing.assert_allclose(sol.after[:, 0, 0], np.cumsum(inputs[:, 0]))
    assert seen[0] == ((NODES, 3), (NODES, 3))


# Events


def fall(t, z, graph):
    return jnp.stack([z[:, 1], jnp.full_like(z[:, 1], -1.0)], axis=1)


def bounce(share):
    return gde.Event(lambda t, z, graph: -z[0, 0], lambda t, z, graph: z.at[:, 1].set(-share * z[:, 1]))


def height(z0, share, t, num_steps=20, adjoint="direct"):
    """Of a ball dropped from z0 with gravity 1, which keeps a share of its speed when it bounces."""
    graph = Graph.from_adjacency(np.zeros((1, 1)))
    stream = GraphStream([0.0], np.full((1, 1, 1), np.nan), graph)
    stay = lambda t, z, x, mask, graph: z  # noqa: E731
    z = jnp.stack([z0, jnp.zeros_like(z0)])[None]
    sol = gde.solve_hybrid(
        fall, stay, z, stream, t, event=bounce(share), solver="rk4", num_steps=num_steps, adjoint=adjoint, throw=False
    )
    return sol.states[:, 0, 0], sol


def exact_height(z0, share, t):
    hit = np.sqrt(2 * z0)
    late = t - hit
    return np.where(t < hit, z0 - t**2 / 2, share * hit * late - late**2 / 2)


@pytest.mark.parametrize(("num_steps", "adjoint"), [(3, "direct"), (20, "direct"), (20, "checkpoint")])
def test_a_ball_bounces(num_steps, adjoint, x64):
    t = np.array([0.5, 1.3, 1.5, 2.2])

    def heights(z0, share):
        found, sol = height(z0, share, t, num_steps, adjoint)
        return found, (found, sol.stats["num_events"])

    run = jax.jit(jax.jacobian(heights, (0, 1), has_aux=True))
    grads, (found, num_events) = run(jnp.asarray(1.0), jnp.asarray(0.8))
    np.testing.assert_allclose(found, exact_height(1.0, 0.8, t), atol=1e-9)
    assert num_events == 2
    for grad, step in zip(grads, ((1e-6, 0), (0, 1e-6)), strict=True):
        ends = [exact_height(1.0 + s * step[0], 0.8 + s * step[1], t) for s in (1, -1)]
        np.testing.assert_allclose(grad, (ends[0] - ends[1]) / 2e-6, atol=1e-6)


def test_each_of_a_batch_has_its_own_events(x64):
    graph = Graph.from_adjacency(np.zeros((1, 1)))
    batch = GraphStream.batch(np.zeros((3, 1)), np.full((3, 1, 1, 1), np.nan), graph)
    heights = np.array([0.5, 1.0, 8.0])
    z0 = jnp.stack([jnp.asarray(heights), jnp.zeros(3)], axis=1)[:, None]
    stay = lambda t, z, x, mask, graph: z  # noqa: E731
    sol = gde.solve_hybrid(fall, stay, z0, batch, [1.6], event=bounce(0.8), solver="rk4", num_steps=10)
    np.testing.assert_allclose(sol.states[:, 0, 0, 0], exact_height(heights, 0.8, 1.6), atol=1e-9)
    assert sol.stats["num_events"] == 2


# Failures


def test_failures_have_a_status():
    stream, z0 = make_stream(changing=False), jnp.full((NODES, 2), 30.0)
    add = lambda t, z, x, mask, graph: z + 1  # noqa: E731
    grow = lambda t, z, graph: z**2  # noqa: E731
    sol = gde.solve_hybrid(grow, add, z0, stream, [3.0], num_steps=40, throw=False)
    assert sol.status == gde.Status.NOT_FINITE and sol.reached < TIMES[-1]
    with pytest.raises(SolveError, match="NaN or infinite"):
        gde.solve_hybrid(grow, add, z0, stream, [3.0], num_steps=40)
    # The cause is that of the first interval that fails, and no state after it passes for one.
    short = gde.solve_hybrid(
        grow, add, z0 / 30, stream, [3.0], solver="tsit5", num_steps=None, max_steps=2, throw=False
    )
    assert short.status == gde.Status.MAX_STEPS and short.reached < TIMES[-1]
    assert jnp.isnan(short.states).all() and jnp.isnan(short.before[-1]).all()
    early = eqx.filter_jit(lambda t: gde.solve_hybrid(None, add, z0, stream, t, throw=False))(jnp.zeros(1))
    assert early.status == gde.Status.BAD_TIMES and jnp.isnan(early.states).all()


@pytest.mark.parametrize(
    ("message", "options"),
    [
        ("unknown adjoint 'direkt'. Did you mean 'direct'", {"adjoint": "direkt"}),
        ("num_steps: expected", {"num_steps": 0}),
        ("num_steps: RK4 has no error estimate", {"num_steps": None, "solver": "rk4"}),
        ("first_step: only adaptive", {"first_step": 0.1}),
        ("first_step: expected a share", {"first_step": 2.0, "num_steps": None}),
        ("times\\[1\\] is 0.25: expected finite times, none before t0 = 0.5", {"times": [0.6, 0.25]}),
        ("t0: expected no later", {"t0": 0.7}),
        ("times: expected shape \\(times,\\)", {"times": np.ones((2, 3))}),
        ("z0: expected shape \\(6, features\\)", {"z0": jnp.zeros((5, 3))}),
        ("event: it is looked for between fixed steps", {"event": bounce(1.0), "num_steps": None, "solver": "tsit5"}),
        ("event: .* Kvaerno5 is none", {"event": bounce(1.0), "num_steps": 4, "solver": "kvaerno5"}),
    ],
)
def test_refuses(message, options):
    options = {"z0": start(), "times": [0.6], **options}
    with pytest.raises(InputError, match=message):
        gde.solve_hybrid(*parts(), options.pop("z0"), make_stream(changing=False), options.pop("times"), **options)
