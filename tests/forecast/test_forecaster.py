"""Forecaster: tables in, tables out, with what was promised of intervals, files and explanations."""

import dataclasses
import itertools
import subprocess
import sys

import numpy as np
import pandas as pd
import polars as pl
import pytest

import neuralgde as gde
from neuralgde.forecast import _calibration, fit_page
from neuralgde.forecast._fitted import split_rows

DAYS, SLOTS = 12, 24


def readings(seed=0, days=DAYS):
    """Hourly readings of five sensors in a line: a mean day, and what is off it, which moves on to the next sensor."""
    rng = np.random.default_rng(seed)
    rows = days * SLOTS
    off = np.zeros((rows, 5))
    for t in range(1, rows):
        off[t] = 0.6 * off[t - 1] + 0.35 * np.roll(off[t - 1], 1) * (np.arange(5) > 0) + rng.normal(size=5)
    day = 50 + 8 * np.sin(np.arange(rows) * 2 * np.pi / SLOTS)[:, None] + np.arange(5)
    return day + off


def table(values, start="2024-01-01", names="abcde", drop=0.0, seed=1):
    stamps = pd.date_range(start, periods=len(values), freq="1h")
    long = pd.DataFrame(
        {
            "unique_id": np.tile(list(names), len(values)),
            "ds": np.repeat(stamps, values.shape[1]),
            "y": values.reshape(-1),
        }
    )
    return long[np.random.default_rng(seed).random(len(long)) >= drop]


EDGES = pd.DataFrame({"source": list("abcd"), "target": list("bcde")})
# One edge starts and one ends on the way.
CHANGING = EDGES.assign(start=["2024-01-05", "", "", ""], end=["", "2024-01-08", "", ""])
TINY = {
    "steps": 40,
    "queries": 2,
    "hidden": 8,
    "embedding": 2,
    "rank": 2,
    "batch_size": 8,
    "horizon": 6 * 3600.0,
    "length": 3,
}


@pytest.fixture(scope="module")
def ridge():
    return gde.Forecaster("ridge").fit(table(readings(), drop=0.2), EDGES)


@pytest.fixture(scope="module")
def network():
    return gde.Forecaster("gcde-gru", **TINY).fit(table(readings(), drop=0.2), CHANGING, progress=False)


@pytest.fixture(scope="module")
def latent():
    return gde.Forecaster("latent-gsde", **TINY | {"steps": 4}).fit(table(readings(), drop=0.2), EDGES, progress=False)


def test_frames_out_are_as_frames_in(ridge):
    times = ["2024-01-13 00:30", "2024-01-13 05:00"]
    f = ridge.predict(times, level=(50, 90), quantiles=(0.1,), num_samples=3)
    assert isinstance(f, pd.DataFrame)
    assert list(f) == ["unique_id", "ds", "mean", "lo-50", "hi-50", "lo-90", "hi-90", "q-0.1"] + [
        f"sample-{i}" for i in (1, 2, 3)
    ]
    assert set(f["unique_id"]) == set("abcde") and len(f) == 10 and f["ds"].astype(str).tolist()[:2] == [
        "2024-01-13 00:30:00", "2024-01-13 05:00:00",
    ]  # fmt: skip
    assert (f["lo-90"] < f["lo-50"]).all() and (f["hi-50"] < f["hi-90"]).all() and (f["q-0.1"] > f["lo-90"]).all()
    again = gde.Forecaster("persistence").fit(pl.from_pandas(table(readings())), pl.from_pandas(EDGES))
    assert isinstance(again.predict(times), pl.DataFrame)


