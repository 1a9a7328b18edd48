"""The stochastic test suite: its own rule, and a few cases on one key. `python -m benchmarks.dsmts` runs it all."""

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent.parent.parent))

from benchmarks import dsmts

RNG = np.random.default_rng(0)


def case(mean, deviation):
    expected = {"X": (np.asarray(mean), np.asarray(deviation))}
    return dsmts.Case("test", Path("-"), np.arange(2.0), expected, (-3.0, 3.0), (-5.0, 5.0))


@pytest.mark.parametrize(
    ("mean", "deviation", "out", "unequal"),
    [([5, 20], [0, 4], 0, 0), ([5, 20.3], [0, 4], 1, 0), ([5, 20], [0, 4.2], 1, 0), ([6, 20], [0, 4], 0, 1),
     ([5, 20], [0, 0], 0, 1)],
)  # fmt: skip
def test_the_rule(mean, deviation, out, unequal):
    x = np.stack([np.full(10_000, 5.0), 20 + 4 * RNG.standard_normal(10_000)], axis=1)[..., None]
    found = dsmts.score(case(mean, deviation), x, ("X",))
    assert (found.points, found.out, found.unequal) == (4, out, unequal)


def test_heavy_tails_are_judged_by_their_kurtosis():
    # One in a thousand is 100: mean 0.1, deviation 3.16, kurtosis about 1000.
    x = np.zeros((10_000, 2, 1))
    x[:13, 1] = 100.0
    sigma = np.sqrt(1e-3 * (1 - 1e-3)) * 100
    found = dsmts.score(case([0, 0.1], [0, sigma]), x, ("X",))
    assert (found.out, found.heavy, found.unequal) == (1, 0, 0)


@pytest.mark.parametrize(
    ("outs", "unequal", "good"),
    [([2] * 10, 0, True), ([3, 3] + [0] * 8, 0, True), ([3, 3, 3] + [0] * 7, 0, False), ([0] * 10, 1, False)],
)
def test_when_a_case_fails(outs, unequal, good):
    assert dsmts.passed([dsmts.Score(100, out, unequal) for out in outs]) is good


@pytest.mark.data
@pytest.mark.parametrize("name", ["00001", "00011", "00019", "00025", "00027", "00029", "00033", "00035", "00037"])
def test_cases_on_one_key(name, data_dir):
    found = dsmts.read_case(data_dir / "dsmts" / name)
    (result,) = dsmts.run_case(found, 10_000, range(1), "ssa", 0.03)
    assert result.points >= 100
    assert result.out < dsmts.POINTS and result.unequal == 0
