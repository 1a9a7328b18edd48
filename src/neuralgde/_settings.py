"""Checks that dataclasses of settings share."""

import dataclasses
import math
from collections.abc import Iterable
from typing import Any

from ._errors import InputError, unknown_name


def check_number(name: str, value: Any, *, whole: bool = False, zero: bool = False) -> None:
    """Refuse what is no positive number; `whole` wants 1, 2 and so on, and `zero` lets 0 pass."""
    right = isinstance(value, int if whole else int | float) and not isinstance(value, bool)
    if not right or not math.isfinite(value) or value < 0 or (value == 0 and not zero):
        least = "0 or more" if zero else "1 or more"
        kind = f"a whole number, {least}" if whole else "a number, 0 or more" if zero else "a positive number"
        raise InputError(f"{name}: expected {kind}, got {value!r}.")


def check_names(kind: str, names: Iterable[str], settings: type) -> None:
    """Refuse names that the dataclass `settings` has no field of."""
    known = [field.name for field in dataclasses.fields(settings)]
    for name in names:
        if name not in known:
            raise InputError(unknown_name(kind, name, known))