def test_backtest_beats_what_is_naive_and_covers(ridge):
    later = table(readings(days=20)[DAYS * SLOTS :], start="2024-01-13")
    test = ridge.backtest(later, horizons=[3600.0, 4 * 3600.0])
    scores = test.scores()
    assert test.models == ("ridge", "persistence", "time-of-day mean")
    assert scores[0, 1] < 0.95 * scores[1:, 1].min()
    # The noise of one step has a standard deviation of 1, and nothing can do better.
    assert 0.95 < test.by_horizon()[0, 1, 0] < 1.3
    assert 80 < scores[0, 4] < 97 and all(abs(test.coverage(level)[0] - level) < 10 for level in (50, 80))
    rows = test.table()
    assert set(rows["horizon"]) == {"1 h", "4 h"} and len(rows["rmse"]) == 2 * 5 * 3
    # The last readings too are as far ahead as it says.
    np.testing.assert_array_equal(test.made.stamps - test.made.origins, np.array(test.horizons)[test.horizon])
    with pytest.raises(gde.InputError, match="horizons: expected lengths of time up to 8 d.*got 9 d"):
        ridge.backtest(later, horizons=[9 * 86400.0])
    assert abs(ridge.coverage[90] - 90) < 6


def test_new_readings_are_taken_in_without_a_fit(ridge):
    plain = ridge.predict(["2024-01-13 01:00"])
    new = table(np.full((1, 5), 90.0), start="2024-01-13")
    moved = ridge.predict(["2024-01-13 01:00"], history=new)
    assert (moved["mean"] > plain["mean"] + 10).all()
    # An old time is forecast from what came before it alone.
    old = ridge.predict(["2024-01-12 12:00"], history=new)
    np.testing.assert_array_equal(old["mean"], ridge.predict(["2024-01-12 12:00"])["mean"])


@pytest.mark.parametrize("which", ["ridge", "network", "latent"])
def test_a_forecast_does_not_depend_on_what_else_is_asked(which, request):
    f = request.getfixturevalue(which)
    one = f.predict(["2024-01-13 03:20"])
    for earlier in ("2024-01-13 01:00", "2024-01-12 20:00"):
        both = f.predict([earlier, "2024-01-13 03:20"])
        np.testing.assert_allclose(both["mean"].to_numpy()[1::2], one["mean"], rtol=1e-5)


@pytest.mark.parametrize("which", ["ridge", "network", "latent", "persistence"])
def test_saved_models_forecast_the_same_bits(which, request, tmp_path):
    f = gde.Forecaster("persistence").fit(table(readings()), EDGES) if which == "persistence" else None
    f = f or request.getfixturevalue(which)
    f.save(tmp_path / "m.gde")
    f.save(tmp_path / "m.gde")
    again = gde.Forecaster.load(tmp_path / "m.gde")
    assert [p.name for p in tmp_path.iterdir()] == ["m.gde"] and again.config == f.config
    times = ["2024-01-13 00:30", "2024-01-13 05:00"]
    made, remade = (g.predict(times, num_samples=2) for g in (f, again))
    for name in made:
        if name not in ("unique_id", "ds"):
            np.testing.assert_array_equal(np.asarray(remade[name]), np.asarray(made[name]))
    assert again.coverage == f.coverage and again.summary["edges"] == 4


ELSEWHERE = """
import sys
import numpy as np
import neuralgde as gde

for path in sys.argv[1:]:
    made = gde.Forecaster.load(path).forecasts(["2024-01-13 00:30", "2024-01-13 05:00"])
    np.savez(path, mean=made.mean, low=made.quantile(0.05), paths=made.draw(2, 0))
"""


def test_another_process_forecasts_the_same_bits(ridge, network, tmp_path):
    files = {str(tmp_path / "ridge.gde"): ridge, str(tmp_path / "network.gde"): network}
    for path, f in files.items():
        f.save(path)
    subprocess.run([sys.executable, "-c", ELSEWHERE, *files], check=True)
    for path, f in files.items():
        made, found = f.forecasts(["2024-01-13 00:30", "2024-01-13 05:00"]), np.load(path + ".npz")
        for name, here in (("mean", made.mean), ("low", made.quantile(0.05)), ("paths", made.draw(2, 0))):
            np.testing.assert_array_equal(found[name], here)


def test_a_time_limit_cuts_training_and_says_so(network):
    f = gde.Forecaster("gcde-gru", **TINY, time_limit=0.1).fit(table(readings(), drop=0.2), CHANGING, progress=False)
    taken = int(f.fitted.training["step"][-1])
    # As few as it takes to see how long they are, and as many again, with the schedule of so many.
    assert taken == 2
    assert f.summary["notes"] == ["time limit: training was cut to 2 of 40 steps to keep to it."]
    assert network.summary["notes"] == []


