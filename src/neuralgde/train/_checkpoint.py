"""Checkpoints: trees of arrays and JSON in one file, replaced atomically, with the one before kept beside it."""

import contextlib
import dataclasses
import os
import shutil
import warnings
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from .._arrays import on_device
from .._errors import CheckpointError
from ._safetensors import decode, encode

FORMAT = 1


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """What a file holds: arrays by name, JSON data, and the file that it was read from."""

    arrays: dict[str, np.ndarray]
    meta: dict[str, Any]
    path: Path

    def restore(self, name: str, like: Any) -> Any:
        """The tree stored under `name`; `like` is one of the same structure, shapes and dtypes."""
        leaves, treedef = jax.tree_util.tree_flatten_with_path(like)
        wanted = [name + jax.tree_util.keystr(path) for path, leaf in leaves if eqx.is_array(leaf)]
        stored = {key for key in self.arrays if key == name or key.startswith((f"{name}.", f"{name}["))}
        if unknown := sorted(stored - set(wanted)):
            raise CheckpointError(f"{self.path} holds {unknown[0]}, which is not in what it should restore.")
        return treedef.unflatten([self._leaf(name + jax.tree_util.keystr(path), leaf) for path, leaf in leaves])

    def group(self, name: str) -> dict[str, np.ndarray]:
        """The arrays of a dictionary stored under `name`, whatever their shapes."""
        start = f"{name}['"
        return {key[len(start) : -2]: array for key, array in self.arrays.items() if key.startswith(start)}

    def _leaf(self, name: str, like: Any) -> Any:
        if not eqx.is_array(like):
            return like
        if name not in self.arrays:
            raise CheckpointError(f"{self.path} does not hold {name}. It is of another model, or another optimiser.")
        is_key = jnp.issubdtype(like.dtype, jax.dtypes.prng_key)
        expected = jax.random.key_data(like) if is_key else like
        array = self.arrays[name]
        if array.shape != expected.shape or array.dtype != expected.dtype:
            raise CheckpointError(
                f"{self.path}: {name} has shape {array.shape} and dtype {array.dtype}, expected {expected.shape} and "
                f"{expected.dtype}. It is of another model, or another precision."
            )
        array = on_device(array)
        return jax.random.wrap_key_data(array, impl=jax.random.key_impl(like)) if is_key else array


def save_checkpoint(
    path: str | Path, trees: Mapping[str, Any], meta: Mapping[str, Any], *, keep_previous: bool = True
) -> None:
    """Write the arrays of named trees, and JSON data, to a file.

    The file is replaced at once and as a whole; what was there before is kept under its name with ".prev" after it,
    unless `keep_previous` is False.
    """
    path = Path(path)
    arrays = {}
    for name, tree in trees.items():
        for where, leaf in jax.tree_util.tree_leaves_with_path(tree):
            if eqx.is_array_like(leaf) and hasattr(leaf, "dtype"):
                is_key = jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
                arrays[name + jax.tree_util.keystr(where)] = np.asarray(jax.random.key_data(leaf) if is_key else leaf)
    content = encode(arrays, {"format": FORMAT, "versions": package_versions(), **meta})
    # In the same folder, because only there a rename is atomic. The name is fixed, so that a killed run leaves at most
    # one such file, which the next save overwrites.
    part = path.with_name(path.name + ".part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with part.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        if keep_previous and path.exists():
            _keep(path)
        os.replace(part, path)
        _sync_folder(path.parent)
    except OSError as error:
        raise CheckpointError(f"cannot write the checkpoint {path}: {error}.") from error


def read_checkpoint(path: str | Path) -> Checkpoint:
    """The checkpoint at `path`; where that is damaged, the one before it, with a warning."""
    path = Path(path)
    try:
        return _read(path)
    except ValueError as error:
        problem = str(error)
    previous = previous_of(path)
    if previous.exists():
        with contextlib.suppress(ValueError):
            found = _read(previous)
            warnings.warn(f"{path} is damaged ({problem}): {previous} is used instead.", stacklevel=2)
            return found
    raise CheckpointError(f"the checkpoint {path} is damaged: {problem}. There is no whole one before it.")


def previous_of(path: Path) -> Path:
    """Where the checkpoint before the one at `path` is kept."""
    return path.with_name(path.name + ".prev")


def _keep(path: Path) -> None:
    """Give the file at `path` its second name, so that it is there under one of the two at every moment."""
    spare = path.with_name(path.name + ".spare")
    spare.unlink(missing_ok=True)
    try:
        os.link(path, spare)
    except OSError:
        # Some file systems have no links.
        shutil.copyfile(path, spare)
    os.replace(spare, previous_of(path))
    # A rename between two names of one file does nothing.
    spare.unlink(missing_ok=True)


def _read(path: Path) -> Checkpoint:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise CheckpointError(f"cannot read the checkpoint {path}: {error}.") from error
    arrays, meta = decode(content)
    if meta.get("format") != FORMAT:
        raise CheckpointError(
            f"{path} has format {meta.get('format')}, and this version of neuralgde reads format {FORMAT}. It was "
            f"written with neuralgde {meta.get('versions', {}).get('neuralgde')}: use that version."
        )
    return Checkpoint(arrays, meta, path)


def package_versions() -> dict[str, str]:
    """What wrote a file."""
    return {name: version(name) for name in ("neuralgde", "jax", "equinox", "diffrax", "optax")}


def _sync_folder(folder: Path) -> None:
    """Make the renames last through a loss of power, where the system lets folders be synchronised."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
