"""Clock: stamps of a table as numbers that models take, and back; the time of day by the user's own zone."""

import dataclasses
import datetime
import zoneinfo
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from .._errors import InputError
from ._table import Table

DAY, WEEK = 86400.0, 7 * 86400.0
# The first of January 1970 was a Thursday; weeks start on Mondays.
_MONDAY = 3 * DAY
_UTC = datetime.UTC


@dataclasses.dataclass(frozen=True)
class Clock:
    """Stamps as float64: seconds since 1970 for dates, in UTC where they have a `zone`, else the numbers themselves.

    - `step`: the usual time between two readings, in those units; models count time in it.
    - `cycle`: how long what repeats itself takes, in those units: a day, a week, or what the user says; None for none.
    - `zone`: a name such as Europe/Paris, or an offset such as +01:00, by which the time of day goes.
    """

    dates: bool
    step: float
    cycle: float | None
    zone: str | None = None

    @property
    def period(self) -> int:
        """Steps in a cycle; 1 where there is none."""
        return 1 if self.cycle is None else max(1, round(self.cycle / self.step))

    @property
    def frame_zone(self) -> str:
        """The zone as frames know it: they have names alone, and offsets become UTC."""
        return "UTC" if self.zone is None or self.zone[0] in "+-" else self.zone

    def steps(self, t: Float[np.ndarray, "*times"]) -> Float[np.ndarray, "*times"]:
        """Stamps in steps."""
        return np.asarray(t, float) / self.step

    def local(self, t: Float[np.ndarray, "*times"]) -> Float[np.ndarray, "*times"]:
        """Stamps by the wall clock of the zone."""
        t = np.asarray(t, float)
        return t if self.zone is None else t + _offsets(t, self.zone)

    def phase(self, t: Float[np.ndarray, "*times"]) -> Float[np.ndarray, "*times"]:
        """How much of its cycle each stamp has behind it, in steps below `period`; 0 is midnight, or Monday's."""
        if self.cycle is None:
            return np.zeros(np.shape(t))
        wall = self.local(t) + (_MONDAY if self.dates and self.cycle == WEEK else 0.0)
        return np.minimum(np.mod(wall, self.cycle) / self.step, np.nextafter(self.period, 0))

    def day_kind(self, t: Float[np.ndarray, "*times"]) -> np.ndarray:
        """1 on Saturdays and Sundays, 0 on other days and where days have no meaning."""
        if not self.dates or self.cycle != DAY:
            return np.zeros(np.shape(t), int)
        return (np.mod(self.local(t) + _MONDAY, WEEK) >= 5 * DAY).astype(int)

    def cycle_number(self, t: Float[np.ndarray, "*times"]) -> np.ndarray:
        """The number of the day, or of the cycle, that each stamp is in."""
        cycle = self.cycle or max(self.step * 100, 1e-300)
        wall = self.local(t) + (_MONDAY if self.dates and cycle == WEEK else 0.0)
        return np.floor(wall / cycle).astype(np.int64)

    def say(self, length: float) -> str:
        """A length of time in words."""
        if not self.dates:
            return f"{length:g}"
        for unit, name in ((DAY, "d"), (3600.0, "h"), (60.0, "min"), (1.0, "s")):
            if length >= unit:
                return f"{length / unit:.3g} {name}"
        return f"{length:.3g} s"


def _offsets(t: np.ndarray, zone: str) -> np.ndarray:
    """Seconds that the wall clock of a zone is ahead of UTC."""
    info = find_zone(zone)
    # Clocks change on the quarter of an hour at most, so stamps of the same one share their offset.
    quarters, place = np.unique(np.floor(t / 900).astype(np.int64), return_inverse=True)
    found = [datetime.datetime.fromtimestamp(q * 900, info).utcoffset() for q in quarters.tolist()]
    return np.array([0.0 if o is None else o.total_seconds() for o in found])[place].reshape(t.shape)


def find_zone(zone: str) -> datetime.tzinfo:
    """The zone of a name or an offset."""
    if zone[:1] in ("+", "-"):
        hours, _, minutes = zone[1:].partition(":")
        try:
            shift = datetime.timedelta(hours=int(hours), minutes=int(minutes or 0))
            return datetime.timezone(shift if zone[0] == "+" else -shift)
        except ValueError:
            pass
    else:
        try:
            return zoneinfo.ZoneInfo(zone)
        except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
            pass
    raise InputError(f"zone: expected a name such as Europe/Paris, or an offset such as +01:00, got {zone!r}.")


