"""Users' tables: layouts and stamps that are recognised, and what is done with rows that are not as they should be."""

import dataclasses
import io

import numpy as np
import pandas as pd
import polars as pl
import pytest

from neuralgde import InputError
from neuralgde.data import (
    Columns,
    format_stamps,
    join,
    make_frame,
    read_edges,
    read_series,
    read_table,
    read_times,
    to_dates,
    write_table,
)

LONG = "unique_id,ds,y\na,2024-01-01 00:00,1\nb,2024-01-01 00:00,2\na,2024-01-01 00:10,3\nb,2024-01-01 00:05,\n"


def save(tmp_path, text, name="series.csv"):
    path = tmp_path / name
    path.write_text(text)
    return path


def test_long_table(tmp_path):
    r = read_series(save(tmp_path, LONG))
    assert r.ids == ("a", "b") and r.columns.layout == "long" and r.variables == ("y",)
    assert r.clock.step == 300 and r.clock.period == 288 and r.clock.zone is None
    np.testing.assert_array_equal(r.values[..., 0], [[1, 2], [np.nan, np.nan], [3, np.nan]])
    assert format_stamps(r.stamps, r.clock) == ["2024-01-01 00:00:00", "2024-01-01 00:05:00", "2024-01-01 00:10:00"]


@pytest.mark.parametrize("kind", ["pandas", "polars", "dict", "parquet", "unsorted", "tabs", "semicolons", "gzip"])
def test_the_same_readings_whatever_they_come_in(tmp_path, kind):
    frame = pd.read_csv(io.StringIO(LONG), parse_dates=["ds"])
    source = {
        "pandas": lambda: frame,
        "polars": lambda: pl.from_pandas(frame),
        "dict": lambda: {name: frame[name].to_numpy() for name in frame},
        "parquet": lambda: (frame.to_parquet(tmp_path / "t.parquet"), tmp_path / "t.parquet")[1],
        "unsorted": lambda: frame.iloc[[0, 1, 3, 2]],
        "tabs": lambda: save(tmp_path, LONG.replace(",", "\t"), "t.tsv"),
        "semicolons": lambda: save(
            tmp_path, LONG.replace(",", ";").replace(";1\n", ";1,0\n").replace(";3\n", ";3,00\n"), "t.csv"
        ),
        "gzip": lambda: (frame.to_csv(tmp_path / "t.csv.gz", index=False), tmp_path / "t.csv.gz")[1],
    }[kind]()
    expected = read_series(save(tmp_path, LONG))
    found = read_series(source)
    np.testing.assert_array_equal(found.values, expected.values)
    np.testing.assert_array_equal(found.stamps, expected.stamps)
    assert found.clock == expected.clock and found.ids == expected.ids


def test_names_of_ones_own_are_found_or_given(tmp_path):
    text = "when,station,speed,lanes,rain\n2024-01-01,x,5,2,0\n2024-01-02,x,6,2,1\n2024-01-02,z,7,3,0\n"
    r = read_series(save(tmp_path, text), Columns(values=("speed",), known=("rain",), static=("lanes",)))
    assert (r.columns.id, r.columns.time, r.ids) == ("station", "when", ("x", "z"))
    assert r.static[:, 0].tolist() == [2, 3] and r.known[1, :, 0].tolist() == [1, 0]
    assert r.clock.cycle == 7 * 86400 and r.clock.period == 7 and r.clock.phase(r.stamps).tolist() == [0, 1]
    both = read_series(save(tmp_path, text))
    assert both.variables == ("speed", "lanes", "rain") and both.values.shape == (2, 2, 3)


def test_wide_tables_and_matrices(tmp_path):
    wide = read_series(save(tmp_path, "date,p,q\n2024-01-01 00:00,1,2\n2024-01-01 01:00,,4\n"))
    assert wide.columns.layout == "wide" and wide.ids == ("p", "q") and np.isnan(wide.values[1, 0, 0])
    matrix = read_series(save(tmp_path, "1,2,3\n4,5,6\n7,8,9\n"), period=2)
    assert matrix.ids == ("0", "1", "2") and matrix.stamps.tolist() == [0, 1, 2] and matrix.clock.period == 2
    distances = read_edges(save(tmp_path, "0,5,900\n5,0,900\n900,900,0\n", "W.csv"), matrix.ids)
    assert "is read as distances" in distances.notes[0]
    triples = zip(distances.senders, distances.receivers, distances.weights, strict=True)
    near = {(i, j): w for i, j, w in triples}
    assert near[0, 1] == near[1, 0] > 0.99 and near[0, 2] == pytest.approx(np.exp(-1))
    weights = read_edges(save(tmp_path, "0,1,0\n0,0,0.5\n0,0,0\n", "W.csv"), matrix.ids)
    assert (weights.senders.tolist(), weights.weights.tolist()) == ([0, 1], [1, 0.5]) and not weights.notes


