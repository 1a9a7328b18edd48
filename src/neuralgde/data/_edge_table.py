"""A user's edges: a table of them, a matrix, or the sensors' coordinates."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from .._errors import InputError
from ._clock import Clock, read_stamps
from ._read_table import read_table
from ._table import Table

_SOURCES, _TARGETS = ("source", "from", "src", "sender", "i"), ("target", "to", "dst", "destination", "receiver", "j")
_LATITUDES, _LONGITUDES = ("latitude", "lat"), ("longitude", "lon", "lng", "long")
_IDS = ("unique_id", "id", "node", "sensor", "station", "detector", "node_id", "sensor_id", "station_id", "name")
_EARTH_KM = 6371.0
# A sensor's neighbours, where distances are all that is known: weights fall to a third at the distance of the k-th.
_NEAREST = 6
_LEAST_WEIGHT = 0.1


@dataclasses.dataclass(frozen=True)
class Edges:
    """Directed edges between sensors by their numbers, and where the sensors are.

    `start` and `end` (edges,) are stamps between which an edge is there, infinite where it is always; None where none
    changes. `coordinates` (sensors, 2) are x and y, or with `geographic` longitude and latitude.
    """

    senders: Int[np.ndarray, " edges"]
    receivers: Int[np.ndarray, " edges"]
    weights: Float[np.ndarray, " edges"]
    start: Float[np.ndarray, " edges"] | None = None
    end: Float[np.ndarray, " edges"] | None = None
    coordinates: Float[np.ndarray, "sensors 2"] | None = None
    geographic: bool = False
    notes: tuple[str, ...] = ()

    def nearest(self, sensors: int, k: int = _NEAREST) -> Int[np.ndarray, "sensors nearest"]:
        """The senders with the largest weights into each sensor, itself where there are fewer than k."""
        weights = np.zeros((sensors, sensors))
        np.add.at(weights, (self.receivers, self.senders), np.where(self.senders == self.receivers, 0, self.weights))
        order = np.argsort(-weights, axis=1, kind="stable")[:, : min(k, sensors)]
        own = np.arange(sensors)[:, None]
        return np.where(np.take_along_axis(weights, order, axis=1) > 0, order, own)


def read_edges(
    edges: Any,
    ids: Sequence[str],
    *,
    coordinates: Any = None,
    undirected: bool = False,
    clock: Clock | None = None,
    silent: Sequence[str] = (),
) -> Edges:
    """The edges between the sensors `ids`: from a table of them, a matrix, or coordinates.

    Edges of `silent` sensors, which there are no readings of, are left out; those of unknown ones are refused.

    A table has the columns source and target, perhaps weight, and perhaps start and end. A matrix without names has a
    row and a column for each sensor, in the order of the readings: weights from 0 to 1, or distances.
    """
    places = None if coordinates is None else _coordinates(read_table(coordinates, "coordinates"), ids)
    if edges is None and places is None:
        note = "no edges and no coordinates were given: every sensor is forecast from its own readings alone."
        return Edges(np.empty(0, int), np.empty(0, int), np.empty(0), notes=(note,))
    if edges is None:
        assert places is not None
        found = from_distances(_distances(*places))
    else:
        table = read_table(edges, "edges")
        found = _matrix(table, ids) if _is_matrix(table) else _listed(table, ids, clock, set(silent))
    if undirected and edges is not None:
        found = _both_ways(found)
    if places is not None:
        found = dataclasses.replace(found, coordinates=places[0], geographic=places[1])
    if not len(found.senders):
        found = dataclasses.replace(
            found, notes=(*found.notes, "the table of edges joins no two sensors of the readings.")
        )
    return found


def _is_matrix(table: Table) -> bool:
    return (not table.header and len(table.names) > 3) or (not table.header and len(table.names) == len(table))


def _listed(table: Table, ids: Sequence[str], clock: Clock | None, silent: set[str]) -> Edges:
    source, target = _column(table, _SOURCES, 0), _column(table, _TARGETS, 1)
    ends = []
    for column in (source, target):
        names, codes = table.texts(column)
        place = {name: i for i, name in enumerate(ids)}
        for i, name in enumerate(names):
            if name not in place and name not in silent:
                row = int(np.flatnonzero(codes == i)[0])
                raise InputError(
                    f"{table.at(row, column)}: there is no sensor {name!r} among the readings, which have "
                    f"{', '.join(ids[:4])}{' …' if len(ids) > 4 else ''}. Write it as there, or drop the edge."
                )
        ends.append(np.array([place.get(name, -1) for name in names])[codes])
    weights = np.ones(len(table))
    if "weight" in table.names:
        weights = table.numbers("weight")
        if bad := np.flatnonzero(~(weights >= 0))[:1].tolist():
            raise InputError(
                f"{table.at(bad[0], 'weight')}: expected a weight of 0 or more, got {table['weight'][bad[0]]!s}. Give "
                "how strong the edge is, larger for closer sensors."
            )
    start, end = _spans(table, clock)
    both = (ends[0] >= 0) & (ends[1] >= 0)
    start, end = (None if span is None else span[both] for span in (start, end))
    return Edges(ends[0][both], ends[1][both], weights[both], start, end)


def _column(table: Table, known: tuple[str, ...], place: int) -> str:
    for name in table.names:
        if name.lower() in known:
            return name
    if len(table.names) < 2 or not table.header:
        raise InputError(
            f"{table.head(*table.names)}: expected the columns source, target and perhaps weight. Name them in the "
            "first line."
        )
    return table.names[place]


def _spans(table: Table, clock: Clock | None) -> tuple[np.ndarray | None, np.ndarray | None]:
    if clock is None or not {"start", "end"} & set(table.names):
        return None, None
    found = []
    for column, open_end in (("start", -np.inf), ("end", np.inf)):
        out = np.full(len(table), open_end)
        if column in table.names:
            values = table[column]
            text = np.array([str(v).strip().lower() in ("", "nan", "nat", "none") for v in values.tolist()])
            if not text.all():
                lines = None if table.lines is None else table.lines[~text]
                some = Table({column: values[~text]}, table.source, lines, zones=table.zones)
                stamps = read_stamps(some, column, clock.zone)
                if stamps.dates != clock.dates:
                    raise InputError(
                        f"{some.at(0, column)}: expected stamps like those of the readings, "
                        f"{'dates' if clock.dates else 'numbers'}. Write them so."
                    )
                out[~text] = stamps.values
        found.append(out)
    start, end = found
    if bad := np.flatnonzero(end <= start)[:1].tolist():
        raise InputError(f"{table.at(bad[0], 'end')}: expected an end after the start, got one before it. Swap them.")
    return start, end


def _matrix(table: Table, ids: Sequence[str]) -> Edges:
    a = np.stack([table.numbers(name) for name in table.names], axis=1)
    if a.shape != (len(ids), len(ids)):
        raise InputError(
            f"{table.at(min(len(a), len(ids)) - 1, str(min(a.shape[1], len(ids)) - 1))}: expected a matrix of "
            f"{len(ids)} rows and columns, one for each sensor of the readings, got {a.shape[0]} and {a.shape[1]}. Or "
            "give a table with the columns source, target."
        )
    if bad := np.argwhere(~(a >= 0))[:1].tolist():
        (i, j) = bad[0]
        raise InputError(
            f"{table.at(i, str(j))}: expected a weight or a distance, 0 or more, got {a[i, j]}. Write 0 for no edge."
        )
    if a.max(initial=0) > 1 and not np.diag(a).any():
        found = from_distances(np.where(np.eye(len(a), dtype=bool), 0, np.where(a == 0, np.inf, a)))
        note = (
            f"{table.source}: a matrix with numbers above 1 and nothing on its diagonal is read as distances, 0 as no "
            "edge. If they are weights, divide them by the largest."
        )
        return dataclasses.replace(found, notes=(note,))
    senders, receivers = np.nonzero(a)
    return Edges(senders, receivers, a[senders, receivers])


def from_distances(distances: Float[np.ndarray, "sensors sensors"]) -> Edges:
    """Edges exp(-(d / s)^2) between sensors that are near, s being the usual distance of the sixth nearest."""
    n = len(distances)
    if n < 2:
        return Edges(np.empty(0, int), np.empty(0, int), np.empty(0))
    off = np.where(np.eye(n, dtype=bool), np.inf, distances)
    nearest = np.sort(off, axis=1)[:, min(_NEAREST, n - 1) - 1]
    nearest = nearest[np.isfinite(nearest) & (nearest > 0)]
    size = float(np.median(nearest)) if len(nearest) else 1.0
    weights = np.exp(-((off / size) ** 2))
    senders, receivers = np.nonzero(weights >= _LEAST_WEIGHT)
    return Edges(senders, receivers, weights[senders, receivers])


def _coordinates(table: Table, ids: Sequence[str]) -> tuple[np.ndarray, bool]:
    lower = {name.lower(): name for name in table.names}
    key = next((lower[k] for k in _IDS if k in lower), table.names[0])
    latitude = next((lower[k] for k in _LATITUDES if k in lower), None)
    longitude = next((lower[k] for k in _LONGITUDES if k in lower), None)
    geographic = latitude is not None and longitude is not None
    pair = [longitude, latitude] if geographic else ["x", "y"]
    if not geographic and not {"x", "y"} <= set(table.names):
        raise InputError(
            f"{table.head(*table.names)}: expected the columns latitude and longitude, or x and y. Rename them."
        )
    names, codes = table.texts(key)
    xy = np.stack([table.numbers(str(column)) for column in pair], axis=1)
    if bad := np.argwhere(np.isnan(xy))[:1].tolist():
        raise InputError(
            f"{table.at(bad[0][0], str(pair[bad[0][1]]))}: expected a coordinate, got nothing. Fill it in."
        )
    place = {names[code]: row for row, code in reversed(list(enumerate(codes.tolist())))}
    if missing := [name for name in ids if name not in place]:
        raise InputError(
            f"{table.at(len(table) - 1, key)}: the table ends, and has not named {missing[0]!r}, a sensor of the "
            "readings. Add its coordinates."
        )
    return xy[[place[name] for name in ids]], geographic


def _distances(xy: np.ndarray, geographic: bool) -> np.ndarray:
    if not geographic:
        return np.linalg.norm(xy[:, None] - xy[None], axis=-1)
    lon, lat = np.radians(xy).T
    across = np.cos(lat[:, None]) * np.cos(lat) * np.sin((lon[:, None] - lon) / 2) ** 2
    half = np.sin((lat[:, None] - lat) / 2) ** 2 + across
    return 2 * _EARTH_KM * np.arcsin(np.sqrt(np.clip(half, 0, 1)))


def _both_ways(edges: Edges) -> Edges:
    pairs = list(zip(edges.senders.tolist(), edges.receivers.tolist(), strict=True))
    there = set(pairs)
    new = np.array([(j, i) not in there for i, j in pairs], bool)

    def twice(a: np.ndarray | None) -> np.ndarray | None:
        return None if a is None else np.concatenate([a, a[new]])

    return dataclasses.replace(
        edges,
        senders=np.concatenate([edges.senders, edges.receivers[new]]),
        receivers=np.concatenate([edges.receivers, edges.senders[new]]),
        weights=np.concatenate([edges.weights, edges.weights[new]]),
        start=twice(edges.start),
        end=twice(edges.end),
    )
