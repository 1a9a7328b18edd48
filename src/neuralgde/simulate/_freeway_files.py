"""Freeway traffic as two tables: a long one of readings and one of edges."""

import csv
import io
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import numpy as np

from .._errors import InputError
from .._files import replace_file
from ._freeway import FreewayRun

SERIES_COLUMNS = ("unique_id", "ds", "y")
EDGES_COLUMNS = ("source", "target", "weight")


def freeway_files(path: str | Path) -> tuple[Path, Path]:
    """The names of both tables: the one given, and the same with `-edges` before its suffix."""
    path = Path(path)
    if path.suffix.lower() != ".csv":
        raise InputError(f"{path}: expected a name that ends in .csv.")
    if path.is_dir():
        raise InputError(f"{path}: expected a file, but this is a folder. Add a file name to it.")
    return path, path.with_name(f"{path.stem}-edges{path.suffix}")


def write_freeway(run: FreewayRun, path: str | Path) -> tuple[Path, Path]:
    """Write the readings (unique_id, ds, y), sensor after sensor, without those that are missing, and the edges.

    An edge (source, target, weight) joins sensors that follow each other along a road, in both directions, with their
    closeness as weight. Returns the names of both files.
    """
    series, edges = freeway_files(path)
    try:
        replace_file(series, lambda file: _write_rows(file, SERIES_COLUMNS, _readings(run)))
        replace_file(edges, lambda file: _write_rows(file, EDGES_COLUMNS, _edges(run)))
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror}.") from error
    return series, edges


def _write_rows(file: IO[bytes], columns: tuple[str, ...], rows: Iterator[tuple[str, ...]]) -> None:
    with io.TextIOWrapper(file, encoding="utf-8", newline="") as text:
        table = csv.writer(text, lineterminator="\n")
        table.writerow(columns)
        table.writerows(rows)


def _readings(run: FreewayRun) -> Iterator[tuple[str, ...]]:
    times = np.datetime_as_string(run.times, unit="s")
    for name, speeds in zip(run.network.names, run.speeds.T, strict=True):
        yield from ((name, time, f"{y:.2f}") for time, y in zip(times, speeds, strict=True) if not np.isnan(y))


def _edges(run: FreewayRun) -> Iterator[tuple[str, ...]]:
    names = run.network.names
    for (i, j), weight in zip(run.network.neighbours, run.network.closeness, strict=True):
        yield names[i], names[j], f"{weight:.6f}"
        yield names[j], names[i], f"{weight:.6f}"
