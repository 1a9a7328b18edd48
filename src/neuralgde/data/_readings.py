"""Readings: what the sensors of a user's table have shown, on one axis of time."""

import dataclasses
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from ._clock import Clock


@dataclasses.dataclass(frozen=True)
class Columns:
    """The names of a table's columns: of sensors, stamps and values, of what is known in advance, and of what stays.

    None is found out by looking at the table. `layout` is "long", "wide" (a column a sensor) or "matrix" (no names).
    """

    id: str | None = None
    time: str | None = None
    values: tuple[str, ...] = ()
    known: tuple[str, ...] = ()
    static: tuple[str, ...] = ()
    layout: str | None = None


@dataclasses.dataclass(frozen=True)
class Readings:
    """Readings of sensors at increasing stamps, NaN where there is none.

    - `stamps` (rows,): as the clock has them, all sensors' together.
    - `values` (rows, sensors, variables). `known` (rows, sensors, channels): known in advance, NaN where not given.
    - `static` (sensors, channels): what does not change.
    - `columns`: what the table called them. `notes`: what the user has to know of what was done with the table.
    - `silent`: the names of sensors that the table has, but no reading of.
    - `end`: where the table ends, for errors.
    """

    ids: tuple[str, ...]
    columns: Columns
    clock: Clock
    stamps: Float[np.ndarray, " rows"]
    values: Float[np.ndarray, "rows sensors variables"]
    known: Float[np.ndarray, "rows sensors known"]
    static: Float[np.ndarray, "sensors static"]
    notes: tuple[str, ...] = ()
    silent: tuple[str, ...] = ()
    end: str = "series"

    @property
    def variables(self) -> tuple[str, ...]:
        """The names of what is forecast."""
        return self.columns.values or ("y",)

    def rows(self, chosen: slice | np.ndarray) -> "Readings":
        """Some of the rows, in order."""
        return dataclasses.replace(
            self, stamps=self.stamps[chosen], values=self.values[chosen], known=self.known[chosen]
        )

    def seen(self) -> "Readings":
        """The rows with a reading of any sensor."""
        return self.rows(np.flatnonzero(~np.isnan(self.values).all(axis=(1, 2))))

    def before(self, stamp: float) -> "Readings":
        """The rows before a stamp."""
        return self.rows(np.flatnonzero(self.stamps < stamp))

    def with_sensors(self, ids: Sequence[str]) -> "Readings":
        """Those sensors, in that order, with nothing seen of those that are not here."""
        place = {name: i for i, name in enumerate(self.ids)}
        have = np.array([place.get(name, -1) for name in ids])
        values, known = (np.where((have < 0)[:, None], np.nan, a[:, have]) for a in (self.values, self.known))
        static = np.where((have < 0)[:, None], np.nan, self.static[have])
        return dataclasses.replace(self, ids=tuple(ids), values=values, known=known, static=static)


def join(first: Readings, later: Readings) -> Readings:
    """Readings of the same sensors one after the other; where both have a stamp, what the later has counts."""
    stamps = np.union1d(first.stamps, later.stamps)
    parts = []
    for name in ("values", "known"):
        a, b = getattr(first, name), getattr(later, name)
        out = np.full((len(stamps), *a.shape[1:]), np.nan)
        out[np.searchsorted(stamps, first.stamps)] = a
        at = np.searchsorted(stamps, later.stamps)
        out[at] = np.where(np.isnan(b), out[at], b)
        parts.append(out)
    static = np.where(np.isnan(first.static), later.static, first.static)
    notes = tuple(dict.fromkeys((*first.notes, *later.notes)))
    return dataclasses.replace(
        first, stamps=stamps, values=parts[0], known=parts[1], static=static, notes=notes, end=later.end
    )
