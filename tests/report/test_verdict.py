"""The verdict: the worst of skill and coverage decides, and each says why."""

import numpy as np
import pytest

from neuralgde.report import Calibration, Fans, Page, Scores, judge

A = np.array


def scores(ours, *others, metric="mae", **more):
    names = ("ours", "persistence", "time-of-day mean")[: 1 + len(others)]
    return Scores(names, (metric,), A([[ours], *([v] for v in others)], dtype=float), **more)


def coverage(measured, level=90.0):
    return Calibration((50.0, level), A([measured - 30.0, measured]), 1000)


@pytest.mark.parametrize(
    "part, grade, words",
    [
        (
            {"scores": scores(1.0, 2.0, 4.0)},
            "yes",
            "50 % below persistence's (2) and 75 % below time-of-day mean's (4)",
        ),
        ({"scores": scores(1.99, 2.0)}, "care", "small gain"),
        ({"scores": scores(2.0, 2.0)}, "no", "does as well or better"),
        ({"scores": scores(3.0, 2.0, 4.0)}, "no", "50 % above persistence's"),
        ({"scores": scores(1.0)}, "care", "no naive forecast to compare"),
        ({"scores": scores(1.0, np.nan)}, "care", "no naive forecast to compare"),
        ({"scores": scores(0.9, 0.8, metric="accuracy")}, "yes", "Higher is better"),
        ({"scores": scores(0.7, 0.8, metric="accuracy")}, "no", "Higher is better"),
        ({"scores": scores(1.0, 2.0, points=20)}, "care", "20 readings only"),
        (
            {"scores": scores(1.0, 2.0), "calibration": coverage(91.2)},
            "yes",
            "held 91.2 % of 1,000 readings: they can be taken at their word",
        ),
        ({"calibration": coverage(91.2)}, "care", "not been held against naive forecasts"),
        ({"calibration": coverage(84.0)}, "care", "too narrow"),
        ({"calibration": coverage(79.0)}, "no", "too narrow"),
        ({"calibration": coverage(99.0)}, "care", "too wide"),
        ({"scores": scores(1.0, 2.0), "calibration": coverage(79.0, 80.0)}, "yes", "The 80 % intervals"),
        ({"scores": scores(1.0, 2.0), "calibration": coverage(70.0)}, "no", "too narrow"),
        ({"scores": scores(3.0, 2.0), "calibration": coverage(90.0)}, "no", "does as well or better"),
        ({"scores": scores(np.nan, 2.0)}, "unknown", "no readings"),
        ({"fans": Fans(("a",), A([0.0]), A([[1.0]]))}, "unknown", "no readings"),
        ({"calibration": Calibration((90.0,), A([np.nan]))}, "unknown", "no readings"),
    ],
)
def test_grades(part, grade, words):
    verdict = judge(Page("p", **part))
    assert verdict.grade == grade
    assert words in " ".join(verdict.reasons)


def test_no_forecasts_no_verdict():
    assert judge(Page("p")) is None


def test_it_says_where_the_naive_forecasts_are_better():
    by_horizon = A([[[1.0, 3.0]], [[2.0, 2.0]]])
    by_node = A([[[1.0, 1.0, 3.0, np.nan]], [[2.0, 2.0, 2.0, 2.0]]])
    part = scores(1.5, 2.0, horizons=("15 min", "60 min"), by_horizon=by_horizon, nodes=tuple("abcd"), by_node=by_node)
    verdict = judge(Page("p", scores=part, quantity="speed (mph)"))
    text = " ".join(verdict.reasons)
    assert verdict.grade == "care"
    assert "this far ahead: 60 min." in text and "at 2 of 3 nodes" in text and "error of speed (mph) is 1.5" in text
    # Each horizon may have a naive forecast that is better there, and none be better overall.
    everywhere = scores(2.5, 3.0, 3.0, horizons=("15 min", "60 min"), by_horizon=A([[[2, 3]], [[1, 5]], [[5, 1.0]]]))
    verdict = judge(Page("p", scores=everywhere))
    assert verdict.grade == "no" and "this far ahead: 15 min, 60 min." in " ".join(verdict.reasons)
