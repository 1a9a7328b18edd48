"""Undersampling: which readings are kept, at random, to make irregular and partial observations of regular ones."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool

from .._errors import InputError


def keep_snapshots(rows: int, keep: float, *, seed: int | Sequence[int]) -> Bool[np.ndarray, " rows"]:
    """Each snapshot, all sensors at one time, is kept with probability `keep`, whatever happens to the others."""
    _check_share(keep)
    return np.random.default_rng(seed).random(rows) < keep


def keep_sensors(
    rows: int, sensors: int, keep: float, *, seed: int | Sequence[int], outage: float | None = None
) -> Bool[np.ndarray, "rows sensors"]:
    """Each reading of each sensor is kept with probability `keep`.

    Readings are dropped one by one, or with `outage` in runs of that mean length, as when a detector fails: whether a
    sensor is on or off is then a Markov chain that has been running for ever.
    """
    _check_share(keep)
    rng = np.random.default_rng(seed)
    if outage is None or keep in (0, 1):
        return rng.random((rows, sensors)) < keep
    least = max(1.0, (1 - keep) / keep)
    if outage < least:
        raise InputError(f"outage: expected a mean run of at least {least:g} readings for keep={keep}, got {outage}.")
    wakes, fails = 1 / outage, (1 - keep) / (keep * outage)
    on = np.empty((rows, sensors), bool)
    now = rng.random(sensors) < keep
    for row in range(rows):
        on[row] = now
        now = np.where(now, rng.random(sensors) >= fails, rng.random(sensors) < wakes)
    return on


def _check_share(keep: float) -> None:
    if not 0 <= keep <= 1:
        raise InputError(f"keep: expected a probability from 0 to 1, such as 0.7, got {keep}.")