def test_a_network_learns_and_is_no_worse_than_the_line_it_corrects(network, ridge):
    """The truth is linear here, so there is nothing to correct, but the spread has to be learned."""
    loss = network.fitted.training["loss"]
    assert np.isfinite(network.fitted.training["validation"]).all() and loss[-1] < 0.95 * loss[0]
    later = table(readings(days=14)[DAYS * SLOTS :], start="2024-01-13")
    own, line = (f.backtest(later, horizons=[3600.0]).scores()[0, 1] for f in (network, ridge))
    assert own < 1.1 * line


def test_joint_paths_hang_together(ridge):
    made = ridge.forecasts(pd.date_range("2024-01-13 01:00", periods=6, freq="1h"))
    paths = made.draw(400, seed=0)[..., 0]
    inside = (paths >= made.interval(80)[0][..., 0]) & (paths <= made.interval(80)[1][..., 0])
    assert inside.mean() == pytest.approx(0.8, abs=0.03)
    rank = np.argsort(np.argsort(paths, axis=0), axis=0)
    near, far = (np.corrcoef(rank[:, 2, 1], rank[:, k, 1])[0, 1] for k in (3, 5))
    assert near > far and near > 0.2


def test_gaps_are_filled_better_than_by_the_mean_day(ridge):
    whole = table(readings())
    gaps = table(readings(), drop=0.2)
    found = ridge.impute(level=90).merge(whole, on=["unique_id", "ds"])
    assert len(found) > 0.9 * (len(whole) - len(gaps))
    error = np.sqrt(np.mean((found["mean"] - found["y"]) ** 2))
    assert error < 1.2 < np.std(readings() - 50 - 8 * np.sin(np.arange(288) * 2 * np.pi / 24)[:, None] - np.arange(5))
    assert ((found["lo-90"] <= found["y"]) & (found["y"] <= found["hi-90"])).mean() == pytest.approx(0.9, abs=0.07)


def test_explanations_find_who_is_upstream(ridge, network):
    found = ridge.explain("c", "2024-01-13 00:00")
    assert found["source"].tolist()[:2] == ["c", "b"] and found["edge"].tolist()[:2] == ["itself", "yes"]
    assert found["effect"].iloc[1] > 3 * found.set_index("source").loc["e", "effect"]
    assert set(network.explain("c", "2024-01-13 00:00")["source"]) == set("abcde")


def test_what_if(ridge, network):
    def means(frame):
        return frame.set_index("unique_id")["mean"]

    times = ["2024-01-13 00:00"]
    for f, edge in ((ridge, ("b", "c")), (network, ("c", "d"))):
        cut, plain = means(f.what_if(times, cut=[edge])), means(f.predict(times))
        assert cut[edge[1]] != plain[edge[1]] and cut["a"] == pytest.approx(plain["a"], abs=0.2)
    assert means(ridge.what_if(times, silence=["b"]))["b"] != means(ridge.predict(times))["b"]
    with pytest.raises(gde.InputError, match="no edge from 'a' to 'c'"):
        network.what_if(times, cut=[("a", "c")])
    with pytest.raises(gde.InputError, match="unknown sensor 'z'"):
        ridge.what_if(times, silence=["z"])


@pytest.mark.parametrize("which", ["ridge", "network"])
def test_sensors_that_joined_later(which, request):
    f = request.getfixturevalue(which)
    day = readings(days=13)[DAYS * SLOTS :]
    new = table(np.column_stack([day, day[:, 4] + 10]), start="2024-01-13", names="abcdez")
    with pytest.raises(gde.InputError, match="'z' was not there"):
        f.predict(["2024-01-14 00:30"], history=new)
    edges = pd.concat([EDGES, pd.DataFrame({"source": ["e"], "target": ["z"]})])
    made = f.predict(["2024-01-14 00:30"], history=new, edges=edges).set_index("unique_id")["mean"]
    assert len(made) == 6 and abs(made["z"] - made["e"] - 10) < 6
    with pytest.raises(gde.InputError, match="no edge joins the new sensor 'z'"):
        f.predict(["2024-01-14 00:30"], history=new, edges=EDGES)


