"""The loop: steps, a look at the validation data, a log, a checkpoint, and again."""

import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Key

from .._arrays import on_device
from .._errors import InputError
from ._batches import as_arrays, make_batches
from ._config import TrainConfig
from ._figures import figures_of, rename, which_are_trained
from ._log import History
from ._optimiser import make_optimiser
from ._progress import ProgressBar
from ._result import TrainResult
from ._resume import Saver
from ._run import make_keys, run_steps, run_validation, start_all
from ._schedule import rate_at
from ._state import Program, State, TrainStatus


def train(
    model: Any,
    loss_fn: Callable,
    data: Any,
    config: TrainConfig,
    key: Key[Array, "*seeds"],
    seeds: int | None,
    *,
    validation: Any,
    metric_fn: Callable | None,
    frozen: Callable | None,
    log: str | Path | None,
    checkpoint: str | Path | None,
    checkpoint_every: int | None,
    progress: bool | None,
    in_turn: bool = False,
    time_limit: float | None = None,
) -> TrainResult:
    """Train as `fit` says, with a leading seed axis on all arrays where there are seeds."""
    began = time.perf_counter()
    data, validation, loss_fn, metric_fn = as_arrays((data, validation, loss_fn, metric_fn))
    if config.patience is not None and validation is None:
        raise InputError("patience: early stopping needs validation data. Give validation=…, or leave patience out.")
    if metric_fn is not None and validation is None:
        raise InputError("metric_fn: it is computed on validation data. Give validation=….")
    batches = make_batches(data, config)
    per_epoch = batches.steps_per_epoch
    total = config.steps or (config.epochs or 1) * per_epoch
    every = min(config.log_every or max(1, total // 100), total)

    arrays, static = eqx.partition(model, eqx.is_array)
    # A step makes strong types of weak ones, which would be another program.
    arrays = jax.tree.map(lambda a: jax.lax.convert_element_type(a, a.dtype) if a.weak_type else a, arrays)
    trained = which_are_trained(arrays, frozen)
    tx = make_optimiser(config.optimiser, config.weight_decay, config.clip)
    limit = np.inf if config.divergence is None else config.divergence
    program = Program(static, trained, loss_fn, metric_fn or loss_fn, tx, config.max_skipped, limit)
    keys = make_keys(key, seeds)
    figures = figures_of(program, batches, arrays, data, keys, seeds)
    state = start_all(program, arrays, figures["loss"].dtype, seeds)
    saver = Saver(checkpoint, checkpoint_every, config, model, key, (data, loss_fn, validation, metric_fn))
    step, state, earlier, seconds = saver.resume(state)
    patience = on_device(np.iinfo(np.int32).max if config.patience is None else config.patience, np.int32)

    def advance(state: State, step: int, count: int, rates: np.ndarray):
        numbers = on_device(step, np.int32), on_device(count, np.int32), on_device(rates, figures["loss"].dtype)
        return run_steps(program, batches, state, keys, data, *numbers, figures, seeds, config.same_order, in_turn)

    def look(state: State):
        return run_validation(program, state, keys, validation, patience, seeds, in_turn)

    def running(state: State) -> int:
        return int(np.sum(np.asarray(state.status) == TrainStatus.RUNNING))

    ended = step == total or not running(state)
    with History(log, earlier) as history, ProgressBar(total, step, False if ended else progress) as bar:
        if not ended:
            rates = rate_at(config, np.arange(step, step + every), total, per_epoch)
            _, values = jax.block_until_ready(advance(state, step, 0, rates))
            if validation is not None:
                rename(look(state)[1], values, metric_fn is None)
            bar.compiled()
        compiled, first = time.perf_counter(), step
        while not ended:
            if time_limit is not None and step > first:
                total = _affordable(total, step, every, first, compiled, began + time_limit)
                bar.expect(total)
            count = min(every, total - step)
            rates = rate_at(config, np.arange(step, step + every), total, per_epoch)
            state, values = advance(state, step, count, rates)
            step += count
            if validation is not None:
                state, seen = look(state)
                values |= rename(seen, values, metric_fn is None)
            values |= {"step": step, "epoch": step / per_epoch, "rate": rates[count - 1], "skipped": state.skipped}
            event = jax.device_get(values)
            history.add(event)
            bar.update(step, event, running(state))
            ended = step == total or not running(state)
            saver.save(step, state, history, seconds + time.perf_counter() - began, ended)

    result = _result(program, state, history.arrays(), validation is not None, seconds + time.perf_counter() - began)
    if np.any(result.status == TrainStatus.DIVERGED):
        warnings.warn(
            f"training diverged. {result.summary} Those that diverged keep their last good parameters. Usual fix: a "
            "smaller rate, clip=1.0, or tighter tolerances of the solver.",
            stacklevel=3,
        )
    return result


def _affordable(total: int, step: int, every: int, first: int, compiled: float, deadline: float) -> int:
    """As many steps as there is time for, by how fast they went, at least to the next event."""
    now = time.perf_counter()
    each = (now - compiled) / (step - first)
    return min(total, step + max(every, int((deadline - now) / each) // every * every))


def _result(program: Program, state: State, history: dict, validated: bool, seconds: float) -> TrainResult:
    status = np.asarray(state.status)
    _, rest = program.split(state.arrays)
    model = program.model(state.arrays)
    return TrainResult(
        model=model,
        best=program.model(eqx.combine(state.best, rest)) if validated else model,
        history=history,
        status=np.where(status == TrainStatus.RUNNING, TrainStatus.FINISHED, status),
        skipped=np.asarray(state.skipped),
        steps=np.asarray(state.steps),
        best_validation=np.asarray(state.best_value) if validated else None,
        seconds=seconds,
    )
