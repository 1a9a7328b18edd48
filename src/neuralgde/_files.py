"""Files that are written whole or not at all, and numbers in them that can be read again as they were."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import numpy as np


def replace_file(path: Path, write: Callable[[IO[bytes]], Any]) -> Path:
    """Make a file, or put a new one in the place of an old one, once `write` has filled it; its folder is made too."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # In the same folder, because only there a rename is atomic.
    part = path.with_name(path.name + ".part")
    try:
        with part.open("wb") as file:
            write(file)
        os.replace(part, path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    return path


def shortest(values: np.ndarray) -> list[str]:
    """Numbers as text, with no more digits than give them back as they were: 0.1 is 0.1 in single precision too."""
    return [np.format_float_positional(v, trim="-") for v in values]