def test_several_variables_known_and_static_columns():
    values = readings()
    rain = np.random.default_rng(3).integers(0, 2, len(values)).astype(float)
    long = table(values + 5 * rain[:, None]).rename(columns={"y": "speed"})
    long["flow"] = 100 * long["speed"] + 7
    long["rain"], long["lanes"] = np.repeat(rain, 5), 2
    f = gde.Forecaster("ridge", values=("speed", "flow"), known=("rain",), static=("lanes",)).fit(long, EDGES)
    future = pd.DataFrame({"unique_id": list("abcde"), "ds": pd.Timestamp("2024-01-13 00:00"), "rain": 1.0})
    wet, dry = (
        f.predict(["2024-01-13 00:00"], future=future.assign(rain=value)).set_index(["unique_id", "variable"])["mean"]
        for value in (1.0, 0.0)
    )
    assert len(wet) == 10
    np.testing.assert_allclose(wet[:, "speed"] - dry[:, "speed"], 5, atol=1)
    np.testing.assert_allclose(wet[:, "flow"], 100 * wet[:, "speed"] + 7, rtol=0.02)


def test_wide_tables_have_a_future_too(ridge):
    values = readings()
    rain = np.random.default_rng(3).integers(0, 2, len(values)).astype(float)
    wide = pd.DataFrame(values + 5 * rain[:, None], columns=list("abcde"))
    wide["ds"], wide["rain"] = pd.date_range("2024-01-01", periods=len(values), freq="1h"), rain
    f = gde.Forecaster("ridge", known=("rain",)).fit(wide, EDGES)
    at = ["2024-01-13 00:00"]
    wet, dry = (f.predict(at, future=pd.DataFrame({"ds": at, "rain": [value]}))["mean"] for value in (1.0, 0.0))
    np.testing.assert_allclose(wet - dry, 5, atol=1)
    with pytest.raises(gde.InputError, match="future: the model was fitted without"):
        ridge.predict(at, future=pd.DataFrame({"unique_id": ["a"], "ds": at, "rain": [1.0]}))


def test_edges_that_change(network):
    fitted = network.fitted
    assert np.unique(fitted.source(fitted.readings).era).tolist() == [0, 1, 2]
    on = np.asarray(fitted.predictor.graph.edge_mask)
    assert on.tolist() == [[False, True, True, True], [True] * 4, [True, False, True, True]]


def test_one_sensor_and_no_edges():
    one = table(readings())
    f = gde.Forecaster("ridge").fit(one[one["unique_id"] == "a"])
    assert any("no edges" in note for note in f.summary["notes"])
    assert len(f.predict(["2024-01-13 00:00"])) == 1


def test_rows_without_a_reading_are_no_data(tmp_path):
    values = np.concatenate([readings(), np.full((5 * SLOTS, 5), np.nan)])
    long = table(values).assign(rain=np.repeat(np.arange(len(values)) % 2.0, 5))
    f = gde.Forecaster("persistence", known=("rain",)).fit(long, EDGES)
    plain = gde.Forecaster("persistence", known=("rain",)).fit(long.dropna(), EDGES)
    assert f.fitted.splits == plain.fitted.splits and f.fitted.shape == plain.fitted.shape
    assert f.coverage == plain.coverage
    f.save(tmp_path / "m.gde")
    again = gde.Forecaster.load(tmp_path / "m.gde")
    assert again.times(3600.0, 3600.0).astype(str).tolist() == ["2024-01-13T00:00:00.000000"]
    # What is known in advance of the days to come is kept.
    assert again.fitted.readings.stamps[-1] == f.fitted.readings.stamps[-1]
    np.testing.assert_array_equal(*(g.predict(["2024-01-13 05:00"])["mean"] for g in (f, again)))


