"""Stochastic runs as files."""

import csv
import sys
from pathlib import Path
from typing import IO

import numpy as np

from .._errors import InputError
from .._files import replace_file, shortest
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
        if path.suffix.lower() == ".npz":
            arrays = {"times": times, "states": states, "species": np.array(run.network.species)}
            replace_file(path, lambda file: np.savez_compressed(file, allow_pickle=False, **arrays))
        else:
            replace_file(path, lambda file: _write_csv(file, run.network.species, times, states))
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror}.") from error


def _write_csv(file: IO[bytes], species: tuple[str, ...], times: np.ndarray, states: np.ndarray) -> None:
    # Nine digits give a float32 back as it was; counts are whole numbers, and shown as such.
    stamps = shortest(times)
    file.write((",".join(["run", "time", *species]) + "\n").encode())
    for i, rows in enumerate(states.tolist()):
        lines = (f"{i},{t}," + ",".join([f"{v:.9g}" for v in row]) for t, row in zip(stamps, rows, strict=True))
        file.write(("\n".join(lines) + "\n").encode())


def read_reactions(path: str | Path, species: tuple[str, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Times and counts, (runs, times, species), of a CSV with the columns run, time and the species, in any order.

    The path "-" is standard input.
    """
    try:
        if str(path) == "-":
            path, lines = "standard input", list(csv.reader(sys.stdin))
        else:
            with Path(path).open(encoding="utf-8", newline="") as file:
                lines = list(csv.reader(file))
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}.") from error
    except UnicodeDecodeError:
        raise InputError(f"{path}: expected a CSV table in UTF-8. Write it with gde simulate sbml … -o.") from None
    header = [name.strip() for name in lines[0]] if lines else []
    wanted = ("run", "time", *species)
    if missing := [name for name in wanted if name not in header]:
        raise InputError(f"{path}, line 1: expected the columns {', '.join(wanted)}, and {missing[0]!r} is missing.")
    places = [header.index(name) for name in wanted]
    found: dict[str, list[list[float]]] = {}
    for number, line in enumerate(lines[1:], start=2):
        if not line:
            continue
        row = []
        for name, place in zip(wanted[1:], places[1:], strict=True):
            cell = line[place] if place < len(line) else ""
            try:
                row.append(float(cell))
            except ValueError:
                raise InputError(f"{path}, line {number}, column {name!r}: expected a number, got {cell!r}.") from None
        found.setdefault(line[places[0]], []).append(row)
    if not found:
        raise InputError(f"{path}: expected runs, and there is no line behind the first.")
    tables = {run: np.array(rows) for run, rows in found.items()}
    first, times = next((run, table[:, 0]) for run, table in tables.items())
    for run, table in tables.items():
        if table.shape[0] != len(times) or not np.array_equal(table[:, 0], times):
            raise InputError(f"{path}: run {run} has other times than run {first}. Record all runs at the same times.")
    return times, np.stack([table[:, 1:] for table in tables.values()])
