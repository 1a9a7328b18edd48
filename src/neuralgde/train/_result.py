"""What a training run returns."""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import numpy as np

from .._arrays import row
from ._state import TrainStatus


@dataclasses.dataclass(frozen=True)
class TrainResult:
    """The trained model and how the run went.

    With seeds, `model` and `best` have a leading seed axis on every array, and so have the other arrays, after the axis
    of events in `history`; without, there is no such axis. `best` is the model with the best validation, or `model`
    where there was no validation; a seed that diverged keeps its last good parameters.

    `history` has an entry per event: "step", "epoch", "rate", "loss" (the mean since the last event, NaN where no step
    was taken), "skipped" (so far), "validation", and what the losses return besides. `status` compares to
    `TrainStatus`. `steps` are those each seed took, skipped ones included. `seconds` includes compilation, and the time
    before a resume.
    """

    model: Any
    best: Any
    history: dict[str, np.ndarray]
    status: np.ndarray
    skipped: np.ndarray
    steps: np.ndarray
    best_validation: np.ndarray | None
    seconds: float

    @property
    def summary(self) -> str:
        """One sentence: how many seeds ended how, and what was skipped."""
        status = np.atleast_1d(self.status)
        counts = [(int(np.sum(status == s)), s.name.lower().replace("_", " ")) for s in TrainStatus]
        ends = ", ".join(f"{n} {name}" for n, name in counts if n)
        return f"{status.size} seed(s): {ends}; {int(np.sum(self.skipped))} step(s) skipped."


def take_seed(tree: Any, seed: int) -> Any:
    """One seed's model out of those with a leading seed axis on every array."""
    arrays, rest = eqx.partition(tree, lambda leaf: isinstance(leaf, jax.Array))
    rest = jax.tree.map(lambda leaf: leaf[seed] if eqx.is_array(leaf) else leaf, rest)
    return eqx.combine(row(arrays, seed), rest)
