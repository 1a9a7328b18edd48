"""Profiles: what is to be expected of a row, by all days and by all but its own."""

import numpy as np
import pandas as pd
import pytest

import neuralgde as gde
from neuralgde.forecast import _profile
from neuralgde.forecast._profile import fit_profile

SLOTS = 24


@pytest.fixture(scope="module")
def days():
    """Hourly readings of one sensor on eight working days; each day has a level of its own, 0 to 7."""
    stamps = pd.date_range("2024-01-01", periods=8 * SLOTS, freq="1h")
    long = pd.DataFrame({"unique_id": "a", "ds": stamps, "y": np.repeat(np.arange(8.0), SLOTS)})
    forecaster = gde.Forecaster("persistence").fit(long)
    return forecaster.fitted.readings


def test_a_training_row_is_expected_from_the_other_days(days):
    train, validation = days.rows(slice(0, 5 * SLOTS)), days.rows(slice(5 * SLOTS, None))
    profile, others = fit_profile(train, validation)
    everything = profile.at(train.stamps, train.clock, train.known)
    np.testing.assert_allclose(everything, 2.0, atol=1e-3)
    # The mean of 0 to 4 without the day's own level.
    level = train.values[:, 0, 0]
    np.testing.assert_allclose(others[:, 0, 0], (10 - level) / 4, atol=1e-3)
    # A forecast of a later day is made from all of them.
    np.testing.assert_allclose(profile.at(validation.stamps, validation.clock, validation.known), 2.0, atol=1e-3)


def test_readings_are_summed_once(days, monkeypatch):
    calls, of = [], _profile._Sums.of
    monkeypatch.setattr(_profile._Sums, "of", lambda train: calls.append(train) or of(train))
    fit_profile(days.rows(slice(0, 5 * SLOTS)), days.rows(slice(5 * SLOTS, None)))
    assert len(calls) == 1


def test_readings_that_are_missing_count_for_no_day(days):
    values = days.values.copy()
    values[3, 0, 0] = values[SLOTS + 3, 0, 0] = np.nan
    train = gde.data.Readings(days.ids, days.columns, days.clock, days.stamps, values, days.known, days.static)
    _, others = fit_profile(train.rows(slice(0, 5 * SLOTS)), train.rows(slice(5 * SLOTS, None)))
    # Only days 2, 3 and 4 have this hour; of these the own one is left out.
    assert others[2 * SLOTS + 3, 0, 0] == pytest.approx(3.5, abs=0.01)
    assert others[3, 0, 0] == pytest.approx(3.0, abs=0.01)
