"""The settings of a Forecaster, as one value that can be written to JSON and read from TOML."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from .._errors import InputError, unknown_name
from .._settings import check_names, check_number

MODELS = ("gcde-gru", "gcgru", "latent-gsde", "ridge", "persistence")
_LISTS = ("values", "known", "static")
_WHOLE = ("seed", "length", "steps", "batch_size", "hidden", "embedding", "rank", "queries")
_NUMBERS = ("period", "horizon", "rate", "time_limit")
_OPTIONAL = ("length", "period", "horizon", "time_limit")
NETWORKS = ("gcde-gru", "gcgru", "latent-gsde")


@dataclasses.dataclass(frozen=True)
class ForecastConfig:
    """What to fit, and how. What is None is found out from the table.

    **Arguments**

    - `model`: "gcde-gru", "gcgru" (no flow between observations), "latent-gsde" (a stochastic one), "ridge" or
      "persistence". `seed` decides all that is random.
    - `id`, `time`, `values`, `known`, `static`: the names of columns, as in `Columns`.
    - `zone`, `period`: as in `read_series`. `undirected` adds the opposite of every edge.
    - `horizon`: how far ahead forecasts are learned, in the table's units of time (seconds for dates); by default a day
      of dates, a cycle of numbers. Later times count as the farthest that was learned.
    - `length`: how many stamps back a forecast looks.
    - `steps`, `batch_size`, `rate`, `hidden`, `embedding`, `rank`, `queries`, `outages`: of the training of networks.
    - `time_limit`: about how many seconds `fit` may take; training is made shorter to keep it.
    - `validation`, `calibration`: the shares of the days that models are chosen on and intervals are calibrated on.
    """

    model: str = "gcde-gru"
    seed: int = 0
    id: str | None = None
    time: str | None = None
    values: tuple[str, ...] = ()
    known: tuple[str, ...] = ()
    static: tuple[str, ...] = ()
    zone: str | None = None
    period: float | None = None
    undirected: bool = False
    horizon: float | None = None
    length: int | None = None
    steps: int = 600
    batch_size: int = 32
    rate: float = 3e-3
    hidden: int = 32
    embedding: int = 8
    rank: int = 10
    queries: int = 3
    outages: float = 0.1
    time_limit: float | None = None
    validation: float = 0.12
    calibration: float = 0.12

    def __post_init__(self):
        if self.model not in MODELS:
            raise InputError(unknown_name("model", self.model, MODELS))
        for name in _WHOLE + _NUMBERS:
            if (value := getattr(self, name)) is not None or name not in _OPTIONAL:
                check_number(name, value, whole=name in _WHOLE, zero=name in ("embedding", "seed"))
        for name in ("validation", "calibration"):
            if not 0 < getattr(self, name) < 0.5:
                raise InputError(f"{name}: expected a share between 0 and 0.5, got {getattr(self, name)!r}.")
        if not 0 <= self.outages < 1:
            raise InputError(f"outages: expected a share from 0, below 1, got {self.outages!r}.")

    @staticmethod
    def from_dict(options: Mapping[str, Any]) -> "ForecastConfig":
        """A config from a mapping, such as parsed TOML."""
        check_names("option", options, ForecastConfig)
        lists = {n: (v,) if isinstance(v, str) else tuple(v) for n, v in options.items() if n in _LISTS}
        return ForecastConfig(**{**options, **lists})

    def to_dict(self) -> dict[str, Any]:
        """The mapping that `from_dict` takes."""
        return {k: list(v) if isinstance(v, tuple) else v for k, v in dataclasses.asdict(self).items()}
