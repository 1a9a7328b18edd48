"""Source: readings with all that windows of them need, and windows for any rows and any times asked for."""

import dataclasses
import functools

import jax
import numpy as np
from jaxtyping import Bool, Float, Int

from ..data import Edges, Readings, Windows
from ..graph import Graph
from ._fresh import FreshWindows, warp
from ._profile import Profile


@dataclasses.dataclass(frozen=True)
class Shape:
    """What windows look like: how many observations, how far ahead, and from where on time counts by its logarithm.

    All in steps of the clock; `longest_gap` is a break that windows do not cross.
    """

    length: int
    horizon: float
    reach: float
    longest_gap: float
    time_scale: float


@dataclasses.dataclass(frozen=True)
class Source:
    """Readings of the model's sensors in the model's order, and what is to be expected of them.

    `given` is what was to be expected of the rows where the profile is not to say so: of those it was learned from.
    """

    readings: Readings
    profile: Profile
    shape: Shape
    static: Float[np.ndarray, "sensors static"]
    edges: Edges
    given: Float[np.ndarray, "rows sensors variables"] | None = None

    @functools.cached_property
    def steps(self) -> Float[np.ndarray, " rows"]:
        """The time of each row, in steps."""
        return self.readings.clock.steps(self.readings.stamps)

    @functools.cached_property
    def base(self) -> Float[np.ndarray, "rows sensors variables"]:
        """What was to be expected at each row."""
        if self.given is not None:
            return self.given
        return self.profile.at(self.readings.stamps, self.readings.clock, self.readings.known)

    @functools.cached_property
    def inputs(self) -> Float[np.ndarray, "rows sensors channels"] | None:
        """What is known in advance, and what stays, in units of their own."""
        known = self.profile.usual(self.readings.known)
        if not known.shape[-1] + self.static.shape[-1]:
            return None
        still = np.broadcast_to(self.static, (len(known), *self.static.shape))
        return np.concatenate([known, still], axis=-1)

    @functools.cached_property
    def era(self) -> Int[np.ndarray, " rows"] | None:
        """The number of the graph that holds at each row, None where it never changes."""
        return eras(self.edges, self.readings.stamps)

    def fresh(self, *, queries: int, outages: float, keep: float = 1.0) -> FreshWindows:
        """Windows to train on."""
        clock, shape = self.readings.clock, self.shape
        return FreshWindows.of(
            self.readings.values, self.steps, clock.phase(self.readings.stamps), period=clock.period,
            length=shape.length, keep=keep, queries=queries, outages=outages, base=self.base, inputs=self.inputs,
            era=self.era, longest_gap=shape.longest_gap, horizon=shape.horizon, reach=shape.reach,
        )  # fmt: skip

    def windows(
        self,
        ends: Int[np.ndarray, " windows"],
        query_stamps: Float[np.ndarray, "windows queries"],
        *,
        targets: Float[np.ndarray, "windows queries sensors variables"] | None = None,
        known: Float[np.ndarray, "windows queries sensors known"] | None = None,
        silent: Bool[np.ndarray, " sensors"] | None = None,
    ) -> Windows:
        """The windows that end at some rows, asked for some stamps after them.

        Where there are too few rows before, or a break among them, nothing was observed there. `known` is what is known
        of the stamps asked for; `silent` sensors show nothing.
        """
        readings, shape = self.readings, self.shape
        past = ends[:, None] - np.arange(shape.length - 1, -1, -1)
        at = np.maximum(past, 0)
        times = self.steps[at] - self.steps[ends][:, None]
        gaps = np.diff(times, axis=1)
        broken = np.concatenate([gaps > shape.longest_gap, np.zeros((len(ends), 1), bool)], axis=1)
        lost = (past < 0) | (np.cumsum(broken[:, ::-1], axis=1)[:, ::-1] > 0)
        # What is lost still has a time: a step before the next.
        for k in range(shape.length - 2, -1, -1):
            times[:, k] = np.where(lost[:, k], times[:, k + 1] - 1, times[:, k])
        seen = ~np.isnan(readings.values[at]) & ~lost[..., None, None]
        if silent is not None:
            seen = seen & ~silent[:, None]
        phase = readings.clock.phase(readings.stamps[ends])[:, None]
        ahead = readings.clock.steps(query_stamps) - self.steps[ends][:, None]
        ahead = warp(np.clip(ahead, 1e-6, shape.horizon), shape.reach)
        base = self._base_at(query_stamps, known)
        dtype = jax.dtypes.canonicalize_dtype(float)
        truth = np.full(base.shape, np.nan) if targets is None else targets
        return Windows(
            times=(phase + times).astype(dtype),
            values=np.where(seen, readings.values[at], 0).astype(dtype),
            mask=seen,
            query_times=(phase + ahead).astype(dtype),
            targets=np.nan_to_num(truth).astype(dtype),
            target_mask=~np.isnan(truth),
            period=readings.clock.period,
            base=self.base[at].astype(dtype),
            query_base=base.astype(dtype),
            inputs=None if self.inputs is None else self.inputs[at].astype(dtype),
            era=None if self.era is None else self.era[ends].astype(np.int32),
        )

    def rows_ahead(self, ends: Int[np.ndarray, " windows"], offsets: Int[np.ndarray, "windows queries"]) -> Windows:
        """The windows that end at some rows, asked for rows after them, with the truth; what is beyond counts not."""
        at = ends[:, None] + offsets
        inside = at < len(self.readings.stamps)
        at = np.where(inside, at, ends[:, None])
        truth = np.where(inside[..., None, None], self.readings.values[at], np.nan)
        windows = self.windows(ends, self.readings.stamps[at], targets=truth, known=self.readings.known[at])
        return dataclasses.replace(windows, query_base=self.base[at].astype(windows.times.dtype))

    def _base_at(self, stamps: np.ndarray, known: np.ndarray | None) -> np.ndarray:
        sensors = len(self.readings.ids)
        known = np.full((*stamps.shape, sensors, self.readings.known.shape[-1]), np.nan) if known is None else known
        flat = self.profile.at(stamps.reshape(-1), self.readings.clock, known.reshape(stamps.size, *known.shape[2:]))
        return flat.reshape(*stamps.shape, *flat.shape[1:])


