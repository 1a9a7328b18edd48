"""Freeway traffic as two tables: a long one of readings and one of edges."""

import csv
from pathlib import Path

import numpy as np

from .._errors import InputError
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
    names, times = run.network.names, np.datetime_as_string(run.times, unit="s")
    try:
        series.parent.mkdir(parents=True, exist_ok=True)
        with series.open("w", newline="") as file:
            table = csv.writer(file, lineterminator="\n")
            table.writerow(SERIES_COLUMNS)
            for name, speeds in zip(names, run.speeds.T, strict=True):
                table.writerows(
                    (name, time, f"{y:.2f}") for time, y in zip(times, speeds, strict=True) if not np.isnan(y)
                )
        with edges.open("w", newline="") as file:
            table = csv.writer(file, lineterminator="\n")
            table.writerow(EDGES_COLUMNS)
            for (i, j), weight in zip(run.network.neighbours, run.network.closeness, strict=True):
                table.writerow((names[i], names[j], f"{weight:.6f}"))
                table.writerow((names[j], names[i], f"{weight:.6f}"))
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror}.") from error
    return series, edges
