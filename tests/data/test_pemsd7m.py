"""PeMSD7(M): reading on small files of the same form, and the real days where they are to be had."""

import gzip
import hashlib
import zipfile

import numpy as np
import pytest

from neuralgde import InputError
from neuralgde.data import DataError, _pemsd7m, cache_dir, load_pemsd7m

RNG = np.random.default_rng(0)
SPEEDS = np.round(RNG.uniform(10, 70, (3 * 288, 4)), 1)
D = np.abs(np.arange(4)[:, None] - np.arange(4)) * 1000.0


def table(values) -> bytes:
    return "\n".join(",".join(map(str, row)) for row in values).encode()


def blob(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / "data" / "pemsd7m"
    path.mkdir(parents=True)
    (path / "W_228.csv.gz").write_bytes(gzip.compress(table(D)))
    return path


def test_all_days(folder):
    (folder / "V_228.csv").write_bytes(table(SPEEDS))
    series = load_pemsd7m(folder)
    np.testing.assert_array_equal(series.values, SPEEDS)
    np.testing.assert_array_equal(series.distances, D)
    assert series.dates.astype(str).tolist() == ["2012-05-01", "2012-05-02", "2012-05-03"]
    assert series.sensors == ("0", "1", "2", "3") and series.slots == 288


def test_some_days_keep_their_dates(folder):
    # Days 3 and 4 are a Friday and the Monday after it.
    (folder / "speed_days03-04_576x4.csv.gz").write_bytes(gzip.compress(table(SPEEDS[288:])))
    (folder / "speed_days00-00_288x4.csv").write_bytes(table(SPEEDS[:288]))
    (folder / "PeMSD7_M_Station_Info.csv").write_text(",ID,Fwy\n0,71,5\n1,72,5\n2,73,5\n3,74,5\n")
    series = load_pemsd7m(folder)
    np.testing.assert_array_equal(series.values, SPEEDS)
    assert series.dates.astype(str).tolist() == ["2012-05-01", "2012-05-04", "2012-05-07"]
    assert series.sensors == ("71", "72", "73", "74")


def test_empty_cells_are_missing(folder):
    (folder / "V_228.csv").write_bytes(table(SPEEDS[:288]).replace(str(SPEEDS[0, 1]).encode(), b"", 1))
    values = load_pemsd7m(folder).values
    assert np.isnan(values[0, 1]) and np.isnan(values).sum() == 1


def test_download_is_checked_and_kept(tmp_path, monkeypatch):
    files = {"V_228.csv": table(SPEEDS), "W_228.csv": table(D)}
    with zipfile.ZipFile(tmp_path / "full.zip", "w") as archive:
        for name, content in files.items():
            archive.writestr(f"PeMSD7_Full/{name}", content)
            archive.writestr(f"__MACOSX/PeMSD7_Full/{name}", b"junk")
    monkeypatch.setattr(_pemsd7m, "_URL", (tmp_path / "full.zip").as_uri())
    with pytest.raises(DataError, match="not the file that was published"):
        load_pemsd7m()
    ids = {name: blob(content) for name, content in files.items()}
    monkeypatch.setattr(_pemsd7m, "_BLOBS", {**ids, "PeMSD7_Full.zip": blob((tmp_path / "full.zip").read_bytes())})
    np.testing.assert_array_equal(load_pemsd7m().values, SPEEDS)
    (tmp_path / "full.zip").unlink()
    np.testing.assert_array_equal(load_pemsd7m(download=False).distances, D)
    # What the archive holds is checked too, whoever put it there.
    monkeypatch.setitem(_pemsd7m._BLOBS, "W_228.csv", "0" * 40)
    with pytest.raises(DataError, match=r"git blob id of its W_228\.csv"):
        load_pemsd7m()
    (cache_dir() / "pemsd7m" / "PeMSD7_Full.zip").write_bytes(b"no archive")
    with pytest.raises(DataError, match="cannot be read"):
        load_pemsd7m()


def test_nothing_to_be_had():
    with pytest.raises(DataError, match="download=True.*simulate_freeway"):
        load_pemsd7m(download=False)


@pytest.mark.parametrize(
    "files, message",
    [
        ({}, "path: .* has no speeds"),
        ({"V_228.csv": table(SPEEDS[:100])}, "288 rows for each day, got 100"),
        ({"V_228.csv": b"1,2\n3,x"}, "rows of numbers"),
        ({"V_228.csv": table(SPEEDS[:, :3])}, r"distances of 3 stations, got a table of shape \(4, 4\)"),
        ({"speed_days00-01_288x4.csv": table(SPEEDS[:288])}, "expected 2 days, as the name says"),
        (
            {"speed_days00-00_1x4.csv": table(SPEEDS[:288]), "speed_days00-00_2x4.csv": table(SPEEDS[:288])},
            "expected days after day 0",
        ),
        (
            {"speed_days00-00_1x4.csv": table(SPEEDS[:288]), "speed_days01-01_1x3.csv": table(SPEEDS[:288, :3])},
            "expected 4 stations, as in other files, got 3",
        ),
        ({"V_228.csv.gz": b"no gzip"}, "cannot be read"),
        (
            {"V_228.csv": table(SPEEDS[:288]), "PeMSD7_M_Station_Info.csv": b",ID\n0,71\n"},
            "a line for each of 4 stations, got 1",
        ),
    ],
)
def test_files_that_do_not_fit(folder, files, message):
    for name, content in files.items():
        (folder / name).write_bytes(content)
    with pytest.raises(InputError, match=message):
        load_pemsd7m(folder)


def test_without_distances(folder):
    (folder / "W_228.csv.gz").unlink()
    (folder / "V_228.csv").write_bytes(table(SPEEDS))
    with pytest.raises(InputError, match=r"W_228\.csv: there is no such file"):
        load_pemsd7m(folder)


@pytest.mark.data
def test_pemsd7m(data_dir):
    series = load_pemsd7m(data_dir / "pemsd7m")
    days, readings = len(series.dates), series.values
    assert days >= 34 and readings.shape == (days * 288, 228)
    assert series.dates[:34].astype(str).tolist()[23:] == [
        "2012-06-01", *(f"2012-06-{d:02d}" for d in (*range(4, 9), *range(11, 16)))
    ]  # fmt: skip
    first = readings[: 34 * 288]
    assert (first.min(), first.max()) == (3.0, 82.6)
    assert first.mean() == pytest.approx(59.06, abs=0.01) and first.std() == pytest.approx(13.46, abs=0.01)
    assert series.sensors[0] == "716939"
    assert series.graph().num_edges == pytest.approx(0.4 * 228 * 227, rel=1e-3)
    # Speeds fall in the evening of weekdays, not at night.
    profile = series.profile().mean(1)
    assert profile[17 * 12] < 52 and profile[3 * 12] > 62
