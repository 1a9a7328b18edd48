"""The settings of a training run, as one value that can be written to JSON."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from .._errors import InputError, unknown_name
from .._settings import check_names, check_number
from ._optimiser import OPTIMISERS
from ._schedule import SCHEDULES

_WHOLE = (
    "steps", "epochs", "batch_size", "restart_epochs", "restart_factor", "log_every", "patience", "max_skipped",
    "peak_step",
)  # fmt: skip
_NUMBERS = ("rate", "clip", "start_rate", "divergence", "weight_decay", "end_rate")


@dataclasses.dataclass(frozen=True)
class TrainConfig:
    """How to train. Give `steps` or `epochs`; an epoch is one pass over the data.

    **Arguments**

    - `batch_size`: samples a step; None is all of them, in one batch. The samples that are left over at the end of an
      epoch, fewer than a batch, wait for another epoch's order.
    - `shuffle`: a new order every epoch. `same_order` gives all seeds one order, that of the first.
    - `optimiser`: "adam", "adamw", "rmsprop" or "sgd". `weight_decay` is added to the gradient (L2), or with "adamw" to
      the step. `clip` is the largest global norm of a gradient.
    - `rate`, `schedule`: "constant"; "cosine_restarts", from `rate` to `end_rate` in `restart_epochs` epochs, over and
      over, each time `restart_factor` times as long; "one_cycle", from `start_rate` (default a 25th of `rate`) up to
      `rate` at `peak_step` (default 3 tenths of all steps) and down to `end_rate` at the last step.
    - `log_every`: steps between events. An event logs the mean loss since the last one and looks at the validation
      data. By default there are about a hundred.
    - `patience`: a seed stops after so many events without a better validation.
    - `max_skipped`, `divergence`: a seed has diverged after `max_skipped` steps in a row that were not finite, or at a
      loss beyond `divergence` times its first; None has no such limit.
    """

    steps: int | None = None
    epochs: int | None = None
    batch_size: int | None = None
    shuffle: bool = True
    same_order: bool = False
    optimiser: str = "adam"
    rate: float = 1e-2
    weight_decay: float = 0.0
    clip: float | None = None
    schedule: str = "constant"
    restart_epochs: int | None = None
    restart_factor: int | None = None
    start_rate: float | None = None
    end_rate: float | None = None
    peak_step: int | None = None
    log_every: int | None = None
    patience: int | None = None
    max_skipped: int = 20
    divergence: float | None = 1e6

    def __post_init__(self):
        if (self.steps is None) == (self.epochs is None):
            raise InputError(f"steps, epochs: expected one of the two, got steps={self.steps}, epochs={self.epochs}.")
        for name in _WHOLE + _NUMBERS:
            if (value := getattr(self, name)) is not None:
                check_number(name, value, whole=name in _WHOLE, zero=name in ("weight_decay", "end_rate"))
        if self.optimiser not in OPTIMISERS:
            raise InputError(unknown_name("optimiser", self.optimiser, OPTIMISERS))
        if self.schedule not in SCHEDULES:
            raise InputError(unknown_name("schedule", self.schedule, SCHEDULES))
        for options in SCHEDULES.values():
            for name in options:
                if getattr(self, name) is not None and name not in SCHEDULES[self.schedule]:
                    raise InputError(f"{name}: the schedule {self.schedule!r} has no use for it. Leave it out.")
        if self.schedule == "cosine_restarts" and self.restart_epochs is None:
            raise InputError("restart_epochs: the schedule 'cosine_restarts' needs the epochs to its first restart.")

    @staticmethod
    def from_dict(options: Mapping[str, Any]) -> "TrainConfig":
        """A config from a mapping, such as parsed JSON."""
        check_names("training option", options, TrainConfig)
        return TrainConfig(**options)

    def to_dict(self) -> dict[str, Any]:
        """The mapping that `from_dict` takes."""
        return dataclasses.asdict(self)
