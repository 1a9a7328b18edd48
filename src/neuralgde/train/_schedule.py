"""The rate at each step, computed on the host."""

from typing import TYPE_CHECKING

import numpy as np

from .._errors import InputError

if TYPE_CHECKING:
    from ._config import TrainConfig

# Each schedule with the options it reads.
SCHEDULES: dict[str, tuple[str, ...]] = {
    "constant": (),
    "cosine_restarts": ("restart_epochs", "restart_factor", "end_rate"),
    "one_cycle": ("start_rate", "end_rate", "peak_step"),
}


def rate_at(config: "TrainConfig", steps: np.ndarray, total_steps: int, steps_per_epoch: int) -> np.ndarray:
    """The rates at the given steps, which count from 0, in a run of `total_steps`."""
    steps = np.asarray(steps, float)
    end = config.end_rate or 0.0
    if config.schedule == "constant":
        return np.full(steps.shape, config.rate)
    if config.schedule == "cosine_restarts":
        return _cosine(config.rate, end, _cycle_share(config, np.floor(steps / steps_per_epoch)))
    last = total_steps - 1
    peak = 0.3 * total_steps - 1 if config.peak_step is None else config.peak_step
    if config.peak_step is not None and peak >= last:
        raise InputError(f"peak_step: expected a step before the last, {last}, got {peak}.")
    peak = max(peak, 0.0)
    start = config.rate / 25 if config.start_rate is None else config.start_rate
    rising = _cosine(start, config.rate, steps / peak if peak else np.ones_like(steps))
    falling = _cosine(config.rate, end, np.clip((steps - peak) / max(last - peak, 1), 0, 1))
    return np.where(steps < peak, rising, falling)


def _cosine(start: float, end: float, share: np.ndarray) -> np.ndarray:
    """Half a cosine wave from start to end."""
    return end + (start - end) * (1 + np.cos(np.pi * share)) / 2


def _cycle_share(config: "TrainConfig", epochs: np.ndarray) -> np.ndarray:
    """How far each epoch is in its cycle: T_cur / T_i of Loshchilov and Hutter (2017)."""
    length, factor = float(config.restart_epochs or 1), config.restart_factor or 1
    if factor == 1:
        return epochs % length / length
    starts = np.zeros_like(epochs)
    lengths = np.full_like(epochs, length)
    # A cycle is at least twice as long as the one before, so this takes few rounds.
    while np.any(past := epochs >= starts + lengths):
        starts = np.where(past, starts + lengths, starts)
        lengths = np.where(past, lengths * factor, lengths)
    return (epochs - starts) / lengths
