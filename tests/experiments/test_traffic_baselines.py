"""The traffic experiment without networks: its protocol, and forecasts whose figures are known."""

import dataclasses

import numpy as np
import pytest

from neuralgde.data import SensorSeries, load_pemsd7m, make_windows
from neuralgde.experiments._traffic_baselines import SensorMean, fit_traffic_ridge
from neuralgde.experiments._traffic_protocol import TrafficTask, errors_by_gap, evaluate, rows_of, score
from neuralgde.forecast import expected, filled, last_value

SENSORS, SLOTS, DAYS = 4, 24, 12
DISTANCES = np.abs(np.arange(SENSORS)[:, None] - np.arange(SENSORS)) * 1000.0


def make_task(values, length=5) -> TrafficTask:
    dates = np.datetime64("2024-01-01") + np.arange(DAYS)
    series = SensorSeries(values, dates, DISTANCES, ("a", "b", "c", "d"), "small")
    return TrafficTask.of(series, (8, 2, 2), length, width=1)


@pytest.fixture
def noisy():
    """A mean day, plus deviations that decay as e^(-t / 5) towards it."""
    rng = np.random.default_rng(0)
    day = 50 + 10 * np.sin(np.arange(SLOTS) / SLOTS * 2 * np.pi)[:, None] * np.array([1, 0.5, -1, 2])
    off = np.zeros((DAYS * SLOTS, SENSORS))
    for row in range(1, len(off)):
        off[row] = np.exp(-1 / 5) * off[row - 1] + rng.normal(size=SENSORS)
    return make_task(np.tile(day, (DAYS, 1)) + off)


def test_parts_are_days_in_order_and_share_nothing(noisy):
    everything = np.concatenate([noisy.train.values, noisy.validation.values, noisy.test.values])
    assert len(everything) == DAYS * SLOTS
    assert noisy.scale.mean == pytest.approx(noisy.train.values.mean())
    np.testing.assert_allclose(noisy.profile, noisy.train.values.reshape(8, SLOTS, SENSORS).mean(0))
    for part in ("train", "validation", "test"):
        w = noisy.windows(part, 0.5, seed=0)
        assert np.isin(w.values, getattr(noisy, part).values.astype(np.float32)).all()
        assert np.isin(w.targets, getattr(noisy, part).values.astype(np.float32)).all()


def test_undersamplings_differ_by_seed_and_by_part(noisy):
    first, again, other = (noisy.windows("test", 0.5, seed=seed) for seed in (0, 0, 1))
    np.testing.assert_array_equal(first.values, again.values)
    assert first.values.shape != other.values.shape or (first.values != other.values).any()
    assert len(noisy.test_windows(0.5)) == 20 and len(noisy.test_windows(1.0)) == 1
    same_days = dataclasses.replace(noisy, validation=noisy.test).windows("validation", 0.5, seed=0)
    assert same_days.values.shape != first.values.shape or (same_days.values != first.values).any()


def test_missing_sensors(noisy):
    w = noisy.windows("test", 0.4, seed=0, by="sensor", outage=4.0)
    assert w.mask.mean() == pytest.approx(0.4, abs=0.15) and w.target_mask.all()
    x = filled(w)
    mask = np.asarray(w.mask[..., 0])
    np.testing.assert_allclose(x[mask], np.asarray(w.values[..., 0])[mask], rtol=1e-6)
    never = ~mask.any(1)
    assert never.any()
    mean = np.broadcast_to(noisy.profile[w.slot], x.shape)
    np.testing.assert_allclose(np.swapaxes(x, 1, 2)[never], np.swapaxes(mean, 1, 2)[never])
    # Standing still is the last value seen, however old.
    last = last_value(w)[:, 0]
    at = np.argwhere(mask[:, 2] & ~mask[:, 3] & ~mask[:, 4])[0]
    assert last[tuple(at)] == w.values[at[0], 2, at[1], 0]


def test_naive_forecasts(noisy):
    w = noisy.windows("test", 0.5, seed=0, queries=2)
    assert last_value(w).shape == (len(w), 2, SENSORS)
    np.testing.assert_array_equal(last_value(w)[:, 1], w.values[:, -1, :, 0])
    np.testing.assert_array_equal(expected(w)[:, 1], noisy.profile[w.query_times[:, 1].astype(int) % w.period])
    np.testing.assert_allclose(SensorMean(noisy)(w)[0, 0], noisy.train.values.mean(0))


