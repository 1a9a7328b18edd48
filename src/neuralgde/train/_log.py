"""The history of a run, and the same as lines of JSON.

A line holds nothing that depends on the clock, and the file is written again from the history at a resume: so it is the
same, byte for byte, however often the run was interrupted.
"""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np

from .._errors import InputError
from .._files import replace_file

# The names that every history may have.
FIXED = ("step", "epoch", "rate", "skipped", "loss", "validation")


class History:
    """One entry per event, and a file that follows it where a path is given."""

    def __init__(self, path: str | Path | None, earlier: dict[str, np.ndarray] | None = None):
        self._path = None if path is None else Path(path)
        earlier = earlier or {}
        length = len(next(iter(earlier.values()), ()))
        self._events = [_in_order({name: values[i] for name, values in earlier.items()}) for i in range(length)]
        self._file = None

    def __enter__(self) -> "History":
        if self._path is not None:
            lines = "".join(_line(event) for event in self._events)
            try:
                replace_file(self._path, lambda file: file.write(lines.encode()))
                self._file = self._path.open("a")
            except OSError as error:
                raise InputError(f"log: cannot write {self._path}: {error}.") from error
        return self

    def __exit__(self, *_) -> None:
        if self._file is not None:
            self._file.close()

    def add(self, event: dict[str, Any]) -> None:
        """Keep an event, whose values are numbers or an array with one per seed."""
        event = _in_order(event)
        self._events.append(event)
        if self._file is not None:
            self._file.write(_line(event))
            self._file.flush()

    def arrays(self) -> dict[str, np.ndarray]:
        """The history with events as the first axis."""
        names = list(self._events[0]) if self._events else []
        return {name: np.stack([event[name] for event in self._events]) for name in names}


def _in_order(event: dict[str, Any]) -> dict[str, np.ndarray]:
    """Our names first, then those of the losses by the alphabet: trees and files do not keep the order of names."""
    first = [name for name in FIXED if name in event]
    return {name: np.asarray(event[name]) for name in first + sorted(event.keys() - set(first))}


def _line(event: dict[str, np.ndarray]) -> str:
    return json.dumps({name: _plain(value.tolist()) for name, value in event.items()}, allow_nan=False) + "\n"


def _plain(value: Any) -> Any:
    """JSON has no NaN and no infinity: they become null."""
    if isinstance(value, list):
        return [_plain(v) for v in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