@dataclasses.dataclass(frozen=True)
class Stamps:
    """A column of stamps: as a clock has them, whether they are dates, and the zone that they name, if any."""

    values: Float[np.ndarray, " rows"]
    dates: bool
    zone: str | None
    notes: tuple[str, ...] = ()


def read_stamps(table: Table, column: str, zone: str | None = None) -> Stamps:
    """The stamps of a column: dates with or without a zone, or numbers. Dates without one are taken to be in `zone`."""
    values = table[column]
    if values.dtype.kind == "M":
        if bad := np.flatnonzero(np.isnat(values))[:1].tolist():
            raise _missing(table, bad[0], column)
        seconds = values.astype("datetime64[us]").astype(np.int64) / 1e6
        own = table.zones.get(column)
        return Stamps(seconds if own else _to_utc(seconds, zone), True, zone or own)
    if values.dtype.kind in "fiu" or table.is_numeric(column):
        numbers = table.numbers(column)
        if bad := np.flatnonzero(np.isnan(numbers))[:1].tolist():
            raise _missing(table, bad[0], column)
        return Stamps(numbers, False, None)
    texts, codes = table.texts(column)
    return _from_texts(table, column, texts, codes, zone)


def _from_texts(table: Table, column: str, texts: list[str], codes: np.ndarray, zone: str | None) -> Stamps:
    seconds, offsets = np.empty(len(texts)), []
    for i, text in enumerate(texts):
        stamp = parse_date(text)
        if stamp is None or (offsets and (stamp.tzinfo is None) != (offsets[0] is None)):
            where = table.at(int(np.flatnonzero(codes == i)[0]), column)
            if stamp is None:
                raise InputError(
                    f"{where}: expected a date such as 2024-03-31 08:05 or 2024-03-31T08:05+02:00, got {text!r}. Write "
                    "all stamps as year-month-day and time, or all as numbers."
                )
            came = "none" if stamp.tzinfo is None else "one"
            raise InputError(
                f"{where}: expected stamps that all have a zone, or none of them, got {text!r} with {came} after "
                "others that differ. Write the zone, such as +02:00 or Z, with all of them."
            )
        offsets.append(stamp.utcoffset())
        seconds[i] = (stamp.replace(tzinfo=_UTC) if stamp.tzinfo is None else stamp).timestamp()
    if offsets[0] is None:
        return Stamps(_to_utc(seconds, zone)[codes], True, zone)
    different = sorted(set(offsets), key=offsets.count)
    notes = ()
    if zone is None and len(different) > 1:
        notes = (
            f"{table.source}: stamps have {len(different)} offsets from UTC; the time of day goes by the commonest, "
            f"{_offset_name(different[-1])}. Name the zone, such as Europe/Paris, if clocks change.",
        )
    return Stamps(seconds[codes], True, zone or _offset_name(different[-1]), notes)


def parse_date(text: str) -> datetime.datetime | None:
    """A date by ISO 8601, with or without its T and its seconds."""
    try:
        return datetime.datetime.fromisoformat(text.strip())
    except ValueError:
        return None


def format_stamps(t: Float[np.ndarray, "*times"], clock: Clock) -> list[str]:
    """Stamps as text, by the wall clock of the zone, with its offset; numbers as they are."""
    if not clock.dates:
        return [f"{v:.12g}" for v in np.asarray(t, float).tolist()]
    values, place = np.unique(np.asarray(t, float), return_inverse=True)
    zone = _UTC if clock.zone is None else find_zone(clock.zone)
    texts = []
    for v in values.tolist():
        stamp = datetime.datetime.fromtimestamp(round(v, 6), zone)
        texts.append((stamp.replace(tzinfo=None) if clock.zone is None else stamp).isoformat(sep=" "))
    return [texts[i] for i in place.tolist()]


def to_dates(t: Float[np.ndarray, " times"], clock: Clock) -> np.ndarray:
    """Stamps as dates that `read_times` reads back: datetime64, or those of Python in the zone where there is one."""
    if clock.zone is None:
        return np.round(t * 1e6).astype("datetime64[us]")
    zone, out = find_zone(clock.zone), np.empty(len(t), object)
    # By the wall clock alone the hour that comes twice in autumn would be there once.
    out[:] = [datetime.datetime.fromtimestamp(round(v, 6), zone) for v in t.tolist()]
    return out


