"""Forecasts from days that looked alike."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from neuralgde import InputError
from neuralgde.data import SensorSeries, make_windows
from neuralgde.forecast import Analogues, Blend, FreshWindows, last_value, lines_on_device

SLOTS, SENSORS = 48, 3
NEIGHBOURS = np.ones((SENSORS, SENSORS)) - np.eye(SENSORS)


def series_of(days, start="2024-01-01"):
    """Days (days, slots, sensors), one after the other."""
    dates = np.datetime64(start) + np.arange(len(days))
    distances = np.ones((SENSORS, SENSORS)) - np.eye(SENSORS)
    values = np.asarray(days, float).reshape(-1, SENSORS)
    return SensorSeries(values, dates, distances, tuple("abc"), "made")


def dip(depth, at=24):
    """A day on which the speed goes down to 60 - depth around a time, for each sensor."""
    hours = np.arange(SLOTS)[:, None]
    return 60 - np.asarray(depth, float) * np.exp(-(((hours - at) / 4) ** 2))


def deep_and_shallow():
    return series_of([dip([depth] * SENSORS) for depth in (40, 10, 40, 10, 40, 10)])


def windows_of(day, start="2024-03-01"):
    return make_windows(series_of([day], start), length=4, queries=2, across_midnight=False)


def test_a_day_that_began_like_another_goes_on_like_it():
    windows = windows_of(dip([40] * SENSORS))
    forecast = Analogues.of(deep_and_shallow(), NEIGHBOURS, 0.5)(windows)
    # Where the dip has begun it is told which kind of day it is.
    begun = (windows.times[:, -1] >= 20) & (windows.times[:, -1] < 32)
    truth = np.asarray(windows.targets)[..., 0]
    assert np.abs(forecast - truth)[begun].max() < 0.2
    assert np.abs(last_value(windows) - truth)[begun].max() > 5


def test_what_comes_sooner_than_on_other_days_is_found_by_its_shift():
    windows = windows_of(dip([40] * SENSORS, at=21))
    forecast = Analogues.of(deep_and_shallow(), NEIGHBOURS, 0.5)(windows)
    begun = (windows.times[:, -1] >= 17) & (windows.times[:, -1] < 28)
    assert np.abs(forecast - np.asarray(windows.targets)[..., 0])[begun].max() < 0.5


def test_sensors_are_told_apart_by_as_much_as_is_not_their_neighbours():
    series = series_of([dip([40, 40, 40]), dip([10, 10, 10])])
    windows = windows_of(dip([40, 10, 40]))
    begun = (windows.times[:, -1] >= 20) & (windows.times[:, -1] < 32)

    def error(around):
        alike = dataclasses.replace(Analogues.of(series, NEIGHBOURS, 0.5), around=around)
        return np.abs(alike(windows) - np.asarray(windows.targets)[..., 0])[begun].mean()

    assert error(0.0) < 0.2 * error(1.0)


def test_a_day_and_those_beside_it_tell_nothing_of_themselves():
    days = [dip([20 + 3 * i] * SENSORS) for i in range(6)]
    series = series_of(days)
    windows = make_windows(series, length=4)
    forecast = Analogues.of(series, NEIGHBOURS, 2.0)(windows)
    changed = series_of([days[0], days[1], *(np.full((3, SLOTS, SENSORS), 5.0)), days[5]])
    third = windows.day == series.day_numbers[3]
    assert third.sum() == SLOTS
    np.testing.assert_allclose(Analogues.of(changed, NEIGHBOURS, 2.0)(windows)[third], forecast[third], rtol=1e-6)
    # Other days do count.
    assert np.abs(Analogues.of(changed, NEIGHBOURS, 2.0)(windows) - forecast)[~third].max() > 1


def test_without_other_days_it_stands_still():
    series = series_of([dip([40] * SENSORS)])
    windows = make_windows(series, length=4)
    np.testing.assert_allclose(Analogues.of(series, NEIGHBOURS, 2.0)(windows), last_value(windows), rtol=1e-6)


def with_holes(series):
    """One sensor not read on one day, another one read at a single time of day on the third day alone."""
    values = series.values.reshape(6, SLOTS, SENSORS).copy()
    values[1, :, 0] = np.nan
    values[np.arange(6) != 3, 20, 1] = np.nan
    return dataclasses.replace(series, values=values.reshape(-1, SENSORS))


def test_a_day_tells_nothing_of_itself_through_what_others_did_not_read():
    series = with_holes(deep_and_shallow())
    windows = make_windows(series, length=4)
    windows = windows[windows.day == series.day_numbers[3]]
    changed = series.values.copy()
    changed[3 * SLOTS : 4 * SLOTS] = 5.0
    forecast, again = (
        Analogues.of(dataclasses.replace(series, values=values), NEIGHBOURS, 2.0)(windows)
        for values in (series.values, changed)
    )
    assert np.isfinite(forecast).all()
    np.testing.assert_allclose(again, forecast, rtol=1e-6)


def test_windows_without_a_day_are_refused():
    windows = dataclasses.replace(windows_of(dip([40] * SENSORS)), day=None)
    with pytest.raises(InputError, match="day"):
        Analogues.of(deep_and_shallow(), NEIGHBOURS, 0.5)(windows)


def test_between_two_steps_it_is_between_their_forecasts():
    alike = Analogues.of(deep_and_shallow(), NEIGHBOURS, 0.5)
    windows = windows_of(dip([25] * SENSORS))
    at = [alike(dataclasses.replace(windows, query_times=windows.query_times + by)) for by in (0.0, 0.25, 1.0)]
    np.testing.assert_allclose(at[1], 0.75 * at[0] + 0.25 * at[2], atol=1e-4)


def test_gradients_in_what_was_read_are_finite():
    series = series_of([dip([depth] * SENSORS) for depth in (10, 12, 11, 58, 10, 12)])
    alike = Analogues.of(series, NEIGHBOURS, 0.3)
    windows = jax.tree.map(jnp.asarray, make_windows(series, length=4))
    gradient = jax.grad(lambda v: jnp.sum(alike(dataclasses.replace(windows, values=v))))(windows.values)
    assert np.isfinite(gradient).all()


def test_days_are_told_by_the_calendar():
    days = np.array(["2024-01-04", "2024-01-05", "2024-01-08"], "datetime64[D]")
    series = dataclasses.replace(series_of([dip([10] * SENSORS)] * 3), dates=days)
    numbers = days.astype(int)
    windows = make_windows(series, length=4)
    # The last of Friday goes on to nowhere, and Monday has to begin with four of its own.
    assert np.unique(windows.day, return_counts=True)[1].tolist() == [SLOTS - 3, SLOTS - 1, SLOTS - 4]
    assert sorted(set(windows.day.tolist())) == numbers.tolist()
    fresh = FreshWindows.of(
        series.values[..., None], series.steps, series.steps % SLOTS, period=SLOTS, length=4,
        day=np.repeat(series.day_numbers, SLOTS),
    )  # fmt: skip
    drawn = fresh(jnp.asarray(fresh.rows), jax.random.key(0))
    assert drawn.day.tolist() == numbers[fresh.rows // SLOTS].tolist()


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_a_blend_is_between_its_parts_on_the_host_and_compiled(share):
    near, far = (Analogues.of(deep_and_shallow(), NEIGHBOURS, width) for width in (0.5, 20.0))
    blend = Blend(near, far, np.asarray(share))
    windows = windows_of(dip([25] * SENSORS))
    expected = (1 - share) * near(windows) + share * far(windows)
    np.testing.assert_allclose(blend(windows), expected, rtol=1e-6)
    (line,) = lines_on_device((blend,))
    compiled = jax.jit(lambda line, windows: line(windows))(line, jax.tree.map(jnp.asarray, windows))
    np.testing.assert_allclose(compiled, expected, rtol=1e-5)
