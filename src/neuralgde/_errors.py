"""The errors that users meet."""

import difflib
from collections.abc import Iterable


class InputError(ValueError):
    """What was given cannot be used: the message says what was expected and what came."""


class SolveError(RuntimeError):
    """A differential equation was not solved to its end.

    `status` names the cause; `time` is the time that was reached, where it is known.
    """

    status: str
    time: float | None

    def __init__(self, message: str, *, status: str, time: float | None = None):
        super().__init__(message)
        self.status = status
        self.time = time


class CheckpointError(RuntimeError):
    """A file of a stored model is damaged, or is not one that this version can read."""


def unknown_name(kind: str, name: object, known: Iterable[str]) -> str:
    """The message for a name that is not in a table: the nearest known one first, then all of them."""
    names = [str(k) for k in known]
    near = difflib.get_close_matches(str(name), names, n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    return f"unknown {kind} {name!r}.{hint} Known: {', '.join(names)}."
