"""Freeways as rows of cells: carriageways that cross, ramps, interchanges and sensors."""

import dataclasses

import numpy as np
import scipy.sparse
from jaxtyping import Bool, Float, Int

from .._errors import InputError

METRES = 1609.344
_LANE_CAPACITY, _LANE_JAM = 2000.0, 190.0
# Of those who leave where two freeways cross, these go on on the other one.
_CHANGE_SHARE = 0.8


@dataclasses.dataclass(frozen=True)
class FreewayNetwork:
    """Cells of `cell` miles, carriageway after carriageway, in the direction of travel. Flows are in vehicles an hour.

    - `free_speed`, `capacity`, `jam`: the triangular fundamental diagram of each cell: mph, and vehicles an hour and a
      mile over all lanes.
    - `first`, `last`: the ends of carriageways. All enter at the first cell or at an `entry`, a ramp at a cell's start.
    - `exits`: the share that leaves at the end of each cell.
    - `links` (links, 2): interchanges; most of those who leave at one cell queue at the entry of the other.
    - `inbound`: whether the morning peak is the heavier one.
    - `sensors`: the cells that have one, and `names` theirs.
    - `distances`: between sensors along the road, either way, in metres; infinite where no road joins them.
    - `neighbours` (pairs, 2): sensors that follow each other along a road, upstream first.
    """

    cell: float
    free_speed: Float[np.ndarray, " cells"]
    capacity: Float[np.ndarray, " cells"]
    jam: Float[np.ndarray, " cells"]
    first: Bool[np.ndarray, " cells"]
    last: Bool[np.ndarray, " cells"]
    entry: Bool[np.ndarray, " cells"]
    exits: Float[np.ndarray, " cells"]
    links: Int[np.ndarray, "links 2"]
    inbound: Bool[np.ndarray, " cells"]
    sensors: Int[np.ndarray, " sensors"]
    names: tuple[str, ...]
    distances: Float[np.ndarray, "sensors sensors"]
    neighbours: Int[np.ndarray, "pairs 2"]

    @property
    def num_cells(self) -> int:
        return len(self.capacity)

    @property
    def closeness(self) -> Float[np.ndarray, " pairs"]:
        """exp(-(d / 3162 m)^2) of the distance d between neighbours, a weight for their edges."""
        return np.exp(-((self.distances[tuple(self.neighbours.T)] / 3162.0) ** 2))


def freeway_network(
    corridors: int = 4, *, miles: float = 12.0, cell: float = 0.5, sensor_every: int = 2, seed: int = 0
) -> FreewayNetwork:
    """Corridors that run east-west and north-south in turn, each a freeway with a carriageway either way.

    Where two cross there is an interchange. Ramps alternate, an entry and an exit about each mile; lanes, free speeds
    and shares that leave are drawn at random, with a narrow place in each carriageway. There is a sensor in every
    `sensor_every`-th cell.
    """
    count = round(miles / cell)
    for name, value, least in (
        ("corridors", corridors, 1),
        ("miles / cell", count, 4),
        ("sensor_every", sensor_every, 1),
    ):
        if value < least:
            raise InputError(f"{name}: expected at least {least}, got {value}.")
    if sensor_every > count:
        raise InputError(f"sensor_every: expected at most the {count} cells of a carriageway, got {sensor_every}.")
    rng = np.random.default_rng(seed)
    ways = 2 * corridors
    place = np.tile(np.arange(count), ways)
    lanes = np.repeat(rng.integers(4, 6, ways), count).astype(float)
    narrow = np.arange(ways) * count + rng.integers(count // 2, count - 1, ways)
    capacity = _LANE_CAPACITY * lanes
    capacity[narrow] *= rng.uniform(0.65, 0.8, ways)
    exits = np.where(place % 4 == 1, rng.uniform(0.05, 0.15, ways * count), 0.0)
    entry = place % 4 == 3
    links = _interchanges(corridors, count)
    exits[links[:, 0]], entry[links[:, 1]] = 0.15, True
    exits[place == count - 1], entry[place == 0] = 0.0, False
    sensors = np.flatnonzero(place % sensor_every == sensor_every // 2)
    return FreewayNetwork(
        cell=cell,
        free_speed=rng.uniform(62, 70, ways * count),
        capacity=capacity,
        jam=_LANE_JAM * lanes,
        first=place == 0,
        last=place == count - 1,
        entry=entry,
        exits=exits,
        links=links,
        inbound=np.repeat(np.arange(ways) % 2 == 0, count),
        sensors=sensors,
        names=tuple(f"{'EW' if w // 2 % 2 == 0 else 'NS'}{w // 4 + 1}{'ab'[w % 2]}-{place[s]:02d}" for s in sensors
                    for w in [s // count]),
        distances=_road_distances(count, ways, cell, links, sensors),
        neighbours=_neighbours(count, links, sensors),
    )  # fmt: skip


def _interchanges(corridors: int, count: int) -> Int[np.ndarray, "links 2"]:
    """Cells to leave at and to enter at: at each crossing one way to turn from each of the four carriageways."""
    links = []
    east_west, north_south = range(0, corridors, 2), range(1, corridors, 2)
    for i, a in enumerate(east_west):
        for j, b in enumerate(north_south):
            # The crossing, counted along each of the two from the start of its first carriageway.
            along_a = count * (j + 1) // (len(north_south) + 1)
            along_b = count * (i + 1) // (len(east_west) + 1)
            out_a, back_a = 2 * a * count + along_a, (2 * a + 2) * count - 1 - along_a
            out_b, back_b = 2 * b * count + along_b, (2 * b + 2) * count - 1 - along_b
            round_trip = (out_a, out_b, back_a, back_b)
            links += [(round_trip[k], round_trip[(k + 1) % 4] + 1) for k in range(4)]
    return np.array(links, int).reshape(-1, 2)


def _road_distances(count: int, ways: int, cell: float, links: np.ndarray, sensors: np.ndarray) -> np.ndarray:
    cells = np.arange(ways * count)
    along = np.stack([cells[:-1], cells[1:]], axis=1)[cells[1:] % count > 0]
    pairs = np.concatenate([along, links])
    road = scipy.sparse.coo_array((np.full(len(pairs), cell * METRES), pairs.T), shape=(len(cells),) * 2).tocsr()
    found = scipy.sparse.csgraph.dijkstra(road, directed=False, indices=sensors)
    return found[:, sensors]


def _neighbours(count: int, links: np.ndarray, sensors: np.ndarray) -> Int[np.ndarray, "pairs 2"]:
    along = [(i, i + 1) for i in range(len(sensors) - 1) if sensors[i] // count == sensors[i + 1] // count]
    turning = []
    for leave, enter in links:
        before = np.flatnonzero((sensors <= leave) & (sensors // count == leave // count))
        after = np.flatnonzero((sensors >= enter) & (sensors // count == enter // count))
        if len(before) and len(after):
            turning.append((int(before[-1]), int(after[0])))
    return np.unique(np.array(along + turning, int).reshape(-1, 2), axis=0)


def changing(network: FreewayNetwork) -> Float[np.ndarray, "cells cells"]:
    """From the flows that leave at each cell to those that come to the entries of others by interchanges."""
    matrix = np.zeros((network.num_cells, network.num_cells))
    leave, enter = network.links.T
    np.add.at(matrix, (enter, leave), _CHANGE_SHARE)
    return matrix
