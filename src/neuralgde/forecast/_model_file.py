"""Models in files: which kind one is, and what takes it."""

from pathlib import Path

from .._errors import CheckpointError, InputError
from ..train import Checkpoint, read_checkpoint

FORECASTER = "neuralgde forecaster"
REACTIONS = "neuralgde reaction model"
# What each kind is, what writes it, and what takes it.
_KINDS = {
    FORECASTER: ("a model of a table", "gde fit -o", "gde forecast, or in Python Forecaster.load(path)"),
    REACTIONS: (
        "a model of a reaction network",
        "gde fit --sbml",
        "in Python ReactionForecaster.load(path), which has forecast, attention and knock_out",
    ),
}


def read_model(path: str | Path, kind: str) -> Checkpoint:
    """The file of a model of one kind."""
    what, writer, _ = _KINDS[kind]
    if not Path(path).exists():
        raise InputError(f"{path}: there is no such file. Give the model that `{writer}` or `save` wrote.")
    found = read_checkpoint(path)
    came = found.meta.get("kind")
    if came == kind:
        return found
    if came in _KINDS:
        other, _, taker = _KINDS[came]
        raise InputError(f"{path}: expected {what}, got {other}. For that use {taker}.")
    raise CheckpointError(f"{path} is not {what}. Give the file that `{writer}` wrote.")