def test_zones():
    """The time of day goes by the wall clock of the zone, over a change of clocks too."""
    t = pd.date_range("2024-03-30", "2024-04-02", freq="1h", tz="Europe/Paris", inclusive="left")
    r = read_series(pd.DataFrame({"unique_id": "a", "ds": t, "y": np.arange(len(t))}))
    np.testing.assert_allclose(r.clock.phase(r.stamps), t.hour)
    assert r.clock.zone == "Europe/Paris" and len(t) == 71
    naive = read_series(pd.DataFrame({"unique_id": "a", "ds": t.tz_localize(None), "y": 1.0 * np.arange(len(t))}),
                        zone="Europe/Paris")  # fmt: skip
    np.testing.assert_allclose(naive.stamps, r.stamps)
    text = read_series({"unique_id": ["a"] * 3, "ds": ["2024-01-01T23:00-05:00", "2024-01-02T00:00-05:00",
                                                         "2024-01-02T01:00-05:00"], "y": [1, 2, 3]})  # fmt: skip
    assert text.clock.zone == "-05:00" and text.clock.phase(text.stamps).tolist() == [23, 0, 1]
    assert read_times(["2024-01-02 02:00"], text.clock)[0] == text.stamps[-1] + 3600
    assert read_times([pd.Timestamp("2024-01-02 07:00Z")], text.clock)[0] == text.stamps[-1] + 3600
    assert format_stamps(text.stamps[:1], text.clock) == ["2024-01-01 23:00:00-05:00"]


def test_dates_keep_the_hour_that_comes_twice():
    t = pd.date_range("2024-10-27", periods=6, freq="1h", tz="Europe/Paris")
    r = read_series(pd.DataFrame({"unique_id": "a", "ds": t, "y": np.arange(6.0)}))
    dates = to_dates(r.stamps, r.clock)
    assert [d.hour for d in dates] == [0, 1, 2, 2, 3, 4]
    for same in (dates, t, t.to_series(), pl.Series(list(dates)).dt.convert_time_zone("Europe/Paris")):
        np.testing.assert_array_equal(read_times(same, r.clock), r.stamps)
    naive = dataclasses.replace(r.clock, zone=None)
    np.testing.assert_array_equal(read_times(to_dates(r.stamps, naive), naive), r.stamps)


def test_weekends_are_another_kind_of_day():
    t = pd.date_range("2024-01-04", periods=4 * 24, freq="1h")
    r = read_series(pd.DataFrame({"unique_id": "a", "ds": t, "y": np.arange(len(t))}))
    assert r.clock.day_kind(r.stamps)[::24].tolist() == [0, 0, 1, 1]


def test_what_is_mended_is_told(tmp_path):
    text = LONG + "a,2024-01-01 00:00,1\nc,2024-01-01 00:00,\n"
    text += "".join(f"d,2024-01-01 00:{minute},7\n" for minute in ("00", "10", "20"))
    wider = text.replace("\n", ",9\n").replace("y,9\n", "y,extra\n")
    r = read_series(save(tmp_path, wider), Columns(values=("y",)))
    assert r.ids == ("a", "b", "d") and r.silent == ("c",)
    said = " ".join(r.notes)
    for word in ("stand twice", "no reading of c", "same reading of", "extra"):
        assert word in said


def test_rows_fill_each_others_columns():
    rows = {"unique_id": ["a"] * 5, "ds": [0, 0, 0, 1, 1], "u": [1, np.nan, np.nan, 3, 3], "v": [np.nan, 2, 2, 4, 4],
            "rain": [np.nan, 5, np.nan, np.nan, 6]}  # fmt: skip
    r = read_series(rows, Columns(values=("u", "v"), known=("rain",)))
    assert r.values[:, 0].tolist() == [[1, 2], [3, 4]] and r.known[:, 0, 0].tolist() == [5, 6]
    assert any("2 row(s) stand twice" in note for note in r.notes)
    # What is missing in between hides no contradiction.
    with pytest.raises(InputError, match="row 2, column u: sensor a has another reading.*row 0: 1, then 7"):
        read_series(rows | {"u": [1, np.nan, 7, 3, 3]}, Columns(values=("u", "v")))


