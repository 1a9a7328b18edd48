"""A page's data in a run folder, so that the page can be made again: `page.json` the words, `page.npz` the arrays."""

import dataclasses
import json
import types
import typing
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from .._errors import InputError
from .._files import replace_file
from ._page_data import Page

_WORDS, _ARRAYS = "page.json", "page.npz"
# Raised when what the files hold changes its meaning.
_FORMAT = 1


def write_page_data(folder: str | Path, page: Page) -> Path:
    """Write `page.json` and `page.npz`; the folder is made if it is missing. Returns the folder."""
    folder = Path(folder)
    arrays: dict[str, np.ndarray] = {}
    words = {"format": _FORMAT, "page": _take_apart(page, "page", arrays)}
    text = json.dumps(words, indent=1, allow_nan=False, ensure_ascii=False)
    # The words last: they make a folder one that has a page.
    replace_file(folder / _ARRAYS, lambda file: np.savez_compressed(file, allow_pickle=False, **arrays))
    replace_file(folder / _WORDS, lambda file: file.write(text.encode() + b"\n"))
    return folder


def read_page_data(folder: str | Path) -> Page:
    """The page of a run folder."""
    path = Path(folder) / _WORDS
    try:
        words = json.loads(path.read_text(encoding="utf-8"))
        if words.get("format") != _FORMAT:
            raise InputError(
                f"{path}: expected format {_FORMAT}, got {words.get('format')!r}: another version wrote it. "
                "Write it again with this one."
            )
        with np.load(path.with_name(_ARRAYS), allow_pickle=False) as stored:
            return _put_together(Page, words["page"], dict(stored))
    except FileNotFoundError as error:
        raise InputError(
            f"{error.filename}: there is no such file. Give the folder that `gde demo` or `gde backtest -o` wrote."
        ) from None
    except json.JSONDecodeError as error:
        raise InputError(f"{path}:{error.lineno}: not JSON ({error.msg}). Run the command again.") from None
    except (KeyError, TypeError, AttributeError, zipfile.BadZipFile, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path}: not a page's data ({error}). Run the command that wrote it again.") from None


def has_page_data(folder: str | Path) -> bool:
    """Whether a folder has the data of a page."""
    return (Path(folder) / _WORDS).is_file()


def _take_apart(value: Any, name: str, arrays: dict[str, np.ndarray]) -> Any:
    """What JSON can hold; an array moves to `arrays`, and its name stands in its place."""
    if dataclasses.is_dataclass(value):
        return {
            f.name: _take_apart(getattr(value, f.name), f"{name}.{f.name}", arrays) for f in dataclasses.fields(value)
        }
    if isinstance(value, dict):
        return {str(k): _take_apart(v, f"{name}.{k}", arrays) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_take_apart(v, f"{name}.{i}", arrays) for i, v in enumerate(value)]
    if isinstance(value, bytes):
        value = np.frombuffer(value, np.uint8)
    if isinstance(value, np.ndarray):
        # Names of nodes and models may hold anything, and these names become those of files in an archive.
        key = f"a{len(arrays)}"
        arrays[key] = value
        return {"array": key, "of": name}
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, Path):
        value = str(value)
    return None if isinstance(value, float) and not np.isfinite(value) else value


def _put_together(kind: Any, value: Any, arrays: dict[str, np.ndarray]) -> Any:
    """The value of a field of type `kind`."""
    options = typing.get_args(kind) if typing.get_origin(kind) in (typing.Union, types.UnionType) else (kind,)
    if value is None:
        return float("nan") if float in options and type(None) not in options else None
    kind = next(option for option in options if option is not type(None))
    if dataclasses.is_dataclass(kind):
        hints = typing.get_type_hints(kind)
        return typing.cast(Any, kind)(**{k: _put_together(hints[k], v, arrays) for k, v in value.items()})
    if isinstance(value, dict) and set(value) == {"array", "of"}:
        array = arrays[value["array"]]
        return array.tobytes() if kind is bytes else array
    inner = typing.get_args(kind)
    if typing.get_origin(kind) is tuple:
        return tuple(_put_together(inner[0], v, arrays) for v in value)
    if isinstance(value, dict) and inner:
        return {k: _put_together(inner[1], v, arrays) for k, v in value.items()}
    return value
