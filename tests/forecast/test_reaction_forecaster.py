"""The latent model of one's own network: a birth-death process, whose law is known."""

import jax
import numpy as np
import pytest

from neuralgde import Forecaster, InputError
from neuralgde.forecast import ReactionForecaster, ReactionTraining
from neuralgde.simulate import MassAction, Reaction, ReactionNetwork, repressilator, simulate_reactions

BIRTH, DEATH = 20.0, 0.2
TIMES = np.arange(21.0)


@pytest.fixture(scope="module")
def network():
    return ReactionNetwork(
        {"A": 10},
        [Reaction("birth", {}, {"A": 1}, "b"), Reaction("death", {"A": 1}, {}, MassAction("d"))],
        parameters={"b": BIRTH, "d": DEATH},
    )


@pytest.fixture(scope="module")
def fitted(network):
    made = simulate_reactions(network, TIMES, runs=60, key=jax.random.key(0))
    small = ReactionTraining(warm_steps=400, steps=0, context=3)
    return ReactionForecaster.fit(network, TIMES, made.states, training=small)


@pytest.fixture(scope="module")
def knocked(fitted):
    return fitted.knock_out("birth", [[60.0]], [2.0, 10.0], start=1.0, samples=100)


def test_forecast_has_the_right_law(fitted, knocked):
    # From n: mean and variance of a birth-death process after t.
    t = np.array([1.0, 9.0])
    share = np.exp(-DEATH * t)
    mean = BIRTH / DEATH * (1 - share) + 60 * share
    std = np.sqrt(BIRTH / DEATH * (1 - share) + 60 * share * (1 - share))
    found = knocked.before
    np.testing.assert_allclose(found.mean[:, 0], mean, rtol=0.06)
    np.testing.assert_allclose(found.samples.std(0)[:, 0], std, rtol=0.35)
    assert fitted.scores["crps"] < 0.7 * fitted.scores["crps_persistence"]
    low, high = found.interval(90)
    assert ((low < found.mean) & (found.mean < high)).all()
    assert (found.interval(50)[1] < high).all()


def test_knock_out_beside_the_true_network(knocked):
    # No births: what is left dies out.
    expected = 60 * np.exp(-DEATH * np.array([1.0, 9.0]))
    np.testing.assert_allclose(knocked.network.mean[:, 0], expected, rtol=0.1)
    np.testing.assert_allclose(knocked.learned.mean[:, 0], expected, rtol=0.2)
    assert knocked.before.mean[1, 0] > 3 * expected[1]


def test_a_species_that_nothing_changes_any_more_can_be_knocked_out_of(fitted):
    found = fitted.knock_out(("birth", "death"), [[60.0]], [2.0], start=1.0, samples=4)
    np.testing.assert_array_equal(found.network.samples[..., 0], 60)


def test_saved_and_read_again(fitted, knocked, network, tmp_path):
    fitted.save(tmp_path / "model.gde")
    again = ReactionForecaster.load(tmp_path / "model.gde", network)
    found = again.forecast([[60.0]], [2.0, 10.0], start=1.0, samples=100)
    np.testing.assert_array_equal(found.samples, knocked.before.samples)
    np.testing.assert_array_equal(found.interval(90), knocked.before.interval(90))
    with pytest.raises(Exception, match="another network"):
        ReactionForecaster.load(tmp_path / "model.gde", repressilator())
    # Who takes it for the other kind of model is told what to use.
    with pytest.raises(InputError, match=r"model\.gde: expected a model of a table, .* ReactionForecaster\.load"):
        Forecaster.load(tmp_path / "model.gde")


def test_attention_names_its_edges(fitted):
    edges, weights = fitted.attention([[60.0]], [2.0, 10.0], start=1.0, samples=2)
    assert ("A", "death") in edges and ("birth", "A") in edges
    assert weights.shape == (2, len(edges))
    into = [i for i, (_, to) in enumerate(edges) if to == "A"]
    np.testing.assert_allclose(weights[:, into].sum(1), 1, rtol=1e-4)


def test_refuses(fitted, network):
    with pytest.raises(InputError, match="species or reaction 'brith'"):
        fitted.knock_out("brith", [[60.0]], [2.0])
    with pytest.raises(InputError, match="history: expected finite counts"):
        fitted.forecast([[60.0, 1.0]], [2.0])
    with pytest.raises(InputError, match="times: expected increasing times after the start"):
        fitted.forecast([[60.0]], [2.0], start=3.0)
    with pytest.raises(InputError, match="runs: expected 6 runs or more"):
        ReactionForecaster.fit(network, TIMES, np.zeros((3, 21, 1)))
    with pytest.raises(InputError, match="at equal spacing"):
        ReactionForecaster.fit(network, TIMES**2, np.zeros((8, 21, 1)))