def read_times(times: Any, clock: Clock, name: str = "times") -> Float[np.ndarray, "*times"]:
    """Times that a user asks for, as the clock has them: dates, text, or numbers, sorted or not."""
    if isinstance(times, str | datetime.datetime | np.datetime64 | float | int):
        times = [times]
    values = np.asarray(_zone_free(times))
    table = Table({name: values}, name, zones={name: "UTC"} if _has_zone(times) else {})
    if values.ndim != 1 or not len(values):
        raise InputError(f"{name}: expected a list of times, one or more, got shape {values.shape}.")
    stamps = read_stamps(table, name, clock.zone)
    if stamps.dates != clock.dates:
        expected, came = ("dates", "numbers") if clock.dates else ("numbers", "dates")
        raise InputError(f"{name}: expected {expected}, as the table that was fitted has, got {came}.")
    if stamps.dates and clock.zone is None and stamps.zone is not None:
        raise InputError(f"{name}: expected dates without a zone, as the table that was fitted has, got {stamps.zone}.")
    return stamps.values


def guess_step(stamps: Sequence[np.ndarray]) -> float:
    """The usual time between readings, from the stamps of each sensor, increasing.

    Where the stamps lie on a grid it is the grid's step, however many are missing; otherwise the median gap.
    """
    gaps = np.concatenate([np.diff(s) for s in stamps])
    gaps = gaps[gaps > 0]
    if not gaps.size:
        return 1.0
    least = float(np.percentile(gaps, 2, method="lower"))
    multiple = gaps / least
    on_grid = np.abs(multiple - np.round(multiple)) < 0.01 * np.maximum(multiple, 1)
    return least if np.mean(on_grid) > 0.95 else float(np.median(gaps))


def make_clock(stamps: Stamps, step: float, period: float | None) -> Clock:
    """The clock of stamps that usually are `step` apart; `period` is the user's word on what repeats itself."""
    cycle = period
    if period is None and stamps.dates:
        cycle = DAY if step <= DAY / 2 else WEEK if step <= WEEK / 2 else None
    if cycle is not None and not (np.isfinite(cycle) and cycle > 0):
        raise InputError(f"period: expected how long what repeats itself takes, a positive number, got {period}.")
    # A whole number of steps in a cycle, so that the place in it is the time modulo the period.
    step = step if cycle is None else cycle / max(1, round(cycle / step))
    return Clock(stamps.dates, step, cycle, stamps.zone)


def _to_utc(wall: np.ndarray, zone: str | None) -> np.ndarray:
    """Seconds of a wall clock without a zone as those of UTC. In the hour that comes twice, the first is meant."""
    if zone is None:
        return wall
    return wall - _offsets(wall - _offsets(wall, zone), zone)


def _missing(table: Table, row: int, column: str) -> InputError:
    return InputError(f"{table.at(row, column)}: expected a stamp, got nothing. Fill it in, or drop the row.")


def _offset_name(offset: datetime.timedelta | None) -> str:
    seconds = 0 if offset is None else int(offset.total_seconds())
    return f"{'-' if seconds < 0 else '+'}{abs(seconds) // 3600:02d}:{abs(seconds) % 3600 // 60:02d}"


def _has_zone(times: Any) -> bool:
    zone = getattr(getattr(times, "dtype", None), "tz", None) or getattr(times, "tz", None)
    first = next(iter(times), None) if not isinstance(times, np.ndarray) or times.dtype == object else None
    return zone is not None or getattr(first, "tzinfo", None) is not None


def _zone_free(times: Any) -> Any:
    """A list that numpy can read: dates of Python and pandas in UTC where they have a zone."""
    if isinstance(times, np.ndarray) and times.dtype != object:
        return times
    out = []
    for t in times:
        if isinstance(t, datetime.datetime):
            t = t.astimezone(_UTC).replace(tzinfo=None) if t.tzinfo is not None else t
            t = np.datetime64(t.isoformat(), "us")
        elif isinstance(t, datetime.date):
            t = np.datetime64(t.isoformat(), "us")
        out.append(t)
    return out
