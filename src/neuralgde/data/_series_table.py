"""A user's table of readings: its layout recognised, its rows checked, and all put on one axis of time."""

import dataclasses
from typing import Any

import numpy as np

from .._errors import InputError
from ._clock import Clock, Stamps, guess_step, make_clock, parse_date, read_stamps
from ._read_table import read_table
from ._readings import Columns, Readings
from ._table import Table

_ID_NAMES = ("unique_id", "id", "node", "sensor", "station", "detector", "node_id", "sensor_id", "station_id", "name")
_TIME_NAMES = ("ds", "time", "timestamp", "datetime", "date", "stamp", "when", "t", "index", "time_stamp", "date_time")
_VALUE_NAMES = ("y", "value", "values")
# Stamps of sensors that share none are put on a grid where there are more than so many times those of one sensor.
_MANY_STAMPS = 3
_ANY = Columns()


def read_series(
    source: Any,
    columns: Columns = _ANY,
    *,
    zone: str | None = None,
    period: float | None = None,
    clock: Clock | None = None,
) -> Readings:
    """The readings in a table: long, wide, or a matrix without names, as `Columns` says or as the table looks.

    `zone` is that of dates without one; `period` how long what repeats itself takes, by default a day for dates, or a
    week where readings are daily. With a `clock`, that of readings that these go on from, stamps have to suit it.
    """
    table = read_table(source, "series")
    columns = recognise(table, columns)
    if columns.layout == "matrix":
        rows = np.arange(len(table), dtype=float)
        stamps = Stamps(rows, False, None)
    else:
        assert columns.time is not None  # recognised
        stamps = read_stamps(table, columns.time, zone or (None if clock is None else clock.zone))
    if clock is not None:
        _check_clock(table.at(0, columns.time), stamps, clock)
    read = _long if columns.layout == "long" else _wide
    return dataclasses.replace(read(table, columns, stamps, period, clock), end=table.at(len(table) - 1, columns.time))


def has_dates(source: Any, columns: Columns = _ANY) -> bool:
    """Whether the stamps of a table are dates, as its first ones look."""
    table = read_table(source, "series")
    time = recognise(table, columns).time
    return time is not None and not table.is_numeric(time)


def recognise(table: Table, columns: Columns) -> Columns:
    """The columns of a table, with those found that were not named."""
    named = [name for name in (columns.id, columns.time, *columns.values, *columns.known, *columns.static) if name]
    for name in named:
        table[name]
    if not table.header and not named:
        return Columns(layout="matrix")
    time = columns.time or _find_time(table)
    rest = [name for name in table.names if name not in (time, *columns.known, *columns.static)]
    key = columns.id or _find_id(table, rest)
    if key is None or columns.layout == "wide":
        nodes = columns.values or tuple(name for name in rest if name != "index")
        if not nodes:
            raise InputError(
                f"{table.head(time)}: expected columns of readings beside that of stamps, got none. Add one for each "
                "sensor."
            )
        return dataclasses.replace(columns, id=None, time=time, values=nodes, layout="wide")
    others = [name for name in rest if name != key]
    values = columns.values or tuple(name for name in others if name.lower() in _VALUE_NAMES)[:1]
    values = values or tuple(name for name in others if name != "index" and table.is_numeric(name))
    if not values:
        raise InputError(
            f"{table.head(*others)}: expected a column of numbers beside the sensors in {key!r} and the stamps in "
            f"{time!r}, got none. Name it: values=, or --value."
        )
    return dataclasses.replace(columns, id=key, time=time, values=values, layout="long")


def _find_time(table: Table) -> str:
    for known in _TIME_NAMES:
        for name in table.names:
            if name.lower() == known:
                return name
    for name in table.names:
        values = table[name]
        if values.dtype.kind == "M" or (values.dtype.kind in "UO" and parse_date(str(values[0])) is not None
                                        and not table.is_numeric(name)):  # fmt: skip
            return name
    raise InputError(
        f"{table.head(*table.names[:8])}: expected one of them to hold stamps, numbers or dates such as 2024-03-31 "
        "08:05, and found none that is called so or looks so. Name it: time=, or --time."
    )


