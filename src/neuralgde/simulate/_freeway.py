"""Freeway traffic by the cell transmission model (Daganzo 1994, 1995)."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._arrays import on_device
from .._errors import InputError
from ..graph import Graph
from ._freeway_demand import DemandConfig, Incident, capacity_factors, draw_demand, draw_incidents
from ._freeway_network import FreewayNetwork, changing, freeway_network

SLOTS = 288
_SLOT_HOURS = 24 / SLOTS
# Mainline vehicles' part of the room where they and those of a ramp want in and there is not enough.
_PRIORITY = 0.8
_WARM_UP_SLOTS = 12


class _Road(eqx.Module):
    """What a step needs of a network, as arrays."""

    free_speed: Array
    capacity: Array
    jam: Array
    wave_speed: Array
    first: Array
    last: Array
    ramp_capacity: Array
    exits: Array
    changing: Array
    cell: float

    def step(self, state: tuple[Array, Array], inflow: Array, factor: Array, dt: Array) -> tuple[tuple, tuple]:
        """Densities and queues after dt hours, and the flow out of each cell, what of it leaves, and what comes in."""
        density, queue = state
        capacity = self.capacity * factor
        sending = jnp.minimum(self.free_speed * density, capacity)
        receiving = jnp.clip(jnp.minimum(capacity, self.wave_speed * (self.jam - density)), 0)

        # Those who come from the cell before, and those who wait at the ramp, share the room in a cell.
        ahead = jnp.where(self.last, 0, sending * (1 - self.exits))
        main = jnp.where(self.first, 0, jnp.roll(ahead, 1))
        ramp = jnp.minimum(queue / dt, self.ramp_capacity)
        fits = main + ramp <= receiving
        main = jnp.where(fits, main, _median(main, receiving - ramp, _PRIORITY * receiving))
        ramp = jnp.where(fits, ramp, _median(ramp, receiving - main, (1 - _PRIORITY) * receiving))

        # Vehicles leave a cell in their order: one that cannot go on holds up those who want to exit behind it.
        out = jnp.where(self.last, sending, jnp.roll(main, -1) / (1 - self.exits))
        leaving = jnp.where(self.last, out, out * self.exits)
        entering = inflow + self.changing @ jnp.where(self.last, 0, leaving)
        density = density + dt / self.cell * (main + ramp - out)
        return (density, queue + dt * (entering - ramp)), (out, leaving)


def _median(a: Array, b: Array, c: Array) -> Array:
    return jnp.maximum(jnp.minimum(a, b), jnp.minimum(jnp.maximum(a, b), c))


@dataclasses.dataclass(frozen=True)
class FreewayRun:
    """What the sensors of a network saw, in rows of 5 minutes, 288 a day.

    - `speeds` (rows, sensors): mph, with noise, NaN where a detector was out. `flows`: vehicles an hour, without noise.
    - `densities` (rows, cells), vehicles a mile, and `queues` (rows, cells), vehicles at entries: all of the truth.
    - `dates` (days,): datetime64. `incidents`: where and when there was less capacity.
    """

    network: FreewayNetwork
    dates: np.ndarray
    speeds: Float[np.ndarray, "rows sensors"]
    flows: Float[np.ndarray, "rows sensors"]
    densities: Float[np.ndarray, "rows cells"]
    queues: Float[np.ndarray, "rows cells"]
    incidents: tuple[Incident, ...]

    @property
    def times(self) -> np.ndarray:
        """The start of each row, as datetime64."""
        minutes = np.arange(SLOTS) * np.timedelta64(1440 // SLOTS, "m")
        return (self.dates.astype("datetime64[m]")[:, None] + minutes).reshape(-1)

    @property
    def graph(self) -> Graph:
        """Sensors that follow each other along a road, both ways: traffic moves down it, and queues move up."""
        senders, receivers = self.network.neighbours.T
        weights = self.network.closeness
        return Graph.from_edges(senders, receivers, weights, len(self.network.sensors), undirected=True)


def simulate_freeway(
    network: FreewayNetwork | None = None,
    *,
    days: int = 14,
    start: str = "2024-01-01",
    weekends: bool = True,
    demand: DemandConfig | None = None,
    noise: float = 1.0,
    missing: float = 0.0,
    seed: int = 0,
) -> FreewayRun:
    """Speeds on a network of freeways, for so many days from `start`, without Saturdays and Sundays if so asked.

    Each cell has a density, which changes by what flows in and out. A cell sends min(free speed x density, capacity)
    and receives min(capacity, wave speed x (jam density - density)). So a narrow place, a busy ramp or an incident
    makes a queue that grows upstream, as on the road. `demand` says how much traffic comes when, and how many
    incidents there are. Each day starts on a road in its state at midnight, without what was left of the day before.

    A sensor has the mean speed of the vehicles of its cell over 5 minutes, plus normal noise of `noise` mph; a share
    `missing` of readings is NaN. The same `seed` gives the same days.
    """
    network = freeway_network() if network is None else network
    demand = DemandConfig() if demand is None else demand
    if days < 1:
        raise InputError(f"days: expected 1 or more, got {days}.")
    if noise < 0 or not 0 <= missing < 1:
        raise InputError(f"noise, missing: expected noise of 0 or more and a share below 1, got {noise}, {missing}.")
    rng = np.random.default_rng(seed)
    dates = _dates(start, days, weekends)
    inflow = draw_demand(rng, network, demand, dates, SLOTS)
    incidents = draw_incidents(rng, network, demand, days)
    factors = capacity_factors(incidents, days, SLOTS, network.num_cells)
    steps = int(np.ceil(_SLOT_HOURS * network.free_speed.max() / network.cell))

    rows = _simulate_days(_road(network), on_device(inflow, float), on_device(factors, float), steps)
    speed, flow, density, queue = (np.asarray(x).reshape(days * SLOTS, -1) for x in rows)
    seen = speed[:, network.sensors]
    seen = np.maximum(seen + noise * rng.normal(size=seen.shape), 1.0)
    seen = np.where(rng.random(seen.shape) < missing, np.nan, seen)
    return FreewayRun(network, dates, seen, flow[:, network.sensors], density, queue, incidents)


def _dates(start: str, days: int, weekends: bool) -> np.ndarray:
    try:
        first = np.datetime64(start, "D")
    except ValueError as error:
        raise InputError(f"start: expected a date such as 2024-01-01, got {start!r}.") from error
    return first + np.arange(days) if weekends else np.busday_offset(first, np.arange(days), roll="forward")


def _road(network: FreewayNetwork) -> _Road:
    critical = network.capacity / network.free_speed
    ramps = np.where(network.first, network.capacity, np.where(network.entry, 1800.0, 0.0))
    return _Road(
        free_speed=on_device(network.free_speed, float),
        capacity=on_device(network.capacity, float),
        jam=on_device(network.jam, float),
        wave_speed=on_device(network.capacity / (network.jam - critical), float),
        first=on_device(network.first),
        last=on_device(network.last),
        ramp_capacity=on_device(ramps, float),
        exits=on_device(network.exits, float),
        changing=on_device(changing(network), float),
        cell=network.cell,
    )


@eqx.filter_jit
def _simulate_days(road: _Road, inflow: Array, factors: Array, steps: int) -> tuple[Array, Array, Array, Array]:
    dt = jnp.asarray(_SLOT_HOURS / steps, inflow.dtype)

    def slot(state, now):
        entering, factor = now

        def step(carry, _):
            state, flow, vehicles = carry
            moved, (out, _) = road.step(state, entering, factor, dt)
            return (moved, flow + out, vehicles + state[0]), None

        none = jnp.zeros_like(entering)
        (state, flow, vehicles), _ = jax.lax.scan(step, (state, none, none), length=steps)
        # On a road that is all but empty, those few go at free speed.
        speed = jnp.where(vehicles > 1e-3, flow / jnp.maximum(vehicles, 1e-3), road.free_speed)
        return state, (speed, flow / steps, state[0], state[1])

    def day(inflow, factors):
        empty = jnp.zeros(inflow.shape[1], inflow.dtype)
        warm = jnp.broadcast_to(inflow[0], (_WARM_UP_SLOTS, inflow.shape[1]))
        state, _ = jax.lax.scan(slot, (empty, empty), (warm, jnp.ones_like(warm)))
        return jax.lax.scan(slot, state, (inflow, factors))[1]

    return jax.vmap(day)(inflow, factors)
