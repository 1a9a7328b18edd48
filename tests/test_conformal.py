"""Split conformal correction."""

import numpy as np
import pytest

from neuralgde import InputError
from neuralgde.conformal import fit_conformal, next_quantile
from neuralgde.metrics import coverage


def noise(seed, n=4000):
    """Errors that grow with the gap, and narrow intervals that know nothing of it."""
    rng = np.random.default_rng(seed)
    gap = rng.integers(1, 11, n)
    y = rng.normal(size=(n, 3)) * gap[:, None]
    return np.full((n, 3), -0.5), np.full((n, 3), 0.5), y, gap


@pytest.mark.parametrize("level", (0.5, 0.9))
def test_covers_new_data_at_every_gap(level):
    correct = fit_conformal(*noise(0), level=level)
    low, high, y, gap = noise(1)
    low, high = correct(low, high, gap)
    assert abs(coverage(low, high, y) - level) < 0.015
    # A correction that did not follow the gap would leave the far ones at 0.3 and 0.8.
    far = gap > 5
    assert abs(coverage(low[far], high[far], y[far]) - level) < 0.06


def test_right_intervals_hardly_change():
    rng = np.random.default_rng(0)
    y = rng.normal(size=20_000)
    correct = fit_conformal(np.full(20_000, -1.6449), np.full(20_000, 1.6449), y, 1.0, level=0.9)
    low, high = correct(-1.6449, 1.6449, 7.0)
    np.testing.assert_allclose([low, high], [-1.6449, 1.6449], atol=0.04)


def test_scores_are_ranked_by_hand():
    # Nine points, all of error size 1 at one gap: the score of rank ceil(10 * 0.8) = 8 is what is added.
    y = np.array([0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9])
    correct = fit_conformal(np.zeros(9), np.zeros(9), y, 2.0, level=0.8)
    np.testing.assert_allclose(correct.shift * correct.sizes, [0.8])
    np.testing.assert_allclose(correct(1.0, 2.0, 2.0), (0.2, 2.8))
    # Narrower than the correction takes away: one point, not turned over.
    shrunk = fit_conformal(np.full(9, -5.0), np.full(9, 5.0), y, 2.0, level=0.8)
    assert shrunk.shift < 0
    np.testing.assert_allclose(shrunk(1.0, 2.0, 2.0), (1.5, 1.5))


def test_the_next_score_has_a_place_between_any_two():
    scores = np.array([3.0, 1.0, 2.0, 4.0])
    np.testing.assert_allclose(next_quantile(scores, np.array([0.2, 0.4, 0.5, 0.8])), [1, 2, 2.5, 4])
    # Beyond the places there are only the outermost scores.
    np.testing.assert_array_equal(next_quantile(scores, np.array([0.01, 0.99])), [1, 4])
    assert next_quantile(scores, 0.5, between=False) == 3 and next_quantile(scores, 0.6, between=False) == 3


def test_masked_points_have_no_effect():
    low, high, y, gap = noise(0)
    mask = np.ones(y.shape, bool)
    mask[::7, 1] = False
    expected = fit_conformal(low, high, np.where(mask, y, 0), gap, level=0.9, mask=mask)
    found = fit_conformal(low, high, np.where(mask, y, np.nan), gap, level=0.9, mask=mask)
    assert found.shift == expected.shift


@pytest.mark.parametrize(
    ("change", "message"),
    (
        ({"level": 90}, "level: expected a share"),
        ({"y": np.zeros(3)}, r"lower: expected the shape of y, \(3,\)"),
        ({"gap": np.ones(4)}, "gap: expected the shape"),
        ({"y": np.full(20, np.nan)}, "expected finite numbers"),
        ({"mask": np.arange(20) < 5}, "expected 9 points or more"),
    ),
)
def test_refuses(change, message):
    given = {"lower": np.zeros(20), "upper": np.ones(20), "y": np.zeros(20), "gap": np.ones(20), "level": 0.9}
    with pytest.raises(InputError, match=message):
        fit_conformal(**(given | change))