def _find_id(table: Table, names: list[str]) -> str | None:
    for known in _ID_NAMES:
        for name in names:
            if name.lower() == known:
                return name
    return next((name for name in names if table[name].dtype.kind in "UO" and not table.is_numeric(name)
                 and len(set(table[name][:200].tolist())) < len(table[name][:200])), None)  # fmt: skip


def _check_clock(where: str, stamps: Stamps, clock: Clock) -> None:
    if stamps.dates != clock.dates:
        expected, came = ("dates", "numbers") if clock.dates else ("numbers", "dates")
        raise InputError(f"{where}: expected stamps that are {expected}, as in the first table, got {came}.")
    if (stamps.zone is None) != (clock.zone is None):
        expected, came = (clock.zone or "no zone"), (stamps.zone or "no zone")
        raise InputError(f"{where}: expected stamps with {expected}, as in the first table, got {came}.")


def _long(table: Table, columns: Columns, stamps: Stamps, period: float | None, clock: Clock | None) -> Readings:
    assert columns.id is not None  # recognised
    ids, node = table.texts(columns.id)
    values = np.stack([table.numbers(name) for name in columns.values], axis=1)
    known = np.stack([table.numbers(name) for name in columns.known], axis=1) if columns.known else None
    notes = list(stamps.notes)
    extra = [n for n in table.names if n not in (columns.id, columns.time, "index", *columns.values, *columns.known,
                                                 *columns.static)]  # fmt: skip
    if extra:
        notes.append(
            f"{table.source}: the columns {', '.join(extra)} are not used. Name them known or static if wanted."
        )
    order = np.lexsort((stamps.values, node))
    t, n = stamps.values[order], node[order]
    dropped = _duplicates(table, columns, order, stamps.values, node, values)
    if dropped:
        notes.append(f"{table.source}: {dropped} row(s) stand twice with the same readings and count once.")
    if clock is None:
        per_sensor = np.split(t, np.flatnonzero(np.diff(n)) + 1)
        clock = make_clock(stamps, guess_step(per_sensor), period)
    times = stamps.values
    most = int(np.bincount(node).max())
    if len(ids) > 1 and len(np.unique(times)) > _MANY_STAMPS * most:
        times = np.round(times / clock.step) * clock.step
        notes.append(
            f"{table.source}: sensors are read at times of their own; stamps are rounded to {clock.say(clock.step)}."
        )
    unique, row = np.unique(times, return_inverse=True)
    shape = (len(unique), len(ids))
    out = _placed(values[order], row[order], n, shape)
    known_out = _placed(np.empty((len(order), 0)) if known is None else known[order], row[order], n, shape)
    static = _static(table, columns, node, len(ids))
    readings = Readings(tuple(ids), columns, clock, unique, out, known_out, static, tuple(notes))
    return _checked(table, readings)


