"""How much traffic comes to the freeways when, and what goes wrong."""

import dataclasses

import numpy as np
from jaxtyping import Float

from .._errors import InputError
from ._freeway_network import FreewayNetwork, changing


@dataclasses.dataclass(frozen=True)
class DemandConfig:
    """The traffic of a day.

    **Arguments**

    - `peak`: the flow that wants through the narrowest place of a carriageway at its busiest time of day, as a share of
      what fits, about the same for all carriageways. Above 1 there are queues each weekday.
    - `night`: what comes at the quietest time, as a share of the busiest.
    - `weekend`: traffic on Saturdays and Sundays, as a share of other days'; their peaks are one, at midday.
    - `daily`, `fluctuation`: standard deviations of the logarithms of a day's factor, which all share, and of each
      entry's own fluctuations, which last about half an hour.
    - `incidents`: how many to expect a day, in all; each takes 40 to 75 % of a cell's capacity, for about 40 minutes.
    """

    peak: float = 1.12
    night: float = 0.08
    weekend: float = 0.75
    daily: float = 0.06
    fluctuation: float = 0.12
    incidents: float = 3.0

    def __post_init__(self):
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if not value >= 0:
                raise InputError(f"{field.name}: expected a number, 0 or more, got {value}.")


@dataclasses.dataclass(frozen=True)
class Incident:
    """Less capacity in one cell, `factor` times its own, from one time of a day to another, in hours."""

    day: int
    cell: int
    start: float
    end: float
    factor: float


def draw_demand(
    rng: np.random.Generator, network: FreewayNetwork, config: DemandConfig, dates: np.ndarray, slots: int
) -> Float[np.ndarray, "days slots cells"]:
    """Vehicles an hour that come to each cell from outside: at the first of a carriageway, and at entries."""
    hour = (np.arange(slots) + 0.5) * 24 / slots
    morning, evening, midday = _bump(hour, 7.8, 1.6), _bump(hour, 17.0, 2.2), _bump(hour, 13.0, 4.0)
    towards = np.maximum.reduce([morning, 0.75 * evening, 0.6 * midday])
    away = np.maximum.reduce([0.7 * morning, evening, 0.6 * midday])
    shape = np.where(network.inbound, towards[:, None], away[:, None])
    weekend = config.weekend * midday[:, None] * np.ones_like(shape)
    saturday = (dates.astype("datetime64[D]").astype(int) + 3) % 7 >= 5
    shape = np.where(saturday[:, None, None], weekend, shape)
    shape = config.night + (1 - config.night) * shape

    busiest = _busiest(rng, network, config.peak)
    factor = np.exp(config.daily * rng.normal(size=(len(dates), 1, 1)))
    return busiest * factor * shape * np.exp(config.fluctuation * _fluctuations(rng, shape.shape, slots))


def _busiest(rng: np.random.Generator, network: FreewayNetwork, peak: float) -> Float[np.ndarray, " cells"]:
    """Demand at each cell at which each carriageway has the peak flow somewhere, if nothing queues."""
    ramps = network.entry & ~np.isin(np.arange(network.num_cells), network.links[:, 1])
    demand = np.where(network.first, 0.6 * network.capacity, np.where(ramps, 700.0, 0.0))
    demand *= rng.uniform(0.8, 1.2, network.num_cells)
    ways = np.cumsum(network.first) - 1
    peaks = peak * rng.uniform(0.96, 1.04, ways[-1] + 1)
    following = np.diag(np.where(network.last, 0, 1 - network.exits)[:-1], -1)
    system = np.eye(network.num_cells) - following - changing(network) * network.exits
    # Some come from other carriageways, whose demand changes too: a few rounds bring them all to their peaks.
    for _ in range(20):
        share = np.linalg.solve(system, demand) / network.capacity
        demand *= np.array([p / share[ways == way].max() for way, p in enumerate(peaks)])[ways]
    return demand


def _bump(hour: np.ndarray, middle: float, width: float) -> np.ndarray:
    return np.exp(-((hour - middle) ** 2) / (2 * width**2))


def _fluctuations(rng: np.random.Generator, shape: tuple[int, ...], slots: int) -> np.ndarray:
    """Autoregressive noise along the slots, with standard deviation 1."""
    memory = np.exp(-24 / slots / 0.5)
    shocks = rng.normal(size=shape)
    noise = np.empty(shape)
    noise[:, 0] = shocks[:, 0]
    for slot in range(1, slots):
        noise[:, slot] = memory * noise[:, slot - 1] + np.sqrt(1 - memory**2) * shocks[:, slot]
    return noise


def draw_incidents(
    rng: np.random.Generator, network: FreewayNetwork, config: DemandConfig, days: int
) -> tuple[Incident, ...]:
    """Incidents of all days, between 6 and 21 o'clock."""
    found = []
    for day in range(days):
        for _ in range(rng.poisson(config.incidents)):
            cell = int(rng.integers(network.num_cells))
            start, lasts = rng.uniform(6, 21), 40 / 60 * np.exp(0.5 * rng.normal() - 0.125)
            found.append(Incident(day, cell, float(start), float(start + lasts), float(rng.uniform(0.25, 0.6))))
    return tuple(found)


def capacity_factors(
    incidents: tuple[Incident, ...], days: int, slots: int, cells: int
) -> Float[np.ndarray, "days slots cells"]:
    """What is left of each cell's capacity in each slot."""
    factors = np.ones((days, slots, cells))
    middle = (np.arange(slots) + 0.5) * 24 / slots
    for incident in incidents:
        during = (middle >= incident.start) & (middle < incident.end)
        factors[incident.day, during, incident.cell] *= incident.factor
    return factors