def test_stamps_of_their_own_are_put_on_a_grid():
    rng = np.random.default_rng(0)
    stamps = np.concatenate([np.arange(100) * 10 + rng.uniform(0, 10, 100) for _ in range(8)])
    r = read_series({"unique_id": np.repeat(list("abcdefgh"), 100), "ds": stamps, "y": stamps})
    assert len(r.stamps) < 150 and any("rounded" in note for note in r.notes)
    there = ~np.isnan(r.values[..., 0])
    assert there.sum() > 600
    assert np.abs((r.values[..., 0] - r.stamps[:, None])[there]).max() <= r.clock.step


def test_edges_from_tables_and_coordinates(tmp_path):
    ids = ("a", "b", "c")
    e = read_edges({"from": ["a", "b"], "to": ["b", "c"]}, ids, undirected=True)
    assert sorted(zip(e.senders.tolist(), e.receivers.tolist(), strict=True)) == [(0, 1), (1, 0), (1, 2), (2, 1)]
    places = {"unique_id": ["c", "a", "b"], "latitude": [48.9, 48.85, 48.851], "longitude": [2.3, 2.35, 2.351]}
    e = read_edges(None, ids, coordinates=places)
    assert e.geographic and e.coordinates.tolist()[0] == [2.35, 48.85] and len(e.senders) > 0
    assert "no edges" in read_edges(None, ids).notes[0]
    e = read_edges({"source": ["a", "dead"], "target": ["b", "c"], "weight": [2, 3]}, ids, silent=("dead",))
    assert (e.senders.tolist(), e.weights.tolist()) == ([0], [2])
    clock = read_series({"unique_id": ["a", "a"], "ds": ["2024-01-01 00:00", "2024-01-01 01:00"], "y": [1, 2]}).clock
    e = read_edges({"source": ["a"], "target": ["b"], "start": ["2024-01-01"], "end": [""]}, ids, clock=clock)
    assert e.start.tolist() == [1704067200.0] and e.end.tolist() == [np.inf]


def test_tables_go_out_as_they_came(tmp_path):
    r = read_series(pl.DataFrame({"unique_id": ["a", "a"], "ds": [1, 2], "y": [1.0, 2.0]}))
    columns = {"unique_id": np.array(["a", "b"], dtype=object), "ds": r.stamps, "mean": np.array([1.5, np.nan])}
    out = make_frame(columns, r.clock, read_table(pl.DataFrame({"x": [1]})).backend)
    assert isinstance(out, pl.DataFrame) and out["unique_id"].to_list() == ["a", "b"]
    write_table(tmp_path / "o.csv", columns, r.clock)
    assert (tmp_path / "o.csv").read_text() == "unique_id,ds,mean\na,1,1.5\nb,2,\n"
    write_table(tmp_path / "o.parquet", columns, r.clock)
    assert pd.read_parquet(tmp_path / "o.parquet")["mean"].tolist()[0] == 1.5


def test_later_readings_join_earlier_ones():
    first = read_series({"unique_id": ["a", "b"], "ds": [0, 1], "y": [1, 2]})
    later = read_series({"unique_id": ["b", "b"], "ds": [1, 3], "y": [5, 6]}, clock=first.clock)
    both = join(first, later.with_sensors(first.ids))
    assert both.stamps.tolist() == [0, 1, 3]
    np.testing.assert_array_equal(both.values[..., 0], [[1, np.nan], [np.nan, 5], [np.nan, 6]])


@pytest.mark.parametrize(
    "columns, message",
    [
        ({"ds": [1, 2], "y": ["1", "x"]}, "row 1, column y: expected a number, got 'x'"),
        ({"unique_id": ["a"], "ds": ["2024-13-01"], "y": [1]}, "row 0, column ds: expected a date"),
        ({"unique_id": ["a", ""], "ds": [1, 2], "y": [1, 2]}, "row 1, column unique_id: expected a name"),
    ],
)
def test_frames_are_refused_by_row(columns, message):
    with pytest.raises(InputError, match=message):
        read_series(columns)
