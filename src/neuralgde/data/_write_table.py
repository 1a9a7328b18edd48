"""Tables that go out: a frame of the kind that came in, or a file."""

import csv
import io
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from .._errors import InputError
from .._files import replace_file
from ._clock import Clock, format_stamps

TABLE_SUFFIXES = (".csv", ".parquet", ".pq")


def check_table_file(path: str | Path) -> None:
    """Refuse a file that could not be written, before the work: "-" is standard output."""
    if str(path) == "-":
        return
    path = Path(path)
    if path.suffix.lower() not in TABLE_SUFFIXES:
        raise InputError(f"{path}: expected a name that ends in {' or '.join(TABLE_SUFFIXES[:2])}.")
    if path.is_dir():
        raise InputError(f"{path}: expected a file, but this is a folder. Add a file name to it.")
    if path.suffix.lower() != ".csv":
        _parquet(path)


def make_frame(columns: Mapping[str, Any], clock: Clock, backend: Any, stamps: str = "ds") -> Any:
    """A frame with those columns, by the library that `backend` names; without one, a dictionary of arrays.

    The column `stamps` holds seconds or numbers, as the clock has them.
    """
    columns = {name: _dates(values, clock) if name == stamps else values for name, values in columns.items()}
    if backend is None:
        return columns
    import narwhals as nw

    frame = nw.from_dict({k: v.tolist() if v.dtype.kind in "UO" else v for k, v in columns.items()}, backend=backend)
    if clock.zone is not None and stamps in columns:
        moved = nw.col(stamps).dt.replace_time_zone("UTC").dt.convert_time_zone(clock.frame_zone)
        frame = frame.with_columns(moved)
    return frame.to_native()


def write_table(path: str | Path, columns: Mapping[str, Any], clock: Clock, stamps: str = "ds") -> None:
    """Write a table to a file, whole or not at all, or as CSV to standard output."""
    if str(path) != "-" and Path(path).suffix.lower() != ".csv":
        pyarrow = _parquet(Path(path))
        buffer = io.BytesIO()
        pyarrow.parquet.write_table(make_frame(columns, clock, "pyarrow", stamps), buffer)
        _replace(Path(path), buffer.getvalue())
        return
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    shown = [
        format_stamps(values, clock) if name == stamps else _cells(values) for name, values in columns.items()
    ]  # fmt: skip
    writer.writerows(zip(*shown, strict=True))
    if str(path) == "-":
        sys.stdout.write(text.getvalue())
        sys.stdout.flush()
    else:
        _replace(Path(path), text.getvalue().encode())


def _replace(path: Path, content: bytes) -> None:
    try:
        replace_file(path, lambda file: file.write(content))
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror}.") from error


def _cells(values: np.ndarray) -> list[str]:
    values = np.asarray(values)
    if values.dtype.kind != "f":
        return [str(v) for v in values.tolist()]
    return ["" if v != v else f"{v:.6g}" for v in values.tolist()]


def _dates(values: np.ndarray, clock: Clock) -> np.ndarray:
    """Seconds as datetime64, of the wall clock where there is no zone and of UTC where there is."""
    return np.round(values * 1e6).astype("datetime64[us]") if clock.dates else values


def _parquet(path: Path) -> Any:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise InputError(
            f"{path}: writing Parquet needs pyarrow, which is not installed. Install it (pip install pyarrow), or take "
            "a name that ends in .csv."
        ) from None
    return pyarrow
