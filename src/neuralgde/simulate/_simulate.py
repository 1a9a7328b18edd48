"""`simulate_reactions`: stochastic runs of a reaction network, thousands at once."""

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float, Int, PRNGKeyArray

from .._arrays import on_device
from .._errors import InputError, SolveError, unknown_name
from . import _lanes
from ._advance import Step, advance, start
from ._expression import TIME, Environment
from ._network import ReactionNetwork
from ._program import Program, build_program, check_counts
from ._ssa import ssa_step
from ._tau import TauStep

METHODS = ("ssa", "tau")
# Few lanes leave less idle when the last runs end, many cost less overhead each: so many runs a lane, within bounds.
_RUNS_A_LANE, _LANES = 8, (256, 2048)
# Steps between two looks of the host, which can show progress and be interrupted: well under a second.
_BUDGET = 4096


class ReactionRun(eqx.Module):
    """Stochastic runs: times (times,), states (runs, times, species), and the steps that each run took.

    A step is a reaction, a leap, or a stop before one.
    """

    times: Float[Array, " times"]
    states: Float[Array, "runs times species"]
    steps: Int[Array, " runs"]
    network: ReactionNetwork


def simulate_reactions(
    network: ReactionNetwork,
    times: ArrayLike | Sequence[float],
    *,
    runs: int = 1,
    method: str = "ssa",
    epsilon: float = 0.03,
    initial: ArrayLike | None = None,
    key: PRNGKeyArray,
    progress: Callable[[float], None] | None = None,
) -> ReactionRun:
    """Counts of all species at the times asked for, in independent runs from the initial counts at `times[0]`.

    - `initial`: counts that each run starts from, (runs, species), in place of the network's.
    - `method`: "ssa" is exact (Gillespie's direct method); "tau" leaps over many reactions at a time, with steps that
      change no rate by more than about the share `epsilon` (Cao, Gillespie and Petzold 2006).
    - `key`: run i depends on the key and on i alone, so more runs repeat the first ones.
    - `progress`: called with the share of runs that are over.

    At the time of an event, the values recorded are those after it. In a leap, triggers that counts set off are seen
    at its end; exact runs see them at the reaction.
    """
    host_times = _check_times(times)
    if runs < 1:
        raise InputError(f"runs: expected 1 or more, got {runs}.")
    if method not in METHODS:
        raise InputError(unknown_name("method", method, METHODS))
    if not 0 < epsilon < 1:
        raise InputError(f"epsilon: expected a share between 0 and 1, got {epsilon}.")
    program, constants, own = build_program(network)
    start_at = check_counts(program, own) if initial is None else _starts(network, program, own, initial, runs)
    # Without reactions there is nothing to leap over.
    step: Step = TauStep(float(epsilon)) if method == "tau" and program.rates else ssa_step
    dtype = jnp.zeros(()).dtype
    root = np.asarray(jax.random.bits(key, (2,), jnp.uint32))
    inputs = (on_device(constants, dtype), on_device(start_at, dtype), on_device(host_times, dtype))

    workers = max(1, min(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1, runs // 64))
    bounds = [round(i * runs / workers) for i in range(workers + 1)]
    left, interrupted = [1.0] * workers, threading.Event()
    x64 = jax.config.jax_enable_x64  # pyright: ignore[reportAttributeAccessIssue]

    def part(i: int) -> list[np.ndarray]:
        if not program.variables:
            length = bounds[i + 1] - bounds[i]
            return [np.zeros((length, len(host_times), 0), dtype), *2 * [np.zeros(length, np.int32)]]

        def report(share: float) -> None:
            if interrupted.is_set():
                raise KeyboardInterrupt
            left[i] = share
            if progress is not None:
                progress(1.0 - sum(left) / workers)

        # Threads do not inherit JAX's precision.
        with jax.enable_x64(x64):
            return _run_part(program, step, *inputs, root, bounds[i], bounds[i + 1], report)

    if workers == 1:
        parts = [part(0)]
    else:
        with ThreadPoolExecutor(workers) as pool:
            try:
                parts = list(pool.map(part, range(workers)))
            except BaseException:
                # The pool waits for its threads, so they have to be told.
                interrupted.set()
                raise
    states, steps, status = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    _raise_failure(program, status, states, host_times)
    observed = _observe(network, program, on_device(states), inputs[2])
    return ReactionRun(inputs[2], observed, on_device(steps), network)


def _run_part(program, step, constants, initial, times, root, first, last, report) -> list[np.ndarray]:
    runs = last - first
    lanes = min(max(runs // _RUNS_A_LANE, _LANES[0]), _LANES[1], runs)
    work = start(program, initial[0] if initial.ndim == 2 else initial, lanes, runs, times.shape[0])
    work = eqx.tree_at(lambda w: w.next_run, work, on_device(first, np.int32))
    plan = (times, jnp.asarray(root), *(on_device(n, np.int32) for n in (first, last, _BUDGET)))
    to_end = 1
    while to_end:
        work, to_end = advance(program, step, constants, initial, plan, work)
        to_end = int(to_end)
        report(to_end / runs)
    return [np.asarray(a) for a in (work.states, work.steps, work.status)]


def _starts(network: ReactionNetwork, program: Program, own: np.ndarray, initial: ArrayLike, runs: int) -> np.ndarray:
    """The initial values of all variables for each run: counts as given, parameters that events change as they are."""
    given = np.asarray(initial, float)
    if given.shape != (runs, len(network.species)):
        raise InputError(
            f"initial: expected shape ({runs}, {len(network.species)}), runs and species, got {given.shape}."
        )
    # Counts that never change are constants of the compiled program, the same in all runs.
    for i, name in enumerate(network.species):
        constant = name not in program.variables and name not in dict(network.rules)
        if constant and np.any(given[:, i] != np.asarray(network.initial)[i]):
            raise InputError(
                f"initial: species {name!r} never changes, so expected {float(network.initial[i]):g} in all runs. "
                "Change it in the network (with_initial)."
            )
    out = np.tile(own, (runs, 1))
    for i, name in enumerate(program.variables):
        if name in network.species:
            out[:, i] = given[:, network.species.index(name)]
    return np.stack([check_counts(program, row) for row in out])


def _check_times(times: Any) -> np.ndarray:
    out = np.asarray(times, float)
    if out.ndim != 1 or out.size == 0 or not np.isfinite(out).all() or (np.diff(out) <= 0).any():
        raise InputError(f"times: expected finite times in increasing order, the first one the start, got {times}.")
    return out


def _observe(network: ReactionNetwork, program: Program, states: Array, times: Array) -> Array:
    """The values of all species: those that never change and those that follow rules put in."""
    rules = dict(network.rules)
    values: dict[str, Any] = {name: v for name, v in network.given().items() if name not in rules}
    values |= {name: states[..., i] for i, name in enumerate(program.variables)}
    environment = Environment({**values, TIME.name: jnp.broadcast_to(times, states.shape[:2])}, rules)
    rows = [jnp.asarray(environment.read(name, jnp), states.dtype) for name in network.species]
    return jnp.stack([jnp.broadcast_to(v, states.shape[:2]) for v in rows], axis=-1)


def _raise_failure(program: Program, status: np.ndarray, states: np.ndarray, times: np.ndarray) -> None:
    if not (failed := np.flatnonzero(status)).size:
        return
    run = int(failed[0])
    code = int(status[run])
    known = ~np.isnan(states[run]).any(axis=-1) if states.shape[-1] else np.ones(len(times), bool)
    time = float(times[max(int(known.sum()) - 1, 0)])
    cause = {
        _lanes.EVENT_CASCADE: "events set each other off without end",
        _lanes.DELAY_OVERFLOW: "an event with a delay was triggered again too often before the delay was over",
        _lanes.TOO_MANY: "a count went past what single precision holds exactly; switch on jax_enable_x64",
    }
    what = cause.get(code) or (
        f"the rate of reaction {program.reactions[code - _lanes.RATE]!r} was negative or not finite; split a "
        "reversible reaction in two, and look at what its formula divides by"
    )
    names = {_lanes.EVENT_CASCADE: "event_cascade", _lanes.DELAY_OVERFLOW: "delays", _lanes.TOO_MANY: "too_many"}
    raise SolveError(f"run {run}, after time {time:g}: {what}.", status=names.get(code, "bad_rate"), time=time)
