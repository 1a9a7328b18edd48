"""Sensor series, undersampling and windows on a small series whose readings tell where they come from."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from neuralgde import InputError
from neuralgde.data import Scale, SensorSeries, Windows, keep_sensors, keep_snapshots, make_windows, window_rows

SLOTS = 6
# A Thursday, a Friday, then the Monday after.
DATES = np.array(["2024-01-04", "2024-01-05", "2024-01-08"], "datetime64[D]")


@pytest.fixture
def series():
    rows = np.arange(3 * SLOTS)
    values = rows[:, None] + np.array([0.0, 100.0])
    return SensorSeries(values, DATES, np.array([[0.0, 1.0], [1.0, 0.0]]), ("a", "b"), "small")


def test_steps_follow_the_calendar(series):
    assert series.slots == SLOTS
    expected = np.concatenate([np.arange(12), np.arange(24, 30)])
    np.testing.assert_array_equal(series.steps, expected)
    np.testing.assert_array_equal(series.slot, np.tile(np.arange(SLOTS), 3))


def test_days_are_split_in_order(series):
    train, test = series.split_days((1, 1))
    np.testing.assert_array_equal(train.values, series.values[:SLOTS])
    np.testing.assert_array_equal(test.values, series.values[SLOTS : 2 * SLOTS])
    assert test.dates.tolist() == DATES[1:2].tolist()
    last = series.take_days([0, 2])
    np.testing.assert_array_equal(last.values[SLOTS:], series.values[2 * SLOTS :])
    assert last.steps[SLOTS] == 4 * SLOTS


def test_profile_is_the_mean_day_of_what_is_there(series):
    values = series.values.copy()
    values[0, 0] = np.nan
    values[[1, SLOTS + 1, 2 * SLOTS + 1], 0] = np.nan
    profile = dataclasses.replace(series, values=values).profile()
    assert profile[0].tolist() == [SLOTS * 1.5, 100 + SLOTS]
    assert profile[1, 0] == pytest.approx(np.nanmean(values[:, 0]))
    assert profile[2].tolist() == [2 + SLOTS, 102 + SLOTS]


def test_the_mean_of_other_days_leaves_out_the_own(series):
    values = series.values.copy()
    values[[1, SLOTS + 1], 0] = np.nan
    gaps = dataclasses.replace(series, values=values)
    days = values.reshape(-1, SLOTS, values.shape[1])
    others = gaps.mean_of_other_days().reshape(days.shape)
    np.testing.assert_allclose(others[0, 2], (days[1, 2] + days[2, 2]) / 2)
    # The one day with a reading has no others: its sensor's mean stands in.
    assert others[0, 1, 0] == values[2 * SLOTS + 1, 0]
    assert others[2, 1, 0] == pytest.approx(np.nanmean(values[:, 0]))


def test_profiles_are_smoothed_around_the_clock(series):
    bump = np.zeros((SLOTS, 1))
    bump[0] = 4.0
    one = SensorSeries(bump, DATES[:1], np.zeros((1, 1)), ("a",), "bump")
    smooth = one.profile(width=3)[:, 0]
    np.testing.assert_allclose(smooth[[0, 1, -1, 2]], [2, 1, 1, 0])
    with pytest.raises(InputError, match="odd"):
        series.profile(width=4)


def test_graphs(series):
    d = np.array([[0.0, 1, 9], [1, 0, 2], [9, 2, 0]])
    three = SensorSeries(np.zeros((SLOTS, 3)), DATES[:1], d, ("a", "b", "c"), "three")
    assert np.asarray(three.graph("percentile", percentile=50).to_dense()).tolist() == [[0, 1, 0], [1, 0, 1], [0, 1, 0]]
    weights = np.asarray(three.graph("gaussian", sigma=2.0).to_dense())
    np.testing.assert_allclose(weights, [[0, np.exp(-0.25), 0], [np.exp(-0.25), 0, 0], [0, 0, 0]], rtol=1e-6)
    with pytest.raises(InputError, match="gaussian"):
        series.graph("gausian")


@pytest.mark.parametrize(
    "change, message",
    [
        (dict(values=np.zeros((17, 2))), "as many rows for each of 3 days"),
        (dict(distances=np.zeros((3, 3))), "those of 2 sensors"),
        (dict(sensors=("a",)), "1 names"),
        (dict(dates=DATES[[0, 2, 1]]), r"dates\[2\] is 2024-01-05"),
    ],
)
def test_bad_series(series, change, message):
    with pytest.raises(InputError, match=message):
        dataclasses.replace(series, **change)


@pytest.mark.parametrize("counts", [(2, 2), (0, 1)])
def test_bad_splits(series, counts):
    with pytest.raises(InputError, match="counts"):
        series.split_days(counts)


# Undersampling


def test_snapshots_are_kept_by_a_coin_and_a_seed():
    kept = keep_snapshots(20_000, 0.3, seed=1)
    assert kept.mean() == pytest.approx(0.3, abs=4 * np.sqrt(0.21 / 20_000))
    # Independent: a kept one is followed by a kept one as often as any.
    assert kept[1:][kept[:-1]].mean() == pytest.approx(0.3, abs=0.03)
    np.testing.assert_array_equal(kept, keep_snapshots(20_000, 0.3, seed=1))
    assert (kept != keep_snapshots(20_000, 0.3, seed=2)).any()
    assert keep_snapshots(50, 1, seed=0).all() and not keep_snapshots(50, 0, seed=0).any()


@pytest.mark.parametrize("outage", [None, 12.0])
def test_sensors_are_kept_alone_or_drop_out_in_runs(outage):
    kept = keep_sensors(4000, 50, 0.7, seed=0, outage=outage)
    assert kept.mean() == pytest.approx(0.7, abs=0.02)
    assert kept[0].mean() == pytest.approx(0.7, abs=0.25)
    starts = (~kept[1:] & kept[:-1]).sum()
    length = (~kept[1:]).sum() / starts
    assert length == pytest.approx(outage or 1 / 0.7, rel=0.1)
    assert abs(np.corrcoef(kept[:, 0], kept[:, 1])[0, 1]) < 0.25


@pytest.mark.parametrize(
    "call, name",
    [
        (lambda: keep_snapshots(5, 30, seed=0), "keep"),
        (lambda: keep_sensors(5, 2, -0.1, seed=0), "keep"),
        (lambda: keep_sensors(5, 2, 0.2, seed=0, outage=2.0), "outage"),
    ],
)
def test_bad_undersampling(call, name):
    with pytest.raises(InputError, match=name):
        call()


# Windows


def test_windows_cross_midnight_but_no_missing_day(series):
    rows = window_rows(series, np.ones(18, bool), length=3)
    firsts = rows[:, 0].tolist()
    # Rows 0 to 11 are two days in a row; none reaches over the weekend to row 12.
    assert firsts == [*range(9), 12, 13, 14]
    by_day = window_rows(series, np.ones(18, bool), length=3, across_midnight=False)
    assert by_day[:, 0].tolist() == [0, 1, 2, 6, 7, 8, 12, 13, 14]


def test_the_target_is_the_next_snapshot_that_is_kept(series):
    kept = np.zeros(18, bool)
    kept[[0, 1, 4, 9, 10, 13]] = True
    w = make_windows(series, kept, length=3)
    assert len(w) == 2
    np.testing.assert_array_equal(w.values[..., 0, 0], [[0, 1, 4], [1, 4, 9]])
    np.testing.assert_array_equal(w.targets[:, 0, :, 0], [[9, 109], [10, 110]])
    # Since the midnight before the last observation: rows 4 and 9 are on the first and the second day.
    np.testing.assert_array_equal(w.times, [[0, 1, 4], [-5, -2, 3]])
    np.testing.assert_array_equal(w.query_times, [[9], [4]])
    np.testing.assert_array_equal(w.gaps, [[1, 3, 5], [3, 5, 1]])
    assert w.slot.tolist() == [[0, 1, 4], [1, 4, 3]]
    assert w.mask.all() and w.target_mask.all()


def test_nothing_of_a_window_depends_on_what_comes_after_it(series):
    kept = keep_snapshots(18, 0.7, seed=3)
    before = make_windows(series, kept, length=2)
    values = series.values.copy()
    values[8:] += 1000
    after = make_windows(dataclasses.replace(series, values=values), kept, length=2)
    last = np.asarray(before.values[:, -1, 0, 0])
    assert (last < 8).any() and (last >= 8).any()
    for name in ("times", "values", "mask", "query_times"):
        np.testing.assert_array_equal(getattr(before[last < 8], name), getattr(after[last < 8], name))


def test_several_queries(series):
    w = make_windows(series, length=3, queries=2)
    np.testing.assert_array_equal(w.gaps, np.ones((len(w), 4)))
    np.testing.assert_array_equal(w.targets[0, :, 0, 0], [3, 4])


def test_missing_sensors_are_masked_but_stay_truth(series):
    values = series.values.copy()
    values[3, 1] = np.nan
    kept = np.ones((18, 2), bool)
    kept[1, 0] = kept[2, 0] = False
    w = make_windows(dataclasses.replace(series, values=values), kept, length=2)
    assert w.mask[0, :, :, 0].tolist() == [[True, True], [False, True]]
    assert w.values[0, 1, 0, 0] == 0
    assert w.targets[0, 0, :, 0].tolist() == [2, 102] and w.target_mask[0].all()
    assert w.target_mask[1, 0, :, 0].tolist() == [True, False]
    assert w.mask[2, 1, :, 0].tolist() == [True, False]
    nothing = np.zeros((18, 2), bool)
    assert len(make_windows(series, nothing, length=2)) == 0


def test_scale_is_that_of_the_training_days(series):
    train, _ = series.split_days((1, 2))
    scale = Scale.of(train)
    assert (scale.mean, scale.std) == (pytest.approx(train.values.mean()), pytest.approx(train.values.std()))
    w = make_windows(series, np.ones((18, 2), bool) & (np.arange(18) % 2 == 0)[:, None], length=2)
    scaled = w.scaled(scale)
    np.testing.assert_allclose(scaled.values[w.mask], (w.values[w.mask] - scale.mean) / scale.std, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(scaled.targets, (w.targets - scale.mean) / scale.std, rtol=1e-5, atol=1e-6)
    with pytest.raises(InputError, match="readings that differ"):
        Scale.of(dataclasses.replace(train, values=np.ones_like(train.values)))


def test_windows_are_streams_one_by_one_and_as_a_batch(series):
    graph = series.graph("percentile", percentile=100)
    kept = keep_sensors(18, 2, 0.6, seed=0)
    w = make_windows(series, kept, length=3)

    @jax.jit
    def total(windows: Windows, graph):
        stream = windows.stream(graph, windows.times[..., None])
        return jnp.sum(stream.values), stream

    for windows in (w[:3], w[3:6]):
        _, batch = total(windows, graph)
        assert batch.times.shape == (3, 3) and not batch.changing and batch.graphs.num_edges == 2
        for i in range(3):
            one = windows[i].stream(graph)
            np.testing.assert_array_equal(batch.times[i], one.times)
            np.testing.assert_array_equal(batch.values[i], one.values)
            np.testing.assert_array_equal(batch.mask[i], one.mask)
            np.testing.assert_array_equal(batch.inputs[i, :, 0], one.times)
    with pytest.raises(InputError, match="single"):
        len(w[0])


@pytest.mark.parametrize(
    "options, name",
    [(dict(length=0), "length"), (dict(queries=0), "queries"), (dict(kept=np.ones(5, bool)), "kept")],
)
def test_bad_windows(series, options, name):
    with pytest.raises(InputError, match=name):
        make_windows(series, **options)


def test_windows_are_float64_under_x64(series, x64):
    assert make_windows(series, length=2).stream(series.graph()).values.dtype == jnp.float64
