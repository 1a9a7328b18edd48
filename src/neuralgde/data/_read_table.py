"""Reading tables: CSV by Python's own module, Parquet by pyarrow where it is installed, frames through narwhals.

A CSV is read here, and not by a library of frames, because errors have to name the line, and because it must work where
none of those libraries is installed.
"""

import csv
import gzip
import io
import itertools
import sys
from pathlib import Path
from typing import Any

import numpy as np

from .._errors import InputError
from ._table import Table, is_number

_ROWS_AT_ONCE = 50_000
_DELIMITERS = (",", ";", "\t")


def read_table(source: Any, name: str = "table") -> Table:
    """The table in a file (.csv, .csv.gz, .tsv, .parquet, or "-" for standard input), or in a frame.

    Frames are those of pandas, polars and whatever else narwhals knows; a dictionary of columns will do too. `name` is
    what a frame is called in errors.
    """
    if isinstance(source, Table):
        return source
    if isinstance(source, str | Path):
        return _from_file(source)
    if isinstance(source, dict):
        columns = {str(k): np.asarray(v) for k, v in source.items()}
        lengths = {k: len(v) for k, v in columns.items()}
        if len(set(lengths.values())) > 1:
            raise InputError(f"{name}: expected columns of one length, got {lengths}.")
        return _checked(Table(columns, name))
    return _from_frame(source, name)


def _from_file(path: str | Path) -> Table:
    if str(path) == "-":
        return _parse_csv(sys.stdin.read(), "standard input")
    path = Path(path)
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise InputError(f"{path}: there is no such file. Check the name and the folder.") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}.") from error
    if path.suffix.lower() in (".parquet", ".pq"):
        return _parse_parquet(content, path)
    if path.suffix.lower() == ".gz":
        try:
            content = gzip.decompress(content)
        except (OSError, EOFError) as error:
            raise InputError(f"{path}: not a whole gzip file ({error}). Fetch or compress it again.") from error
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise InputError(
            f"{path}, line {line}: not UTF-8 text (byte {error.start}). Save the table as CSV in UTF-8."
        ) from None
    return _parse_csv(text, str(path))


def _parse_csv(text: str, source: str) -> Table:
    first_line = next((line for line in text.splitlines() if line.strip()), "")
    if not first_line:
        raise InputError(f"{source}, line 1: the table is empty. Expected a line with the columns' names, then rows.")
    delimiter = max(_DELIMITERS, key=first_line.count)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    cells = next(row for row in reader if row)
    header = not all(_plain_number(cell) for cell in cells)
    names = [cell.strip() for cell in cells] if header else [str(i) for i in range(len(cells))]
    start = reader.line_num
    blocks, lines = [], []
    pending = [] if header else [(start, cells)]
    rows = itertools.chain(pending, ((reader.line_num, row) for row in reader if row))
    try:
        while block := list(itertools.islice(rows, _ROWS_AT_ONCE)):
            for line, row in block:
                if len(row) != len(names):
                    raise InputError(
                        f"{source}, line {line}, column {min(len(row), len(names)) + 1}: expected {len(names)} cells, "
                        f"as the first line has, got {len(row)}. Look for a missing or an unquoted {delimiter!r}."
                    )
            lines.append(np.array([line for line, _ in block]))
            blocks.append([np.array(column) for column in zip(*(row for _, row in block), strict=True)])
    except csv.Error as error:
        raise InputError(f"{source}, line {reader.line_num}: not CSV ({error}). Look at its quotes.") from None
    if not blocks:
        raise InputError(f"{source}, line {start + 1}: there are no rows after the columns' names. Add readings.")
    columns = [np.concatenate([block[i] for block in blocks]) for i in range(len(names))]
    if delimiter != ",":
        columns = [_decimal_points(column) for column in columns]
    _check_names(names, source, start)
    return _checked(Table(dict(zip(names, columns, strict=True)), source, np.concatenate(lines), header))


def _plain_number(cell: str) -> bool:
    """A number, or nothing: what may stand in the first line of a matrix without names."""
    try:
        float(cell)
    except ValueError:
        return not cell.strip()
    return True


def _decimal_points(column: np.ndarray) -> np.ndarray:
    """A column whose numbers have decimal commas, as tables that are cut by semicolons do, with points; else itself."""
    if not (np.char.find(column, ",") >= 0).any():
        return column
    points = np.char.replace(column, ",", ".")
    return points if all(is_number(cell) for cell in points.tolist()) else column


def _check_names(names: list[str], source: str, line: int) -> None:
    for i, name in enumerate(names):
        if not name:
            # Writers of frames leave the name of the index out.
            names[i] = "index" if i == 0 else ""
        if not names[i] or names[i] in names[:i]:
            what = f"the name {name!r} again" if name else "a column without a name"
            raise InputError(
                f"{source}, line {line}, column {i + 1}: expected names that differ, got {what}. Rename or drop it."
            )


def _parse_parquet(content: bytes, path: Path) -> Table:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise InputError(
            f"{path}: reading Parquet needs pyarrow, which is not installed. Install it (pip install pyarrow), or save "
            "the table as CSV."
        ) from None
    try:
        frame = pyarrow.parquet.read_table(io.BytesIO(content))
    except (pyarrow.ArrowException, OSError) as error:
        raise InputError(f"{path}: not a Parquet file ({error}). Write it again.") from error
    table = _from_frame(frame, str(path))
    return Table(table.columns, table.source, zones=table.zones)


def _from_frame(frame: Any, name: str) -> Table:
    import narwhals as nw

    try:
        frame = nw.from_native(frame, eager_only=True)
    except TypeError as error:
        raise InputError(
            f"{name}: expected a frame of pandas or polars, a dictionary of columns, or the name of a file, got "
            f"{type(frame).__name__}."
        ) from error
    columns, zones = {}, {}
    for column in frame.columns:
        series = frame[column]
        dtype = series.dtype
        if isinstance(dtype, nw.Datetime | nw.Date):
            if isinstance(dtype, nw.Datetime) and dtype.time_zone:
                zones[str(column)] = dtype.time_zone
                series = series.dt.convert_time_zone("UTC").dt.replace_time_zone(None)
            columns[str(column)] = series.to_numpy().astype("datetime64[us]")
        elif dtype.is_numeric():
            columns[str(column)] = series.cast(nw.Float64()).to_numpy() if not dtype.is_integer() else _whole(series)
        else:
            columns[str(column)] = np.array(["" if v is None or v != v else str(v) for v in series.to_list()])
    if len(set(columns)) < len(frame.columns):
        raise InputError(f"{name}: expected columns with names that differ, got {frame.columns}.")
    return _checked(Table(columns, name, zones=zones, backend=frame.implementation))


def _whole(series: Any) -> np.ndarray:
    import narwhals as nw

    return series.cast(nw.Float64()).to_numpy() if series.is_null().any() else series.to_numpy()


def _checked(table: Table) -> Table:
    if not table.columns or not len(table):
        raise InputError(f"{table.source}: the table is empty. Expected rows of readings.")
    return table
