"""Which samples make the batch of a step."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, PRNGKeyArray, PyTree

from .._arrays import on_device
from .._errors import InputError
from ._config import TrainConfig


class Batches(eqx.Module):
    """The order of samples, epoch by epoch, as a function of the key alone: nothing of it needs to be stored."""

    num_samples: int
    batch_size: int | None
    shuffle: bool

    @property
    def steps_per_epoch(self) -> int:
        return 1 if self.batch_size is None else self.num_samples // self.batch_size

    def order(self, key: PRNGKeyArray, epoch: Array) -> Int[Array, " samples"]:
        """The samples in the order of an epoch."""
        if not self.shuffle:
            return jnp.arange(self.num_samples)
        return jax.random.permutation(jax.random.fold_in(key, epoch), self.num_samples)

    def take(self, data: PyTree, order: Int[Array, " samples"], position: Array) -> PyTree:
        """The batch at a position in an epoch; all data where there are no batches."""
        if self.batch_size is None:
            return data
        chosen = jax.lax.dynamic_slice_in_dim(order, position * self.batch_size, self.batch_size)
        return jax.tree.map(lambda leaf: leaf[chosen] if eqx.is_array(leaf) else leaf, data)


def make_batches(data: PyTree, config: TrainConfig) -> Batches:
    """The batches of these data, which are checked."""
    if config.batch_size is None:
        return Batches(1, None, False)
    leaves = [(p, leaf) for p, leaf in jax.tree_util.tree_leaves_with_path(data) if eqx.is_array(leaf)]
    if not leaves:
        raise InputError("data: expected arrays with a leading axis of samples to take batches from, got none.")
    path, first = leaves[0]
    for name, leaf in leaves:
        if leaf.ndim == 0 or first.ndim == 0 or leaf.shape[0] != first.shape[0]:
            raise InputError(
                f"data: with a batch_size every array needs the same number of samples as its first axis, but "
                f"data{jax.tree_util.keystr(path)} has shape {first.shape} and data{jax.tree_util.keystr(name)} "
                f"{leaf.shape}. Put arrays that all samples share into the loss: eqx.Partial(loss_fn, graph=graph)."
            )
    if config.batch_size > first.shape[0]:
        raise InputError(
            f"batch_size: expected at most the number of samples, {first.shape[0]}, got {config.batch_size}. "
            "None takes all of them as one batch."
        )
    return Batches(first.shape[0], config.batch_size, config.shuffle)


def as_arrays(tree: Any) -> Any:
    """NumPy arrays as JAX arrays, which are arguments of a compiled program and not constants in it."""
    return jax.tree.map(lambda leaf: on_device(leaf) if isinstance(leaf, np.ndarray) else leaf, tree)
