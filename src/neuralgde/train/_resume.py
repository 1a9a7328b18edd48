"""Saving a run and taking it up again."""

import hashlib
import os
import re
import warnings
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key

from .._errors import CheckpointError, InputError
from ._checkpoint import package_versions, read_checkpoint, save_checkpoint
from ._config import TrainConfig
from ._log import History
from ._state import State


class Saver:
    """The checkpoint of one run; does nothing where there is no path."""

    def __init__(
        self,
        path: str | Path | None,
        every: int | None,
        config: TrainConfig,
        model: Any,
        key: Key[Array, "*seeds"],
        inputs: Any,
    ):
        if every is not None and (path is None or every < 1):
            raise InputError(f"checkpoint_every: expected 1 or more steps, and a checkpoint, got {every} and {path}.")
        self._path = None if path is None else Path(path)
        self._every = every or 1
        self._saved = 0
        self._key = key
        # What a run must have in common with the one that it goes on from.
        self._run = {} if path is None else {"config": config.to_dict(), "model": _text(model), "data": _digest(inputs)}

    def resume(self, state: State) -> tuple[int, State, dict[str, np.ndarray] | None, float]:
        """The step to go on from, the state and the history at it, and the seconds spent so far."""
        path = self._path
        if path is None or not path.exists():
            return 0, state, None, 0.0
        found = read_checkpoint(path)
        self._check(found.meta)
        state = found.restore("state", state)
        key = found.restore("key", self._key)
        if not np.array_equal(jax.random.key_data(key), jax.random.key_data(self._key)):
            raise CheckpointError(f"{found.path} is of a run with another key. {self._advice}")
        if found.path != path:
            # The next save would else put it in the place of the good one.
            os.replace(path, path.with_name(path.name + ".damaged"))
        self._saved = found.meta["step"]
        return self._saved, state, found.group("history"), found.meta["seconds"]

    def save(self, step: int, state: State, history: History, seconds: float, ended: bool) -> None:
        """Write the checkpoint if it is time."""
        if self._path is None or not (ended or step - self._saved >= self._every):
            return
        meta = {**self._run, "step": step, "seconds": seconds}
        save_checkpoint(self._path, {"state": state, "key": self._key, "history": history.arrays()}, meta)
        self._saved = step

    @property
    def _advice(self) -> str:
        return f"Give what it was started with, or remove {self._path} and its '.prev' to start afresh."

    def _check(self, meta: dict[str, Any]) -> None:
        if not self._run.keys() <= meta.keys():
            raise CheckpointError(f"{self._path} is a checkpoint, but not one of a training run.")
        then, now = meta["config"], self._run["config"]
        for name in {**then, **now}:
            if then.get(name) != now.get(name):
                raise CheckpointError(
                    f"{self._path} is of a run with {name}={then.get(name)!r}, and this one has {now.get(name)!r}. "
                    f"{self._advice}"
                )
        if meta["model"] != self._run["model"]:
            pairs = zip(meta["model"].splitlines(), self._run["model"].splitlines(), strict=False)
            old, new = next(((a, b) for a, b in pairs if a != b), ("", ""))
            raise CheckpointError(
                f"{self._path} is of another model: it has {old.strip()!r} where this one has {new.strip()!r}. "
                f"{self._advice}"
            )
        if meta["data"] != self._run["data"]:
            raise CheckpointError(f"{self._path} is of a run on other data. {self._advice}")
        versions = package_versions()
        if meta["versions"] != versions:
            warnings.warn(
                f"{self._path} was written with {meta['versions']}, and these are {versions}: the run goes on, but may "
                "differ in the last bits from one that was not interrupted.",
                stacklevel=2,
            )


def _text(model: Any) -> str:
    """The structure of a model, with shapes and settings but no values."""
    # Functions and objects print where they are in memory, which differs from run to run.
    return re.sub(r" at 0x[0-9a-f]+", "", eqx.tree_pformat(model, short_arrays=True))


def _digest(tree: Any) -> str:
    """A fingerprint of all arrays."""
    digest = hashlib.sha256()
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
        if eqx.is_array(leaf):
            leaf = jax.random.key_data(leaf) if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key) else leaf
            digest.update(f"{jax.tree_util.keystr(path)} {leaf.dtype} {leaf.shape}".encode())
            digest.update(np.ascontiguousarray(leaf).tobytes())
    return digest.hexdigest()
