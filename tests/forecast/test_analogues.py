"""Forecasts from days that looked alike."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from neuralgde.data import SensorSeries, make_windows
from neuralgde.forecast import Analogues, Blend, last_value

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
    third = windows.day == series.days[3]
    assert third.sum() == SLOTS
    np.testing.assert_allclose(Analogues.of(changed, NEIGHBOURS, 2.0)(windows)[third], forecast[third], rtol=1e-6)
    # Other days do count.
    assert np.abs(Analogues.of(changed, NEIGHBOURS, 2.0)(windows) - forecast)[~third].max() > 1


def test_without_other_days_it_stands_still():
    series = series_of([dip([40] * SENSORS)])
    windows = make_windows(series, length=4)
    np.testing.assert_allclose(Analogues.of(series, NEIGHBOURS, 2.0)(windows), last_value(windows), rtol=1e-6)


def test_no_reading_is_needed_at_every_time():
    holes = deep_and_shallow().values.copy()
    holes[::7] = np.nan
    series = dataclasses.replace(deep_and_shallow(), values=holes)
    assert np.isfinite(Analogues.of(series, NEIGHBOURS, 0.5)(windows_of(dip([30] * SENSORS)))).all()


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_a_blend_is_between_its_parts_on_the_host_and_compiled(share):
    alike = Analogues.of(deep_and_shallow(), NEIGHBOURS, 0.5)
    blend = Blend(last_value, alike, np.asarray(share))
    windows = windows_of(dip([25] * SENSORS))
    expected = (1 - share) * last_value(windows) + share * alike(windows)
    np.testing.assert_allclose(blend(windows), expected, rtol=1e-6)
    compiled = jax.jit(lambda alike, w: alike(w))(alike, jax.tree.map(jnp.asarray, windows))
    np.testing.assert_allclose(compiled, alike(windows), rtol=1e-5)
