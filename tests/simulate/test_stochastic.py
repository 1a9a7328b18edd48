"""Exact stochastic simulation: distributions that are known, runs that repeat, events, and failures that are told."""

import re

import jax
import numpy as np
import pytest
import scipy.stats

import neuralgde as gde
from neuralgde.simulate import Event, MassAction, Reaction, ReactionNetwork, simulate_reactions
from neuralgde.simulate._random import threefry

IMMIGRATION = ReactionNetwork(
    {"X": 0}, [Reaction("in", {}, {"X": 1}, "a"), Reaction("out", {"X": 1}, {}, MassAction("m"))],
    parameters={"a": 2.0, "m": 0.1},
)  # fmt: skip
# Nothing reacts, so that only events change anything.
STILL = [Reaction("none", {"X": 1}, {}, 0.0)]


def run(network, times, runs=8, seed=0, **options):
    return np.asarray(simulate_reactions(network, times, runs=runs, key=jax.random.key(seed), **options).states)


def test_threefry_is_that_of_jax():
    words = jax.random.bits(jax.random.key(3), (4, 5), np.uint32)
    ours = threefry((words[0], words[1]), words[2], words[3])
    for i in range(5):
        key = jax.random.wrap_key_data(words[:2, i])
        theirs = jax.extend.random.threefry_2x32(jax.random.key_data(key), words[2:, i])
        np.testing.assert_array_equal([ours[0][i], ours[1][i]], theirs)


@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_distribution_is_exact(precision):
    with jax.enable_x64(precision == "float64"):
        x = run(IMMIGRATION, [0.0, 3.0, 30.0], runs=4000, seed=1)
    assert x.dtype == precision
    for k, t in ((1, 3.0), (2, 30.0)):
        law = scipy.stats.poisson(20 * (1 - np.exp(-0.1 * t)))
        edges = np.unique(law.ppf(np.linspace(0.05, 0.95, 10)))
        observed = np.histogram(x[:, k, 0], np.concatenate([[-np.inf], edges + 0.5, [np.inf]]))[0]
        expected = 4000 * np.diff(np.concatenate([[0], law.cdf(edges), [1]]))
        assert scipy.stats.chisquare(observed, expected).pvalue > 1e-3
    # What happens in one stretch of time says nothing of the other: the covariance is that of the process.
    decay = np.exp(-0.1 * 27)
    covariance = np.cov(x[:, 1, 0], x[:, 2, 0])[0, 1]
    assert covariance == pytest.approx(decay * 20 * (1 - np.exp(-0.3)), abs=0.5)


@pytest.mark.parametrize("method", ["ssa", "tau"])
def test_a_run_depends_on_key_and_number_alone(method):
    times = np.arange(0.0, 11.0)
    many, few = (run(IMMIGRATION, times, runs=n, seed=5, method=method) for n in (300, 40))
    np.testing.assert_array_equal(many[:40], few)
    other = run(IMMIGRATION, times, runs=40, seed=6, method=method)
    assert (other != few).any(axis=(1, 2)).mean() > 0.9
    assert len({tuple(r) for r in few[..., 0]}) == 40


def test_parameters_are_read_anew():
    x = run(IMMIGRATION.with_parameters(a=0.0), [0.0, 3.0, 30.0], runs=4000, seed=1)
    assert (x == 0).all()


def test_reactions_need_their_reactants():
    net = ReactionNetwork({"A": 3, "B": 0}, [Reaction("r", {"A": 1}, {"B": 1}, 5.0)])
    x = run(net, [0.0, 50.0], runs=16)
    np.testing.assert_array_equal(x[:, 1], [[0.0, 3.0]] * 16)


@pytest.mark.parametrize("method", ["ssa", "tau"])
def test_networks_in_which_little_happens(method):
    still = ReactionNetwork({"X": 2, "Y": 0}, [], rules={"Y": "X + time"})
    np.testing.assert_array_equal(run(still, [0.0, 2.0], runs=2, method=method), [[[2, 2], [2, 4]]] * 2)
    moved = ReactionNetwork({"X": 2}, [], events=[Event("e", "time >= 1", {"X": 3.5})])
    np.testing.assert_array_equal(run(moved, [0.0, 2.0], runs=2, method=method)[..., 0], [[2, 3.5]] * 2)


