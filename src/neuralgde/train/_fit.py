"""`fit` and `fit_seeds`: train one model, or many that differ in their seeds."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Key, PRNGKeyArray, UInt32

from .._errors import InputError
from ._config import TrainConfig
from ._loop import train
from ._result import TrainResult

# One for each seed; raw numbers are keys of the old kind.
SeedKeys = Key[Array, " seeds"] | UInt32[Array, "seeds 2"]


def fit(
    model: Any,
    loss_fn: Callable,
    data: Any,
    config: TrainConfig,
    *,
    key: PRNGKeyArray,
    validation: Any = None,
    metric_fn: Callable | None = None,
    frozen: Callable | None = None,
    log: str | Path | None = None,
    checkpoint: str | Path | None = None,
    checkpoint_every: int | None = None,
    progress: bool | None = None,
    time_limit: float | None = None,
) -> TrainResult:
    """Train a model.

    **Arguments**

    - `loss_fn(model, batch, key)`: a scalar, or a pair of it and a dictionary of further scalars to log.
    - `data`: a tree of arrays. With a `batch_size` all have a leading axis of samples.
    - `validation`: data for `metric_fn(model, validation, key)`, which returns the same as a loss, lower is better, and
      is `loss_fn` where it is not given. It decides about `result.best` and early stopping.
    - `frozen`: a function that picks the arrays of the model that are not trained, as the first argument of
      `eqx.tree_at` does.
    - `log`: a file for one line of JSON per event. A new run starts it anew.
    - `checkpoint`: a file that the run is saved to, at the first event after every `checkpoint_every` steps (by default
      at every event) and at its end. Where it exists, the run goes on from there, and ends as if it had never stopped.
    - `progress`: None shows a bar on a terminal and nothing elsewhere, True also prints elsewhere, False is quiet.
    - `time_limit`: about how many seconds there are. Once the first steps have shown how fast it goes, there are as
      many as fit into them, and the schedule is that of so many.
    """
    return train(
        model,
        loss_fn,
        data,
        config,
        _typed(key),
        None,
        validation=validation,
        metric_fn=metric_fn,
        frozen=frozen,
        log=log,
        checkpoint=checkpoint,
        checkpoint_every=checkpoint_every,
        progress=progress,
        time_limit=time_limit,
    )


def fit_seeds(
    models: Any,
    loss_fn: Callable,
    data: Any,
    config: TrainConfig,
    *,
    key: PRNGKeyArray | SeedKeys,
    validation: Any = None,
    metric_fn: Callable | None = None,
    frozen: Callable | None = None,
    log: str | Path | None = None,
    checkpoint: str | Path | None = None,
    checkpoint_every: int | None = None,
    progress: bool | None = None,
    in_turn: bool = False,
) -> TrainResult:
    """Train models that differ in their initial values, all in one program.

    `models` has a leading seed axis on every array, as `make_seeds` makes it; `key` is one key, which is
    split, or one for each seed: seed i is trained as `fit` would with key i. A seed that diverges or stops early keeps
    its state while the others go on. Everything else is as in `fit`.

    Seeds go side by side, as one batch. With `in_turn` each step takes them one after another, which needs the memory
    of one, and is faster where one alone keeps the machine busy.
    """
    leaves = [leaf for leaf in jax.tree.leaves(models) if eqx.is_array(leaf)]
    sizes = {leaf.shape[0] if leaf.ndim else 0 for leaf in leaves}
    if len(sizes) != 1 or 0 in sizes:
        raise InputError(
            "models: expected the same leading seed axis on every array, as make_seeds(make, keys) gives, got the "
            f"sizes {sorted(sizes)}."
        )
    (seeds,) = sizes
    key = _typed(key)
    if key.ndim == 0:
        key = jax.random.split(key, seeds)
    if key.shape != (seeds,):
        raise InputError(f"key: expected one key, or {seeds}, one for each seed, got shape {key.shape}.")
    return train(
        models,
        loss_fn,
        data,
        config,
        key,
        seeds,
        validation=validation,
        metric_fn=metric_fn,
        frozen=frozen,
        log=log,
        checkpoint=checkpoint,
        checkpoint_every=checkpoint_every,
        progress=progress,
        in_turn=in_turn,
    )


def make_seeds(make: Callable[[PRNGKeyArray], Any], keys: SeedKeys) -> Any:
    """The models make(key) of all keys, as `fit_seeds` takes them.

    One program draws all initial values: one by one they would be as many programs as there are shapes. So `make` is
    traced, and cannot look at the values of arrays.
    """
    return eqx.filter_jit(eqx.filter_vmap(make))(_typed(keys))


def _typed(key: Array) -> Array:
    """Keys of the old kind, raw numbers, as keys."""
    return key if jnp.issubdtype(key.dtype, jax.dtypes.prng_key) else jax.random.wrap_key_data(key)
