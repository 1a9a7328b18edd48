"""Stochastic runs as files."""

from pathlib import Path

import numpy as np

from .._errors import InputError
from ._simulate import ReactionRun

_SUFFIXES = (".csv", ".npz")


def check_reaction_file(path: str | Path) -> None:
    """That a path is one that `write_reactions` can write."""
    path = Path(path)
    if path.suffix.lower() not in _SUFFIXES:
        raise InputError(f"{path}: expected a name that ends in .csv or .npz, which says what to write.")
    if path.is_dir():
        raise InputError(f"{path}: expected a file, but this is a folder. Add a file name to it.")


def write_reactions(run: ReactionRun, path: str | Path) -> None:
    """Write a CSV with a line for each run and time: run, time, then the species; or an NPZ with these as arrays."""
    check_reaction_file(path)
    path = Path(path)
    times, states = np.asarray(run.times), np.asarray(run.states)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix.lower() == ".npz":
            np.savez_compressed(path, times=times, states=states, species=np.array(run.network.species))
        else:
            _write_csv(path, run.network.species, times, states)
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror}.") from error


def _write_csv(path: Path, species: tuple[str, ...], times: np.ndarray, states: np.ndarray) -> None:
    # Nine digits give a float32 back as it was; counts are whole numbers, and shown as such.
    stamps = [f"{t:.6g}" for t in times]
    with path.open("w", encoding="utf-8", newline="") as file:
        file.write(",".join(["run", "time", *species]) + "\n")
        for i, rows in enumerate(states.tolist()):
            lines = (f"{i},{t}," + ",".join([f"{v:.9g}" for v in row]) for t, row in zip(stamps, rows, strict=True))
            file.write("\n".join(lines) + "\n")