def _placed(values: np.ndarray, row: np.ndarray, node: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    """Each column of values on the grid: of two in one place the later one stays, and what is missing covers none."""
    out = np.full((*shape, values.shape[1]), np.nan)
    for v in range(values.shape[1]):
        there = ~np.isnan(values[:, v])
        out[row[there], node[there], v] = values[there, v]
    return out


def _duplicates(
    table: Table, columns: Columns, order: np.ndarray, stamps: np.ndarray, node: np.ndarray, values: np.ndarray
) -> int:
    """How many rows stand twice; those that contradict each other are refused."""

    def pairs(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        first, second = rows[:-1], rows[1:]
        same = (stamps[first] == stamps[second]) & (node[first] == node[second])
        return first[same], second[same]

    for v, name in enumerate(columns.values):
        first, second = pairs(order[~np.isnan(values[order, v])])
        if bad := np.flatnonzero(values[first, v] != values[second, v])[:1].tolist():
            one, two = int(first[bad[0]]), int(second[bad[0]])
            where = "row" if table.lines is None else "line"
            other = one if table.lines is None else table.lines[one]
            raise InputError(
                f"{table.at(two, name)}: sensor {table[columns.id or ''][two]} has another reading at the same stamp "
                f"in {where} {other}: {values[one, v]:g}, then {values[two, v]:g}. Keep one of them, or their mean."
            )
    first, second = pairs(order)
    alike = (values[first] == values[second]) | (np.isnan(values[first]) & np.isnan(values[second]))
    return int(alike.all(axis=1).sum())


def _static(table: Table, columns: Columns, node: np.ndarray, sensors: int) -> np.ndarray:
    out = np.full((sensors, len(columns.static)), np.nan)
    for k, name in enumerate(columns.static):
        values = table.numbers(name)
        there = ~np.isnan(values)
        out[node[there][::-1], k] = values[there][::-1]
        changed = there & (values != out[node, k])
        if bad := np.flatnonzero(changed)[:1].tolist():
            raise InputError(
                f"{table.at(bad[0], name)}: a static column stays the same for a sensor, but has "
                f"{out[node[bad[0]], k]:g} and {values[bad[0]]:g}. Name it known, if it is known in advance."
            )
    return out


def _wide(table: Table, columns: Columns, stamps: Stamps, period: float | None, clock: Clock | None) -> Readings:
    names = table.names if columns.layout == "matrix" else list(columns.values)
    values = np.stack([table.numbers(name) for name in names], axis=1)
    order = np.argsort(stamps.values, kind="stable")
    if bad := np.flatnonzero(np.diff(stamps.values[order]) == 0)[:1].tolist():
        row = int(order[bad[0] + 1])
        where = f"line {table.lines[order[bad[0]]]}" if table.lines is not None else f"row {order[bad[0]]}"
        raise InputError(f"{table.at(row, columns.time)}: the same stamp as in {where}. Keep one of the two.")
    t = stamps.values[order]
    clock = clock or make_clock(stamps, guess_step([t]), period)
    known = np.empty((len(t), len(names), 0))
    if columns.known:
        per_row = np.stack([table.numbers(name) for name in columns.known], axis=1)[order]
        known = np.repeat(per_row[:, None], len(names), axis=1)
    if columns.static:
        raise InputError(
            "static: a table with a column a sensor has no room for them. Give the readings as a long table."
        )
    columns = dataclasses.replace(columns, values=())
    readings = Readings(
        tuple(names), columns, clock, t, values[order][..., None], known, np.empty((len(names), 0)), stamps.notes
    )
    return _checked(table, readings)


def _checked(table: Table, readings: Readings) -> Readings:
    """The readings without sensors that have none; refused where nothing is left."""
    there = ~np.isnan(readings.values)
    if not there.any():
        name = readings.columns.values[0] if readings.columns.values else None
        raise InputError(f"{table.at(0, name)}: there is no reading in the whole table. Check the columns of values.")
    seen = np.asarray(there.any(axis=(0, 2)))
    notes = list(readings.notes)
    if not seen.all():
        notes.append(f"{table.source}: no reading of {_names(readings.ids, ~seen)}: left out.")
        silent = tuple(readings.ids[i] for i in np.flatnonzero(~seen).tolist())
        readings = readings.with_sensors([name for name in readings.ids if name not in silent])
        readings = dataclasses.replace(readings, silent=silent)
    size = np.nanmax(readings.values, axis=(0, 2)) - np.nanmin(readings.values, axis=(0, 2))
    still = np.asarray((size == 0) & (np.isfinite(readings.values).sum(axis=(0, 2)) > 2))
    if still.any() and readings.values.shape[2] == 1:
        notes.append(f"{table.source}: always the same reading of {_names(readings.ids, still)}.")
    return dataclasses.replace(readings, notes=tuple(notes))


def _names(ids: tuple[str, ...], chosen: np.ndarray) -> str:
    names = [ids[i] for i in np.flatnonzero(chosen).tolist()]
    return ", ".join(names[:5]) + (" …" if len(names) > 5 else "")
