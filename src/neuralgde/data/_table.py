"""Table: named columns with what is needed to say where in a file, or in a frame, something is wrong."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from .._errors import InputError, unknown_name

# What stands for a value that is missing, in any case.
_MISSING = ("", "na", "n/a", "nan", "null", "none", "-", "?")


@dataclasses.dataclass(frozen=True)
class Table:
    """Columns of one length: text, numbers, or dates as datetime64 in UTC.

    - `source`: what the table is called in errors.
    - `lines`: the line of each row, None where there is no file.
    - `header`: whether the columns' names come from the table itself; otherwise they are numbers from 0.
    - `zones`: the time zone of columns of dates that have one.
    - `backend`: the library of the frame that this was, None for a file: tables that go out are of the same kind.
    """

    columns: Mapping[str, np.ndarray]
    source: str
    lines: np.ndarray | None = None
    header: bool = True
    zones: Mapping[str, str] = dataclasses.field(default_factory=dict)
    backend: Any = None

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()), ()))

    def __getitem__(self, column: str) -> np.ndarray:
        if column not in self.columns:
            raise InputError(f"{self.head()}: {unknown_name('column', column, self.columns)}")
        return self.columns[column]

    @property
    def names(self) -> list[str]:
        """The names of the columns."""
        return list(self.columns)

    def at(self, row: int, column: str | None = None) -> str:
        """Where a row is, for an error: with its line in a file, with its number in a frame."""
        place = f"row {row}" if self.lines is None else f"line {self.lines[row]}"
        number = "" if column is None else f", column {int(column) + 1 if not self.header else column}"
        return f"{self.source}, {place}{number}"

    def head(self, *columns: str) -> str:
        """Where the columns' names are, for an error: in the first line of a file."""
        line = "" if self.lines is None else ", line 1"
        named = "" if not columns else f", column{'s' if len(columns) > 1 else ''} {', '.join(columns)}"
        return f"{self.source}{line}{named}"

    def numbers(self, column: str) -> np.ndarray:
        """A column as floats, NaN where it is missing."""
        values = self[column]
        if values.dtype.kind in "fiub":
            out = values.astype(float)
        elif values.dtype.kind in "mM":
            raise InputError(f"{self.head(column)}: expected numbers, got dates. Name the column of readings: values=.")
        else:
            out = self._parsed(values, column)
        if bad := np.flatnonzero(np.isinf(out))[:1].tolist():
            raise InputError(
                f"{self.at(bad[0], column)}: expected a finite number, got {values[bad[0]]}. Leave the cell empty "
                "where there is no reading."
            )
        return out

    def texts(self, column: str) -> tuple[list[str], np.ndarray]:
        """The different values of a column as text, in order of appearance, and the number of each row's."""
        values = self[column]
        if values.dtype.kind == "f" and np.all(values == np.round(values)):
            values = values.astype(np.int64)
        seen: dict[str, int] = {}
        codes = np.fromiter((seen.setdefault(v, len(seen)) for v in map(str, values.tolist())), np.int64, len(values))
        names = [name.strip() for name in seen]
        if bad := [i for i, name in enumerate(names) if name.lower() in _MISSING]:
            row = int(np.flatnonzero(codes == bad[0])[0])
            raise InputError(f"{self.at(row, column)}: expected a name, got nothing. Fill it in, or drop the row.")
        if len(set(names)) == len(names):
            return names, codes
        # Spaces around a name do not make another one.
        final = list(dict.fromkeys(names))
        place = {name: i for i, name in enumerate(final)}
        return final, np.array([place[name] for name in names])[codes]

    def is_numeric(self, column: str, rows: int = 200) -> bool:
        """Whether the first cells of a column are numbers or missing."""
        values = self[column][:rows]
        if values.dtype.kind in "fiu":
            return True
        return values.dtype.kind not in "mMb" and all(is_number(str(v)) for v in values.tolist())

    def _parsed(self, values: np.ndarray, column: str) -> np.ndarray:
        try:
            return values.astype(float)
        except (ValueError, TypeError):
            pass
        out = np.empty(len(values))
        for row, value in enumerate(values.tolist()):
            text = "" if value is None else str(value).strip()
            try:
                out[row] = np.nan if text.lower() in _MISSING else float(text)
            except ValueError:
                comma = " Write decimals with a point." if "," in text else ""
                raise InputError(
                    f"{self.at(row, column)}: expected a number, got {text!r}.{comma or ' Leave it empty if unknown.'}"
                ) from None
        return out


def is_number(text: str) -> bool:
    """Whether a cell is a number, or missing."""
    text = text.strip()
    if text.lower() in _MISSING:
        return True
    try:
        float(text)
    except ValueError:
        return False
    return True