# Events

TIMES = np.arange(0.0, 7.0)
# Each has an X of its own that starts at 1 and a q that starts at 2; they go in few networks, which compile once.
INSTANT = {
    "at a time": ([("time >= 2", {"X": 9}, {})], [1, 1, 9, 9, 9, 9, 9]),
    "just after a time": ([("time > 2", {"X": 9}, {})], [1, 1, 1, 9, 9, 9, 9]),
    "between outputs": ([("time >= 2.5", {"X": "X + 1"}, {})], [1, 1, 1, 2, 2, 2, 2]),
    "time on the right": ([("5 <= 2 * time + p", {"X": 9}, {})], [1, 1, 9, 9, 9, 9, 9]),
    "until a time": ([("not (time < 4)", {"X": 9}, {})], [1, 1, 1, 1, 9, 9, 9]),
    "again and again": ([("time >= q", {"X": "X + 1", "q": "q + 2"}, {})], [1, 1, 2, 2, 3, 3, 4]),
    "at the start": ([("time >= 0", {"X": 9}, {"starts_true": False})], [9] * 7),
    "not at the start": ([("time >= 0", {"X": 9}, {})], [1] * 7),
    "by priority": (
        [
            ("time >= 2", {"X": "X + 1"}, {"priority": 1, "early_values": False}),
            ("time >= 2", {"X": "X * 10"}, {"priority": 2, "early_values": False}),
        ],
        [1, 1, 11, 11, 11, 11, 11],
    ),
    "one after another": (
        [("time >= 2", {"X": 3}, {}), ("X > 2", {"X": 8}, {}), ("X > 5", {"X": "X + 1"}, {})],
        [1, 1, 9, 9, 9, 9, 9],
    ),
}
DELAYED = {
    "delayed": ([("time >= 2", {"X": 9}, {"delay": 1.5})], [1, 1, 1, 1, 9, 9, 9]),
    "called off": (
        [("time >= 2 and q < 3", {"X": 9}, {"delay": 2, "persistent": False}), ("time >= 3", {"q": 3}, {})],
        [1] * 7,
    ),
    "not called off": (
        [("time >= 2 and q < 3", {"X": 9}, {"delay": 2}), ("time >= 3", {"q": 3}, {})],
        [1, 1, 1, 1, 9, 9, 9],
    ),
    "value of the trigger's time": (
        [("time >= 2", {"X": "q"}, {"delay": 2}), ("time >= 3", {"q": 7}, {})],
        [1, 1, 1, 1, 2, 2, 2],
    ),
    "value of the event's time": (
        [("time >= 2", {"X": "q"}, {"delay": 2, "early_values": False}), ("time >= 3", {"q": 7}, {})],
        [1, 1, 1, 1, 7, 7, 7],
    ),
    "waiting twice": (
        [("time >= q", {"X": "X + 1"}, {"delay": 3, "early_values": False}), ("time >= q + 0.5", {"q": "q + 1"}, {})],
        [1, 1, 1, 1, 1, 2, 3],
    ),
}


@pytest.mark.parametrize("group", [INSTANT, DELAYED])
def test_events(group):
    def own(formula, i):
        return re.sub(r"\b([Xq])\b", rf"\g<1>{i}", formula) if isinstance(formula, str) else formula

    events = [
        Event(f"{name} {j}", own(trigger, i), {own(x, i): own(f, i) for x, f in changes.items()}, **options)
        for i, (name, (parts, _)) in enumerate(group.items())
        for j, (trigger, changes, options) in enumerate(parts)
    ]
    species = {f"X{i}": 1 for i in range(len(group))}
    parameters = {"p": 1} | {f"q{i}": 2 for i in range(len(group))}
    x = run(ReactionNetwork(species, [], parameters=parameters, events=events), TIMES, runs=3)
    found = {name: x[0, :, i].tolist() for i, name in enumerate(group)}
    assert found == {name: expected for name, (_, expected) in group.items()}
    np.testing.assert_array_equal(x[0], x[2])