@pytest.mark.parametrize("rich", [False, True])
def test_ridge_finds_what_is_linear(noisy, rich):
    train = [noisy.windows("train", 1.0, 0)]
    ridge = fit_traffic_ridge(noisy, train, noisy.windows("validation", 1.0, 0), rich=rich)
    scores = {name: evaluate(f, noisy.test_windows(1.0)) for name, f in
              {"ridge": ridge, "persistence": last_value, "day": expected}.items()}  # fmt: skip
    error = {name: float(s["rmse"][0]) for name, s in scores.items()}
    # The noise of one step has a standard deviation of 1, and nothing can do better.
    assert 0.9 < error["ridge"] < 1.2 < min(error["persistence"], error["day"])


def test_ridge_is_exact_where_the_truth_is_linear():
    """Straight lines: the slope of the last change times the gap, whatever the gap, is in the features of rich."""
    slopes = np.array([0.1, -0.2, 0.3, 0.05])
    task = make_task(100 + np.arange(DAYS * SLOTS)[:, None] * slopes)
    train = [task.windows("train", 0.6, seed) for seed in range(3)]
    ridge = fit_traffic_ridge(task, train, task.windows("validation", 0.6, 0), rich=True)
    scores = evaluate(ridge, task.test_windows(0.6, 2))
    assert scores["rmse"].max() < 0.02 < evaluate(last_value, task.test_windows(0.6, 2))["rmse"].min()


def test_scores_are_the_definitions(noisy):
    w = noisy.windows("test", 0.7, seed=1)
    f = expected(w)
    error, y = f[:, 0] - w.targets[:, 0, :, 0], w.targets[:, 0, :, 0]
    found = score(f, w)
    assert found["rmse_sensor"] == pytest.approx(np.sqrt((error**2).mean(0)).mean(), rel=1e-5)
    assert found["rmse"] == pytest.approx(np.sqrt((error**2).mean()), rel=1e-5)
    assert found["mape"] == pytest.approx(100 * (abs(error) / y).mean(), rel=1e-5)
    assert found["mae"] == pytest.approx(abs(error).mean(), rel=1e-5)
    (row,) = [r for r in rows_of("m", "keep 0.7", {"rmse": np.array([1.0, 3.0])}, {"rmse": 9.0})]
    assert (row.mean, row.std, row.paper) == (2.0, 1.0, 9.0)


def test_errors_by_gap(noisy):
    test = noisy.test_windows(0.4, 3)
    by_gap = errors_by_gap(last_value, test, longest=4)
    assert sum(count for _, count in by_gap.values()) == sum(map(len, test)) and max(by_gap) == 4
    squares = sum(error**2 * count for error, count in by_gap.values())
    pooled = np.concatenate([(last_value(w)[:, 0] - w.targets[:, 0, :, 0]).ravel() for w in test])
    assert np.sqrt(squares / sum(map(len, test))) == pytest.approx(np.sqrt((pooled**2).mean()), rel=1e-5)
    assert by_gap[1][0] < by_gap[3][0]


@pytest.mark.data
@pytest.mark.parametrize(
    "keep, persistence, mape, ridge",
    [(1.0, 2.32, 3.12, 2.24), (0.7, 2.93, 3.73, 2.75), (0.3, 4.79, 5.82, 4.06)],
)
def test_known_figures(data_dir, keep, persistence, mape, ridge):
    task = TrafficTask.of(load_pemsd7m(data_dir / "pemsd7m"))
    test = task.test_windows(keep)
    still = evaluate(last_value, test)
    # 20 undersamplings have a standard deviation of 0.1 at keep 0.3, so their mean is good to some hundredths.
    assert still["rmse_sensor"].mean() == pytest.approx(persistence, rel=0.01)
    assert still["mape"].mean() == pytest.approx(mape, rel=0.01)
    if keep == 1:
        assert evaluate(SensorMean(task), test)["rmse_sensor"].mean() == pytest.approx(12.49, abs=0.01)
    train = [task.windows("train", keep, seed) for seed in range(1 if keep == 1 else 2)]
    fitted = fit_traffic_ridge(task, train, task.windows("validation", keep, 0))
    assert evaluate(fitted, test[:8])["rmse_sensor"].mean() == pytest.approx(ridge, rel=0.03)
    assert len(make_windows(task.test)) == 5 * 288 - 5