def test_coverage_that_is_not_measured_apart_is_told(ridge, monkeypatch):
    assert not any("set aside" in note for note in ridge.summary["notes"])
    monkeypatch.setattr(_calibration, "_halves", lambda day: [np.zeros(len(day), bool), np.ones(len(day), bool)])
    f = gde.Forecaster("persistence").fit(table(readings()), EDGES)
    assert any("too few readings are set aside" in note for note in f.summary["notes"])


def test_parts_are_whole_days_in_order(ridge):
    fitted = ridge.fitted
    first, second = split_rows(fitted.readings, fitted.config, fitted.shape)
    stamps = pd.to_datetime(fitted.readings.stamps, unit="s")
    assert stamps[first] == pd.Timestamp("2024-01-10") and stamps[second] == pd.Timestamp("2024-01-11")
    few = dataclasses.replace(fitted.readings, stamps=fitted.readings.stamps[:30], values=fitted.readings.values[:30],
                              known=fitted.readings.known[:30])  # fmt: skip
    assert split_rows(few, fitted.config, fitted.shape) == (19, 24)


@pytest.mark.parametrize(
    "options, message",
    [
        ({"model": "ridg"}, "Did you mean 'ridge'"),
        ({"stepz": 3}, "Did you mean 'steps'"),
        ({"steps": 0}, "steps: expected"),
        ({"horizon": -1.0}, "horizon: expected a positive"),
        ({"calibration": 0.9}, "calibration: expected a share"),
    ],
)
def test_bad_options(options, message):
    with pytest.raises(gde.InputError, match=message):
        gde.Forecaster(**options)


@pytest.mark.parametrize(
    "shares, message", [({}, "3 are to choose by"), ({"validation": 0.4, "calibration": 0.4}, "5 are to learn from")]
)
def test_a_table_too_short_for_windows_is_refused(shares, message):
    with pytest.raises(gde.InputError, match=f"{message}, and a network needs 6 or more.*model='ridge'"):
        gde.Forecaster("gcde-gru", **TINY | shares | {"length": 5}).fit(table(readings(days=1)), EDGES)


def test_forecasts_need_a_fit():
    with pytest.raises(gde.InputError, match="not been fitted"):
        gde.Forecaster().predict(["2024-01-01"])


def test_the_page_shows_how_the_state_flows_and_jumps(ridge, network):
    assert fit_page("p", ridge.fitted).latent is None
    flow = fit_page("p", network.fitted).latent
    assert flow.nodes == network.fitted.readings.ids and flow.states.shape[1:] == (5, TINY["hidden"])
    gaps = np.diff(flow.times)
    assert (gaps >= np.timedelta64(0)).all() and np.isfinite(flow.states).all()
    # Every reading's time stands twice, before and after; where the state jumps it moves more than it flows in a step.
    assert (flow.times[:-1][gaps == np.timedelta64(0)] == flow.observed).all() and len(flow.observed) == TINY["length"]
    assert flow.observed[-1] == np.datetime64("2024-01-12T23:00")
    moves = np.abs(np.diff(flow.states, axis=0)).max(axis=(1, 2))
    assert moves[gaps == np.timedelta64(0)].min() > moves[gaps > np.timedelta64(0)].max() > 0


def test_the_stochastic_model_forecasts_with_quantiles(latent, ridge):
    times = ["2024-01-13 01:00", "2024-01-13 06:00"]
    made, line = (f.predict(times, level=90, quantiles=(0.25, 0.75)) for f in (latent, ridge))
    # It starts from the regressions, and its paths spread: after few steps it is near them, and not they.
    np.testing.assert_allclose(made["mean"], line["mean"], atol=3)
    assert not np.array_equal(made["mean"], line["mean"])
    columns = [made[name].to_numpy() for name in ("lo-90", "q-0.25", "q-0.75", "hi-90")]
    assert all((low < high).all() for low, high in itertools.pairwise(columns))
    assert abs(latent.coverage[90] - 90) < 8
    # Nothing comes to c from e: other readings of it must not mean other noise.
    found = latent.explain("c", "2024-01-13 00:00").set_index("source")["effect"]
    assert abs(found["e"]) < 0.2 < abs(found["c"])
