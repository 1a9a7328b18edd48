"""Reaction networks: rates, stoichiometry, graph, rate equations, and the built-in repressilator."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import neuralgde as gde
from neuralgde import InputError
from neuralgde.simulate import (
    Event,
    Hill,
    MassAction,
    RateEquations,
    Reaction,
    ReactionNetwork,
    read_sbml,
    repressilator,
    simulate_reactions,
    solve_rate_equations,
)  # fmt: skip

ENZYME = ReactionNetwork(
    {"E": 10, "S": 50, "ES": 0, "Q": 0},
    [
        Reaction("bind", {"E": 1, "S": 1}, {"ES": 1}, MassAction("k1")),
        Reaction("free", {"ES": 1}, {"E": 1, "S": 1}, MassAction("k2")),
        Reaction("make", {"ES": 1}, {"E": 1, "Q": 1}, "k3 * ES"),
        Reaction("feed", {}, {"S": 2}, Hill("Q", top=4.0, half=5.0, power=2, represses=True)),
    ],
    parameters={"k1": 0.01, "k2": 0.1, "k3": 0.2},
)


def test_rates_and_stoichiometry():
    x = jnp.array([3.0, 7.0, 2.0, 5.0])
    np.testing.assert_allclose(ENZYME.propensities(0.0, x), [0.21, 0.2, 0.4, 2.0], rtol=1e-6)
    assert ENZYME.propensities(0.0, jnp.ones((6, 2, 4))).shape == (6, 2, 4)
    np.testing.assert_array_equal(ENZYME.stoichiometry, [[-1, -1, 1, 0], [1, 1, -1, 0], [1, 0, -1, 1], [0, 2, 0, 0]])


@pytest.mark.parametrize(
    ("reactants", "expected"), [({}, 2.0), ({"A": 1}, 10.0), ({"A": 2}, 20.0), ({"A": 3}, 20.0), ({"A": 1, "B": 2}, 60)]
)
def test_mass_action_counts_distinct_sets(reactants, expected):
    net = ReactionNetwork({"A": 5, "B": 4}, [Reaction("r", reactants, {}, MassAction(2.0))])
    np.testing.assert_allclose(net.propensities(0.0, jnp.array([5.0, 4.0])), [expected])


@pytest.mark.parametrize(("represses", "expected"), [(False, 1 + 6 * 9 / 25), (True, 1 + 6 * 16 / 25)])
def test_hill(represses, expected):
    rate = Hill("A", top=6.0, half=4.0, power=2.0, base=1.0, represses=represses)
    net = ReactionNetwork({"A": 3}, [Reaction("r", {}, {"A": 1}, rate)])
    np.testing.assert_allclose(net.propensities(0.0, jnp.array([3.0])), [expected], rtol=1e-6)


def test_values_change_and_structure_stays():
    other = ENZYME.with_parameters(k3=2.0).with_initial(S=8)
    x = jnp.array([3.0, 7.0, 2.0, 5.0])
    np.testing.assert_allclose(other.propensities(0.0, x), [0.21, 0.2, 4.0, 2.0], rtol=1e-6)
    assert other.initial[1] == 8 and ENZYME.initial[1] == 50
    assert jax.tree.structure(other) == jax.tree.structure(ENZYME)


def test_rules_and_fixed_species():
    net = ReactionNetwork(
        {"A": 4, "B": 0, "twice": 0},
        [Reaction("r", {"A": 1}, {"B": 1}, "c * twice")],
        parameters={"c": 0},
        rules={"twice": "2 * A", "c": "0.5"},
        fixed=["B"],
    )
    x = jnp.array([4.0, 0.0, 99.0])
    np.testing.assert_allclose(net.propensities(0.0, x), [4.0])
    np.testing.assert_allclose(net.observe(0.0, x), [4.0, 0.0, 8.0])
    np.testing.assert_array_equal(net.stoichiometry, [[-1, 0, 0]])
    assert net.modifiers(net.reactions[0]) == ("twice",)


def test_graph_is_typed_and_bipartite():
    graph = ENZYME.graph()
    assert ENZYME.node_names == ("E", "S", "ES", "Q", "bind", "free", "make", "feed")
    roles = {
        (ENZYME.node_names[int(s)], ENZYME.node_names[int(r)]): tuple(f)
        for s, r, f in zip(graph.senders, graph.receivers, np.asarray(graph.edge_features), strict=True)
    }
    assert roles[("E", "bind")] == roles[("bind", "E")] == (1, 0, 0)
    assert roles[("ES", "bind")] == (0, 1, 0)
    assert roles[("Q", "feed")] == roles[("feed", "Q")] == (0, 0, 1)
    assert len(roles) == 2 * (3 + 3 + 3 + 2)
    birth = ReactionNetwork({"X": 1}, [Reaction("b", {"X": 1}, {"X": 2}, "X"), Reaction("c", {}, {"X": 1}, "X")])
    np.testing.assert_array_equal(birth.graph().edge_features, [[1, 1, 0], [0, 1, 1]] * 2)


def test_repressilator_graph():
    net = repressilator()
    graph = net.graph()
    assert (graph.num_nodes, graph.num_edges) == (18, 36)
    np.testing.assert_array_equal(net.initial, [0, 0, 0, 0, 20, 0])
    # Each species takes part in three reactions: it is made, decays, and drives or represses another.
    degree = np.bincount(graph.senders, minlength=18)
    np.testing.assert_array_equal(degree[:6], 3)
    np.testing.assert_array_equal(np.asarray(graph.edge_features).sum(0), [12, 12, 12])


@pytest.mark.data
@pytest.mark.usefixtures("x64")
def test_repressilator_equals_the_published_file(data_dir):
    ours, theirs = repressilator(), read_sbml(data_dir / "sbml" / "BIOMD0000000012.xml")
    assert ours.node_names == theirs.node_names
    np.testing.assert_array_equal(ours.initial, theirs.initial)
    np.testing.assert_array_equal(ours.stoichiometry, theirs.stoichiometry)
    x = jax.random.uniform(jax.random.key(0), (50, 6)) * jnp.array([3000.0, 3000, 3000, 80, 80, 80])
    np.testing.assert_allclose(ours.propensities(0.0, x), theirs.propensities(0.0, x), rtol=1e-12)
    for name in ("senders", "receivers", "edge_features"):
        np.testing.assert_array_equal(getattr(ours.graph(), name), getattr(theirs.graph(), name))


@pytest.mark.usefixtures("x64")
def test_rate_equations():
    net = ReactionNetwork(
        {"A": 100, "B": 0, "sum": 0},
        [Reaction("there", {"A": 1}, {"B": 1}, "k * A"), Reaction("back", {"B": 1}, {"A": 1}, MassAction("l"))],
        parameters={"k": 0.3, "l": 0.1},
        rules={"sum": "A + B"},
    )
    times = np.linspace(0, 10, 6)
    sol = solve_rate_equations(net, times, rtol=1e-9, atol=1e-9)
    a = 25 + 75 * np.exp(-0.4 * times)
    np.testing.assert_allclose(sol.states, np.stack([a, 100 - a, np.full(6, 100.0)], axis=1), atol=1e-6)

    def end(k):
        return solve_rate_equations(net.with_parameters(k=k), times, rtol=1e-9, atol=1e-9).states[-1, 0]

    k = jnp.asarray(0.3)
    exact = jax.grad(lambda k: 10 / (k + 0.1) + 100 * k / (k + 0.1) * jnp.exp(-(k + 0.1) * 10))(k)
    np.testing.assert_allclose(jax.grad(end)(k), exact, rtol=1e-4)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: ReactionNetwork({"A": 1}, [Reaction("r", {"B": 1}, {}, 1.0)]), ["reaction 'r'", "'B'"]),
        (lambda: ReactionNetwork({"A": 1}, [Reaction("r", {"A": 1}, {}, "k * A")]), ["rate of reaction 'r'", "'k'"]),
        (lambda: ReactionNetwork({"A": 1}, [Reaction("r", {"A": 0}, {}, 1.0)]), ["reaction 'r'", "A: 0"]),
        (lambda: ReactionNetwork({"A": 1}, [], parameters={"A": 2}), ["'A'", "got 2"]),
        (lambda: ReactionNetwork({"A": 1}, [], rules={"C": "1"}), ["rules", "'C'"]),
        (lambda: ReactionNetwork({"A": 1}, [], events=[Event("e", "time > 1", {"C": 1})]), ["event 'e'", "'C'"]),
        (lambda: ReactionNetwork({"A": 1}, [Reaction("r", {"A": 1}, {}, 1.0)], rules={"A": "2"}), ["'A'", "rule"]),
        (lambda: ReactionNetwork({"A": 1}, [], fixed=["B"]), ["fixed", "'B'"]),
        (lambda: ENZYME.with_parameters(k9=1.0), ["'k9'", "k1"]),
        (lambda: RateEquations(ReactionNetwork({"A": 1}, [], events=[Event("e", "A > 3", {"A": 0})])), ["event 'e'"]),
    ],
)  # fmt: skip
def test_errors_name_what_is_wrong(make, words):
    with pytest.raises(gde.InputError) as error:
        make()
    for word in words:
        assert word in str(error.value)


def test_knocked_out():
    network = repressilator()
    less = network.without("PX", "Reaction5")
    assert "Reaction5" not in [r.name for r in less.reactions]
    made = simulate_reactions(less, [0.0, 30.0], runs=2, method="tau", key=jax.random.key(0))
    final = dict(zip(network.species, np.asarray(made.states)[:, 1].T, strict=True))
    # No PX, no more PY, and nothing holds Y back.
    assert (final["PX"] == 0).all() and (final["PY"] == 0).all()
    assert (final["Y"] > 40).all()
    with pytest.raises(InputError, match="species or reaction 'QX'"):
        network.without("QX")


def test_runs_from_states_of_their_own():
    network = ReactionNetwork({"A": 5, "B": 0}, [Reaction("r", {"A": 1}, {}, MassAction(0.5))])
    starts = np.array([[100.0, 0.0], [0.0, 0.0], [7.0, 0.0]])
    made = simulate_reactions(network, [0.0, 1e-3], runs=3, initial=starts, key=jax.random.key(0))
    np.testing.assert_array_equal(made.states[:, 0], starts)
    assert made.states[1, 1, 0] == 0
    with pytest.raises(InputError, match=r"initial: expected shape \(3, 2\)"):
        simulate_reactions(network, [0.0, 1.0], runs=3, initial=starts[:2], key=jax.random.key(0))
    with pytest.raises(InputError, match="species 'B' never changes"):
        simulate_reactions(network, [0.0, 1.0], runs=3, initial=starts + np.array([0, 1]), key=jax.random.key(0))
    with pytest.raises(InputError, match="whole number"):
        simulate_reactions(network, [0.0, 1.0], runs=3, initial=starts + np.array([0.5, 0]), key=jax.random.key(0))
