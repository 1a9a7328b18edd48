"""PeMSD7(M): traffic speeds at 228 stations of Los Angeles freeways (Yu, Yin and Zhu 2018; Caltrans PeMS)."""

import csv
import gzip
import hashlib
import io
import re
import zipfile
from pathlib import Path

import numpy as np

from .._errors import InputError
from ._download import DataError, Progress, data_folders, fetch
from ._sensors import SensorSeries

_URL = "https://raw.githubusercontent.com/VeritasYin/STGCN_IJCAI-18/master/dataset/PeMSD7_Full.zip"
_ZIP = "PeMSD7_Full.zip"
_FOLDER = "pemsd7m"
# The publisher's names, and the git blob ids of the files.
_BLOBS = {
    _ZIP: "cdd7a6f80f6a33826bf25646e21d68cf0420b584",
    "V_228.csv": "2a76cb181e8e917c5d9b85891d26614981024fab",
    "W_228.csv": "319f1ad20592bb619021148545520decbd1303b0",
}
_STATIONS = "PeMSD7_M_Station_Info.csv"
_SOME_DAYS = re.compile(r"speed_days(\d+)-(\d+)_\d+x\d+\.csv(\.gz)?")
_SLOTS = 288
# The days are the weekdays of May and June 2012, Memorial Day among them.
_FIRST_DATE = np.datetime64("2012-05-01")


def load_pemsd7m(
    path: str | Path | None = None, download: bool = True, *, progress: Progress | None = None
) -> SensorSeries:
    """PeMSD7(M): speeds in mph every 5 minutes on 44 weekdays from 2012-05-01, and distances in metres.

    `path` is a folder. Without it `$NEURALGDE_DATA/pemsd7m` and the cache are looked into; if neither has the files,
    they are downloaded from their publisher and checked, or are a `DataError` with `download=False`. A folder has the
    publisher's `PeMSD7_Full.zip`, or `V_228.csv` and `W_228.csv`; in place of `V_228.csv` also files of some of the
    days, such as `speed_days00-33_9792x228.csv` for the first 34. Tables may end in `.gz`. If there is
    `PeMSD7_M_Station_Info.csv`, it has the stations' names.
    """
    folder = _folder(path, download, progress)
    if (folder / _ZIP).is_file():
        speeds, distances = (_read(*_zipped(folder / _ZIP, name)) for name in ("V_228.csv", "W_228.csv"))
        days = np.arange(len(speeds) // _SLOTS)
    else:
        days, speeds = _speeds(folder)
        distances = _read(*_plain(_named(folder, "W_228.csv")))
    if speeds.shape[1:] != distances.shape[1:] or len(distances) != speeds.shape[1]:
        raise InputError(
            f"{folder}: expected the distances of {speeds.shape[1]} stations, got a table of shape {distances.shape}."
        )
    dates = np.busday_offset(_FIRST_DATE, days)
    names = _stations(folder / _STATIONS, speeds.shape[1])
    return SensorSeries(speeds, dates, distances, names, "PeMSD7(M)")


def _folder(path: str | Path | None, download: bool, progress: Progress | None) -> Path:
    """The folder to read: the one given, else the first that has speeds, else the cache after a download."""
    if path is not None:
        if not _has_speeds(Path(path)):
            raise InputError(
                f"path: expected a folder with {_ZIP}, or V_228.csv and W_228.csv, but {str(path)!r} has no speeds."
            )
        return Path(path)
    for folder in data_folders():
        if _has_speeds(folder / _FOLDER):
            return folder / _FOLDER
    if not download:
        raise DataError(
            f"there is no {_FOLDER} in the folder NEURALGDE_DATA or the cache. Allow download=True, give `path`, or "
            "use simulate_freeway() in its place."
        )
    return fetch(_URL, f"{_FOLDER}/{_ZIP}", git_blob=_BLOBS[_ZIP], progress=progress).parent


def _has_speeds(folder: Path) -> bool:
    return folder.is_dir() and any(
        path.name in (_ZIP, "V_228.csv", "V_228.csv.gz") or _SOME_DAYS.fullmatch(path.name) for path in folder.iterdir()
    )


def _speeds(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """The numbers of the days that the files of a folder have, and their readings."""
    found = sorted((int(m[1]), int(m[2]), path) for path in folder.iterdir() if (m := _SOME_DAYS.fullmatch(path.name)))
    if not found or _named(folder, "V_228.csv").is_file():
        path = _named(folder, "V_228.csv")
        values = _read(*_plain(path))
        return np.arange(_whole_days(values, path)), values
    days, parts = [], []
    for first, last, path in found:
        values = _read(*_plain(path))
        if _whole_days(values, path) != last - first + 1:
            raise InputError(f"{path}: expected {last - first + 1} days, as the name says, got {len(values)} rows.")
        if days and first <= days[-1]:
            raise InputError(f"{path}: expected days after day {days[-1]}, which another file has.")
        if parts and values.shape[1] != parts[0].shape[1]:
            raise InputError(
                f"{path}: expected {parts[0].shape[1]} stations, as in other files, got {values.shape[1]}."
            )
        days += range(first, last + 1)
        parts.append(values)
    return np.array(days), np.concatenate(parts)


def _whole_days(values: np.ndarray, path: Path) -> int:
    if len(values) % _SLOTS:
        raise InputError(f"{path}: expected {_SLOTS} rows for each day, got {len(values)} rows.")
    return len(values) // _SLOTS


def _named(folder: Path, name: str) -> Path:
    zipped = folder / f"{name}.gz"
    return zipped if zipped.is_file() else folder / name


def _plain(path: Path) -> tuple[str, bytes]:
    try:
        content = path.read_bytes()
        return str(path), gzip.decompress(content) if path.suffix == ".gz" else content
    except FileNotFoundError:
        raise InputError(f"{path}: there is no such file. It comes with the speeds; get it too.") from None
    except (OSError, EOFError) as error:
        raise InputError(f"{path}: cannot be read: {error}. Get the file again.") from error


def _zipped(path: Path, name: str) -> tuple[str, bytes]:
    """A file of the publisher's archive, checked."""
    try:
        with zipfile.ZipFile(path) as archive:
            members = [m for m in archive.namelist() if m.rsplit("/")[-1] == name and "__MACOSX" not in m]
            content = archive.read(members[0]) if members else None
    except (OSError, zipfile.BadZipFile) as error:
        raise DataError(f"{path}: cannot be read: {error}. Delete it, and it will be downloaded again.") from error
    if content is None:
        raise DataError(f"{path}: expected the publisher's archive with {name}, which this one does not have.")
    blob = hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()
    if blob != _BLOBS[name]:
        raise DataError(f"{path}: the git blob id of its {name} is {blob}, expected {_BLOBS[name]}. Get it again.")
    return f"{path}: {name}", content


def _read(name: str, content: bytes) -> np.ndarray:
    """A table of numbers; empty cells are NaN."""
    try:
        text = content.decode("ascii")
        return np.loadtxt(io.StringIO(text), delimiter=",", ndmin=2, converters=_number)
    except (ValueError, UnicodeDecodeError) as error:
        raise InputError(f"{name}: expected rows of numbers separated by commas, got {error}.") from error


def _number(cell: str) -> float:
    return float(cell or "nan")


def _stations(path: Path, count: int) -> tuple[str, ...]:
    if not path.is_file():
        return tuple(str(i) for i in range(count))
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    if len(rows) != count or "ID" not in rows[0]:
        raise InputError(
            f"{path}: expected a column ID and a line for each of {count} stations, got {len(rows)} lines."
        )
    return tuple(row["ID"] for row in rows)
