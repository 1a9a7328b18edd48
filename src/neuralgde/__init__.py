"""Neural graph differential equations: graph neural networks as vector fields, solved in continuous time."""

from importlib import import_module
from typing import Any

# Where each public name lives. It is imported when it is first used, so that `import neuralgde` loads no JAX.
_HOMES = {
    "_errors": ("CheckpointError", "InputError", "SolveError"),
    "graph": ("Graph", "GraphStream"),
    "field": (
        "GADE", "GCDE", "GMDE", "ContinuousGNN", "DepthVarying", "GSDEField", "HamiltonianField", "LearnedAugment",
        "ResidualGNN", "SecondOrder", "WithInputs", "WithTime", "ZeroAugment",
    ),
    "integrate": (
        "Event", "HybridConfig", "HybridSolution", "Solution", "SolveConfig", "Status", "solve", "solve_hybrid",
        "solve_sde",
    ),
    "model": (
        "GraphEncoder", "GraphFlow", "HybridGDE", "KLSchedule", "LatentGDE", "NeuralGDE", "NeuralGSDE", "TCNEncoder",
        "gcde_gru",
    ),
    "forecast": ("Backtest", "ForecastConfig", "Forecaster", "ReactionForecaster"),
    "train": ("TrainConfig", "fit", "fit_seeds", "make_seeds"),
}  # fmt: skip
_SUBMODULES = (
    "conformal",
    "data",
    "field",
    "forecast",
    "graph",
    "integrate",
    "metrics",
    "model",
    "nn",
    "report",
    "simulate",
    "train",
)
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = sorted([*_HOME_OF, *_SUBMODULES, "__version__"])  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        value = version("neuralgde")
    elif name in _HOME_OF:
        value = getattr(import_module(f"{__name__}.{_HOME_OF[name]}"), name)
    elif name in _SUBMODULES:
        value = import_module(f"{__name__}.{name}")
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