def make_shape(readings: Readings, horizon: float | None, length: int | None) -> Shape:
    """Windows that suit readings: longer where each stamp has few of the sensors."""
    clock = readings.clock
    gaps = np.diff(clock.steps(readings.stamps))
    usual = float(np.median(gaps)) if len(gaps) else 1.0
    share = float(np.mean(~np.isnan(readings.values)))
    length = length or int(np.clip(round(4 / max(share, 1e-3)), 5, 24))
    farthest = clock.period if clock.cycle is not None else 24 * max(usual, 1.0)
    farthest = farthest if horizon is None else horizon / clock.step
    longest = max(float(clock.period), 24 * usual)
    reach = 12 * max(usual, 1.0)
    # Breaks, such as weekends, say nothing about how fast things go.
    short = gaps[gaps <= longest]
    return Shape(length, max(farthest, usual), reach, longest, max(4.0, float(np.mean(short)) if len(short) else 1.0))


def eras(edges: Edges, stamps: Float[np.ndarray, " times"]) -> Int[np.ndarray, " times"] | None:
    """The number of the graph that holds at stamps, None where there is one."""
    breaks = _breaks(edges)
    return None if breaks is None else np.searchsorted(breaks, stamps, side="right")


def make_graph(edges: Edges, sensors: int, most: float | None = None) -> Graph:
    """The graph of edges, weights as shares of `most`; where they change in time, those of all eras, stacked."""
    most = float(edges.weights.max(initial=0.0)) if most is None else most
    weights = edges.weights / most if most > 0 else np.ones(len(edges.weights))
    graph = Graph.from_edges(edges.senders, edges.receivers, weights, sensors)
    breaks = _breaks(edges)
    if breaks is None or edges.start is None or edges.end is None:
        return graph
    moments = np.concatenate([[-np.inf], breaks])
    on = (edges.start <= moments[:, None]) & (moments[:, None] < edges.end)
    stacked = jax.tree.map(lambda a: np.broadcast_to(np.asarray(a), (len(moments), *a.shape)), graph)
    stacked = jax.tree.map(jax.numpy.asarray, stacked)
    return dataclasses.replace(stacked, edge_mask=jax.numpy.asarray(on))


def _breaks(edges: Edges) -> np.ndarray | None:
    if edges.start is None or edges.end is None:
        return None
    ends = np.unique(np.concatenate([edges.start, edges.end]))
    ends = ends[np.isfinite(ends)]
    return ends if len(ends) else None
