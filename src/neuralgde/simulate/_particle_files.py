"""Trajectories of particles as files."""

from pathlib import Path
from typing import IO

import numpy as np

from .._errors import InputError
from .._files import replace_file, shortest
from ._particles import ParticleRun

COLUMNS = ("run", "time", "particle", "x", "y", "vx", "vy")
_SUFFIXES = (".csv", ".npz")


def check_particle_file(path: str | Path) -> None:
    """That a path is one that `write_particles` can write."""
    path = Path(path)
    if path.suffix.lower() not in _SUFFIXES:
        raise InputError(f"{path}: expected a name that ends in .csv or .npz, which says what to write.")
    if path.is_dir():
        raise InputError(f"{path}: expected a file, but this is a folder. Add a file name to it.")


def write_particles(run: ParticleRun, path: str | Path) -> None:
    """Write a CSV with a line for each run, time and particle, or an NPZ with `times` and `states`, by the suffix."""
    check_particle_file(path)
    path = Path(path)
    times, states = np.asarray(run.times), np.asarray(run.states)
    try:
        if path.suffix.lower() == ".npz":
            replace_file(path, lambda file: np.savez_compressed(file, times=times, states=states))
        else:
            replace_file(path, lambda file: _write_csv(file, times, states))
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror}.") from error


def _write_csv(file: IO[bytes], times: np.ndarray, states: np.ndarray) -> None:
    stamps = shortest(times)
    file.write((",".join(COLUMNS) + "\n").encode())
    # Nine digits give a float32 back as it was.
    for i, run in enumerate(states.tolist()):
        lines = (
            f"{i},{t},{j}," + ",".join([f"{v:.9g}" for v in row])
            for t, rows in zip(stamps, run, strict=True)
            for j, row in enumerate(rows)
        )
        file.write(("\n".join(lines) + "\n").encode())
