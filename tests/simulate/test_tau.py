"""Tau-leaping: Poisson numbers, bias that shrinks with epsilon, counts that are never negative."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg
import scipy.stats
from jax import lax

from neuralgde.simulate import MassAction, Reaction, ReactionNetwork, repressilator, simulate_reactions
from neuralgde.simulate._advance import _serve, _take_runs, start
from neuralgde.simulate._lanes import environment
from neuralgde.simulate._poisson import poisson_quantile
from neuralgde.simulate._program import build_program
from neuralgde.simulate._tau import TauStep


def dimerisation(count, k1, k2):
    return ReactionNetwork(
        {"P": count, "P2": 0},
        [
            Reaction("Dimerisation", {"P": 2}, {"P2": 1}, MassAction("k1")),
            Reaction("Disassociation", {"P2": 1}, {"P": 2}, MassAction("k2")),
        ],
        parameters={"k1": k1, "k2": k2},
    )


def moments(count, k1, k2, t):
    """Mean and deviation of P2 from the master equation."""
    n = np.arange(count // 2 + 1)
    p = count - 2 * n
    up, down = k1 * p * (p - 1) / 2, k2 * n
    rates = np.diag(-(up + down)) + np.diag(up[:-1], -1) + np.diag(down[1:], 1)
    law = scipy.linalg.expm(rates * t)[:, 0]
    mean = law @ n
    return mean, np.sqrt(law @ n**2 - mean**2)


@pytest.mark.parametrize("mean", [0.0, 1e-6, 0.3, 4.0, 9.9, 10.1, 60.0, 3000.0])
def test_poisson_quantile(mean):
    u = (np.arange(2**16) + 0.5) / 2**16
    n = np.asarray(poisson_quantile(jnp.asarray(u, jnp.float32), jnp.full(2**16, mean, jnp.float32)))
    exact = np.maximum(scipy.stats.poisson.ppf(u, mean), 0) if mean else np.zeros(2**16)
    assert np.abs(n - exact).max() <= (0 if mean < 0.3 else 1)
    assert (n != exact).mean() < 1e-3
    assert n.mean() == pytest.approx(mean, abs=2e-4 * max(1, np.sqrt(mean)))


def test_bias_shrinks_with_epsilon():
    model = (1000, 0.0002, 0.004)
    mean, deviation = moments(*model, 5.0)
    bias = {}
    for epsilon in (0.4, 0.1, 0.03):
        made = simulate_reactions(
            dimerisation(*model), [0.0, 5.0], runs=8000, method="tau", epsilon=epsilon, key=jax.random.key(0)
        )
        x = np.asarray(made.states[:, 1, 1], float)
        bias[epsilon] = abs(x.mean() - mean), abs(x.std() - deviation)
        assert np.asarray(made.states).min() >= 0
    for moment in (0, 1):
        assert bias[0.4][moment] > 2 * bias[0.1][moment] > 2 * 2 * bias[0.03][moment]
    # At the smallest, four standard errors of 8000 runs.
    assert bias[0.03][0] < 4 * deviation / np.sqrt(8000)
    assert bias[0.03][1] < 4 * deviation / np.sqrt(2 * 8000)


@pytest.mark.parametrize(("model", "epsilon"), [((100, 0.001, 0.01), 0.9), ((1000, 0.0002, 0.004), 0.3)])
def test_a_million_leaps_without_a_negative_count(model, epsilon):
    program, constants, initial = build_program(dimerisation(*model))
    constants, initial = jnp.asarray(constants, jnp.float32), jnp.asarray(initial, jnp.float32)
    lanes, steps = 1024, 3072
    times, root, zero = jnp.array([0.0, 1e6]), jnp.array([1, 2], jnp.uint32), jnp.zeros((), jnp.int32)

    @jax.jit
    def leap(constants, initial):
        work = start(program, initial, lanes, lanes, 2)
        work = _take_runs(program, initial, root, times, jnp.asarray(lanes, jnp.int32), work)
        first = _serve(program, constants, times, zero, work).lanes

        def one(carry, _):
            state, least, many = carry
            new = TauStep(epsilon)(program, environment(program, constants, state.x, state.clock, True), state)
            least = jnp.minimum(least, jnp.minimum(new.x[0].min(), new.x[1].min()))
            # More than one net firing is surely a leap; with fewer, it may have been one.
            moved = jnp.sum(jnp.abs(new.x[1] - state.x[1]) > 1, dtype=jnp.int32)
            return (eqx.tree_at(lambda s: s.stopped, new, first.stopped), least, many + moved), None

        return lax.scan(one, (first, jnp.asarray(jnp.inf), zero), length=steps)[0]

    state, least, many = leap(constants, initial)
    assert many >= 10**6
    assert least >= 0
    np.testing.assert_array_equal(state.x[0] + 2 * state.x[1], model[0])


def test_scarce_reactants_are_not_overdrawn():
    net = ReactionNetwork(
        {"A": 2000, "B": 15, "C": 0},
        [Reaction("fast", {"A": 1}, {}, "5 * A"), Reaction("scarce", {"B": 3}, {"C": 1}, "40 * B")],
    )
    made = simulate_reactions(net, np.linspace(0, 3, 31), runs=500, method="tau", epsilon=0.5, key=jax.random.key(1))
    x = np.asarray(made.states)
    assert x.min() == 0
    np.testing.assert_array_equal(x[..., 1] + 3 * x[..., 2], 15)
    np.testing.assert_array_equal(x[:, -1, 1:], [[0, 5]] * 500)


def test_repressilator_agrees_with_exact_runs():
    times = np.linspace(0, 30, 4)
    exact, leaps = (
        simulate_reactions(repressilator(), times, runs=400, method=method, key=jax.random.key(2))
        for method in ("ssa", "tau")
    )
    a, b = np.asarray(exact.states), np.asarray(leaps.states)
    assert leaps.steps.mean() < exact.steps.mean() / 5
    for i in range(6):
        for k in (1, 2, 3):
            assert scipy.stats.ks_2samp(a[:, k, i], b[:, k, i]).pvalue > 1e-3
