"""`result.json`: what a run measured, in a form that scripts and later reports can rely on."""

import dataclasses
import importlib.metadata
import json
import platform
from pathlib import Path
from typing import Any

import numpy as np

from .._errors import InputError, unknown_name
from .._files import replace_file

METRICS = (
    "mape", "mape_paper", "median_relative_error", "nrmse", "rmse", "rmse_sensor", "mae", "accuracy", "crps",
    "coverage_50", "coverage_90", "log_likelihood",
)  # fmt: skip
_PACKAGES = ("neuralgde", "jax", "jaxlib", "equinox", "diffrax", "optax", "numpy")


@dataclasses.dataclass(frozen=True)
class Row:
    """One figure: a model's mean and standard deviation over seeds, and the paper's figure where it has one."""

    model: str
    setting: str
    metric: str
    mean: float
    std: float
    paper: float | None = None

    def __post_init__(self):
        if self.metric not in METRICS:
            raise InputError(unknown_name("metric", self.metric, METRICS))

    @staticmethod
    def over_seeds(model: str, setting: str, metric: str, values: Any, paper: float | None = None) -> "Row":
        """The row of one value per seed. Seeds that failed are NaN and make the mean NaN: they do not vanish."""
        values = np.asarray(values, float)
        return Row(model, setting, metric, float(values.mean()), float(values.std()), paper)


@dataclasses.dataclass(frozen=True)
class Result:
    """All that a run folder's `result.json` holds."""

    experiment: str
    config: dict[str, Any]
    seeds: int
    rows: tuple[Row, ...]
    seconds: float
    versions: dict[str, str] = dataclasses.field(default_factory=lambda: _versions())

    def find(self, model: str, setting: str, metric: str) -> Row:
        """The one row of a model, setting and metric."""
        for row in self.rows:
            if (row.model, row.setting, row.metric) == (model, setting, metric):
                return row
        raise InputError(f"no row for model {model!r}, setting {setting!r}, metric {metric!r} in this result.")


def write_result(folder: str | Path, result: Result) -> Path:
    """Write `result.json` whole or not at all."""
    # JSON has no NaN: a figure that could not be had is null.
    text = json.dumps(_plain(dataclasses.asdict(result)), indent=2, allow_nan=False)
    return replace_file(Path(folder) / "result.json", lambda file: file.write(text.encode() + b"\n"))


def read_result(folder: str | Path) -> Result:
    """The result of a run folder."""
    path = Path(folder) / "result.json"
    try:
        content = json.loads(path.read_text())
    except FileNotFoundError:
        raise InputError(f"{path}: there is no such file. Give the folder that `gde reproduce -o` wrote.") from None
    except json.JSONDecodeError as error:
        raise InputError(f"{path}:{error.lineno}: not JSON ({error.msg}). Run the experiment again.") from None
    missing = [f.name for f in dataclasses.fields(Result) if f.name not in content]
    if missing:
        raise InputError(f"{path}: expected the keys of a result, but {missing} are missing.")
    rows = tuple(Row(**{**row, "mean": _number(row["mean"]), "std": _number(row["std"])}) for row in content["rows"])
    return Result(**{**content, "rows": rows})


def _number(value: float | None) -> float:
    return float("nan") if value is None else value


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and not np.isfinite(value) else value


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for name in _PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found