def test_threshold_event_and_rates_that_switch():
    net = ReactionNetwork(
        {"X": 0, "resets": 0},
        [Reaction("in", {}, {"X": 1}, "piecewise(4, time < 5, 0)")],
        events=[Event("reset", "X > 2", {"X": 0, "resets": "resets + 1"})],
    )
    x = run(net, [0.0, 5.0, 9.0], runs=2000, seed=2)
    assert x[..., 0].max() == 2
    np.testing.assert_array_equal(x[:, 1], x[:, 2])
    # Firings in five units of time are Poisson with mean 20, and every third one resets.
    total = 3 * x[:, 1, 1] + x[:, 1, 0]
    assert total.mean() == pytest.approx(20, abs=4 * np.sqrt(20 / 2000))
    assert total.var() == pytest.approx(20, rel=0.15)


def test_a_moment_that_reactions_move():
    # The event comes at the time that is equal to the count, which grows by one at each firing.
    net = ReactionNetwork(
        {"X": 1, "Y": 0}, [Reaction("in", {}, {"X": 1}, 0.3)], events=[Event("e", "time >= X", {"Y": "X"})]
    )
    x = run(net, [0.0, 1.0, 8.0], runs=2000, seed=3)
    at_one = x[:, 1, 1]
    assert set(np.unique(at_one)) <= {0, 1}
    assert at_one.mean() == pytest.approx(np.exp(-0.3), abs=0.04)


# Failures


@pytest.mark.parametrize(
    ("network", "status", "words"),
    [
        (ReactionNetwork({"X": 5}, [Reaction("r", {}, {"X": 1}, "3 - X")]), "bad_rate", ["reaction 'r'", "negative"]),
        (
            ReactionNetwork(
                {"X": 1}, STILL, events=[Event("e", "X > 2", {"X": 0}), Event("f", "X < 1", {"X": 3}),
                                         Event("g", "time >= 1", {"X": 3})],
            ),
            "event_cascade",
            ["events"],
        ),
        (
            ReactionNetwork(
                {"X": 1}, STILL, parameters={"q": 1},
                events=[Event("e", "time >= q", {"X": 2}, delay=100), Event("f", "time > q", {"q": "q + 0.1"})],
            ),
            "delays",
            ["delay"],
        ),
        (ReactionNetwork({"X": 2.0**24}, [Reaction("r", {}, {"X": 1}, 1.0)]), "too_many", ["x64"]),
    ],
)  # fmt: skip
def test_failures_are_told(network, status, words):
    with pytest.raises(gde.SolveError) as error:
        run(network, [0.0, 5.0, 9.0])
    assert error.value.status == status
    for word in words:
        assert word in str(error.value)


@pytest.mark.parametrize(
    ("call", "word"),
    [
        (lambda: run(IMMIGRATION, [0.0, 2.0, 1.0]), "increasing"),
        (lambda: run(IMMIGRATION, [0.0, 1.0], runs=0), "runs"),
        (lambda: run(IMMIGRATION, [0.0, 1.0], method="sssa"), "'ssa'"),
        (lambda: run(IMMIGRATION, [0.0, 1.0], method="tau", epsilon=2.0), "epsilon"),
        (lambda: run(IMMIGRATION.with_initial(X=0.5), [0.0, 1.0]), "whole number"),
        (lambda: run(ReactionNetwork({"X": 0}, [Reaction("r", {}, {"X": 1}, "time")]), [0.0, 1.0]), "reaction 'r'"),
        (
            lambda: run(ReactionNetwork({"X": 0}, STILL, events=[Event("e", "time^2 > 3", {"X": 1})]), [0.0, 1.0]),
            "event 'e'",
        ),
    ],
)
def test_bad_input(call, word):
    with pytest.raises(gde.InputError, match=word):
        call()
