"""1000 tau-leaping runs of the repressilator over 300 minutes, steps by Cao, Gillespie and Petzold at 0.03."""

from functools import partial
from pathlib import Path

import numpy as np

from . import _gillespy
from ._harness import Bar, Contender, Job, Least, Report, Work, compare

SPECIES = ("PX", "PY", "PZ", "X", "Y", "Z")
EPSILON = 0.03
COMPILED, EXACT = "GillesPy2 TauLeapingCSolver, compiled", "neuralgde, exact"


def ours(runs: int, until: float, method: str) -> Job:
    import jax

    from neuralgde.simulate import repressilator, simulate_reactions

    network, times = repressilator(), np.arange(until + 1)
    key, made = jax.random.key(0), None

    def run():
        nonlocal key, made
        key, now = jax.random.split(key)
        made = simulate_reactions(network, times, runs=runs, method=method, epsilon=EPSILON, key=now)
        x = np.asarray(made.states, float)
        return [x.mean(0), x.std(0)], []

    return Job(run, lambda: {"steps": int(made.steps.sum())})


def theirs(runs: int, until: float) -> Job:
    return _gillespy.job(_gillespy.repressilator(until), "TauLeapingCSolver", runs, SPECIES, tau_tol=EPSILON)


def works(quick: bool) -> list[Work]:
    runs, until = (20, 20.0) if quick else (1000, 300.0)

    def least(stats: dict[str, int]) -> Least:
        # A leap: twelve rates, their sums by species, and for each reaction a random word and some forty operations.
        return Least(operations=stats["steps"] * 12 * 110.0, bytes=runs * (until + 1) * 6 * 4.0)

    return [
        Work(
            f"{runs} tau-leaping runs of the repressilator",
            (
                Contender("neuralgde", "ours", partial(ours, runs, until, "tau")),
                Contender(COMPILED, "other", partial(theirs, runs, until)),
                Contender(EXACT, "other", partial(ours, runs, until, "ssa")),
            ),
            (Bar(None, (COMPILED,)), Bar(None, (EXACT,))),
            least,
            value_tolerance=0.5 if quick else 0.15,
            gradient_tolerance=0.0,
            rounds=5,
        )
    ]


def run(machine, quick: bool, console, folder: Path) -> Report:
    del folder
    return Report([compare("tau", work, machine, quick, console) for work in works(quick)])
