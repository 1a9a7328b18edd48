"""The verdict on forecasts in plain words: believe them or not, and why."""

import dataclasses

import numpy as np

from ._page_data import Calibration, Page, Scores

# Errors that many percent below the best naive forecast's are worth the trouble; below that the gain is small.
_SMALL_GAIN = 2.0
# How many percentage points the intervals' coverage may be off: a little, and too much.
_COVERAGE_OFF, _COVERAGE_WRONG = 5.0, 10.0
_FEW_POINTS = 100
_NAMES = {
    "mae": "mean absolute error",
    "rmse": "root mean squared error",
    "rmse_sensor": "mean of the sensors' RMSE",
    "mape": "mean absolute percentage error",
    "nrmse": "normalised RMSE",
    "crps": "CRPS",
}
HIGHER_IS_BETTER = ("accuracy", "log_likelihood")


@dataclasses.dataclass(frozen=True)
class Verdict:
    """`grade` is "yes", "care", "no" or "unknown"; `headline` says it in words, `reasons` why."""

    grade: str
    headline: str
    reasons: tuple[str, ...]


_HEADLINES = {
    "yes": "These forecasts can be believed.",
    "care": "These forecasts are useful, with care.",
    "no": "Do not rely on these forecasts.",
    "unknown": "Nothing to judge these forecasts by yet.",
}
_ORDER = ("yes", "care", "no")


def judge(page: Page) -> Verdict | None:
    """The verdict on a page's forecasts by their errors against the naive ones and their intervals' coverage.

    None where the page has no forecasts. The worst of the parts decides.
    """
    if page.fans is None and page.scores is None and page.calibration is None:
        return None
    found = []
    if page.scores is not None and np.isfinite(page.scores.overall[0, 0]):
        found += _skill(page.scores, page.quantity)
    if page.calibration is not None and (said := _coverage(page.calibration)):
        found += said
        if page.scores is None:
            found.append(("care", "The errors have not been held against naive forecasts: gde backtest does that."))
    if not found:
        return Verdict(
            "unknown",
            _HEADLINES["unknown"],
            ("There are no readings at the times of the forecasts to hold them against.",),
        )
    grade = max((grade for grade, _ in found), key=_ORDER.index)
    return Verdict(grade, _HEADLINES[grade], tuple(reason for _, reason in found))


def metric_name(metric: str, short: bool = False) -> str:
    """A metric's name in words, or as it is abbreviated in tables."""
    if metric.startswith("coverage_"):
        return f"coverage of {metric.removeprefix('coverage_')} %"
    if short and metric in _NAMES:
        return metric.upper().replace("_", " ").replace("SENSOR", "by sensor")
    return _NAMES.get(metric, metric.replace("_", " "))


def _skill(scores: Scores, quantity: str) -> list[tuple[str, str]]:
    metric, ours = scores.metrics[0], float(scores.overall[0, 0])
    name = metric_name(metric) + ("" if quantity == "value" else f" of {quantity}")
    others = {m: float(v) for m, v in zip(scores.models[1:], scores.overall[1:, 0], strict=True) if np.isfinite(v)}
    if not others:
        return [("care", f"The {name} is {ours:.3g}; there is no naive forecast to compare it with.")]
    if metric in HIGHER_IS_BETTER:
        better = all(ours > value for value in others.values())
        listed = ", ".join(f"{m} {v:.3g}" for m, v in others.items())
        return [("yes" if better else "no", f"The {name} is {ours:.3g}; beside it: {listed}. Higher is better.")]
    parts = [f"{_percent_below(ours, value)} {m}'s ({value:.3g})" for m, value in others.items()]
    best = min(others.values())
    gain = 100 * (1 - ours / best) if best > 0 else 0.0
    grade = "no" if gain <= 0 else "care" if gain < _SMALL_GAIN else "yes"
    found = [(grade, f"The {name} is {ours:.3g}, {_and(parts)}.")]
    if grade == "no":
        found[0] = (grade, found[0][1] + " A naive forecast does as well or better.")
    elif grade == "care":
        found[0] = (grade, found[0][1] + " That is a small gain.")
    if scores.points is not None and scores.points < _FEW_POINTS:
        found.append(("care", f"It was measured on {scores.points} readings only: more may change the picture."))
    return found + _where(scores)


def _where(scores: Scores) -> list[tuple[str, str]]:
    """For which horizons and nodes the naive forecasts are better."""
    found = []
    if scores.by_horizon is not None:
        worse = _worse(scores.by_horizon[:, 0])
        names = [h for h, w in zip(scores.horizons, worse, strict=True) if w]
        if names:
            grade = "no" if len(names) == np.isfinite(scores.by_horizon[0, 0]).sum() else "care"
            found.append((grade, f"A naive forecast is as good or better this far ahead: {', '.join(names)}."))
    if scores.by_node is not None:
        worse = _worse(scores.by_node[:, 0])
        known = int(np.isfinite(scores.by_node[0, 0]).sum())
        if known > 1:
            share = (known - worse.sum()) / known
            text = f"It is better than every naive forecast at {known - int(worse.sum())} of {known} nodes."
            found.append(("yes" if share > 0.5 else "care", text))
    return found


def _worse(values: np.ndarray) -> np.ndarray:
    """Where the first row is not below all the others; what has no value on either side is not."""
    others = np.where(np.isfinite(values[1:]), values[1:], np.inf).min(0)
    return np.isfinite(values[0]) & (values[0] >= others)


def _coverage(calibration: Calibration) -> list[tuple[str, str]]:
    levels = np.asarray(calibration.levels, float)
    known = np.flatnonzero(np.isfinite(calibration.measured))
    if not known.size:
        return []
    i = known[np.argmin(abs(levels[known] - 90))]
    level, measured = levels[i], float(calibration.measured[i])
    off = measured - level
    points = "" if calibration.points is None else f" of {calibration.points:,}"
    text = f"The {level:g} % intervals held {measured:.1f} %{points} readings"
    if abs(off) <= _COVERAGE_OFF:
        return [("yes", f"{text}: they can be taken at their word.")]
    kind = (
        "too narrow: expect more surprises than they say" if off < 0 else "too wide: the truth is nearer than they say"
    )
    return [("no" if off < -_COVERAGE_WRONG else "care", f"{text}: {kind}.")]


def _percent_below(ours: float, value: float) -> str:
    gain = 100 * (1 - ours / value) if value > 0 else 0.0
    return f"{abs(gain):.0f} % {'below' if gain >= 0 else 'above'}"


def _and(parts: list[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
