"""Files that are written whole or not at all."""

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any


def replace_file(path: Path, write: Callable[[IO[bytes]], Any]) -> Path:
    """Make a file, or put a new one in the place of an old one, once `write` has filled it; its folder is made too."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.stem}", suffix=path.suffix)
    try:
        with os.fdopen(handle, "wb") as file:
            write(file)
        # A temporary file is its owner's alone; results are for others too.
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
    return path
