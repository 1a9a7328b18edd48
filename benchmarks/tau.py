"""Tau-leaping runs of the repressilator over 300 minutes, steps by Cao, Gillespie and Petzold at 0.03."""

from functools import partial
from pathlib import Path

import numpy as np

from . import _gillespy
from ._harness import Bar, Contender, Job, Least, Report, Work, compare

SPECIES = ("PX", "PY", "PZ", "X", "Y", "Z")
EPSILON = 0.03
EXACT, PEER_EXACT = "neuralgde, exact", "GillesPy2 SSACSolver, exact, compiled"
PEER = "GillesPy2 TauLeapingCSolver, compiled"


def ours(runs: int, until: float, method: str) -> Job:
    import jax

    from neuralgde.simulate import repressilator, simulate_reactions

    network, times = repressilator(), np.arange(until + 1)
    key, made = jax.random.key(0), None

    def run():
        nonlocal key, made
        key, now = jax.random.split(key)
        made = simulate_reactions(network, times, runs=runs, method=method, epsilon=EPSILON, key=now)
        return _gillespy.moments(np.asarray(made.states, float), over_time=True), []

    return Job(run, lambda: {"steps": int(made.steps.sum())})


def theirs(runs: int, until: float, solver: str, **options) -> Job:
    return _gillespy.job(_gillespy.repressilator(until), solver, runs, SPECIES, over_time=True, **options)


def works(quick: bool) -> list[Work]:
    # The peer's leaps take seconds a run, so there are few of them.
    until, many, few = (30.0, 100, 10) if quick else (300.0, 1000, 10)

    def least(runs: int, stats: dict[str, int]) -> Least:
        # A leap: twelve rates, their sums by species, and for each reaction a random word and some forty operations.
        return Least(operations=stats["steps"] * 12 * 110.0, bytes=runs * (until + 1) * 6 * 4.0)

    leaping = {"tau_tol": EPSILON}
    return [
        Work(
            f"{many} tau-leaping runs of the repressilator",
            (
                Contender("neuralgde", "ours", partial(ours, many, until, "tau")),
                Contender(EXACT, "other", partial(ours, many, until, "ssa")),
                Contender(PEER_EXACT, "other", partial(theirs, many, until, "SSACSolver")),
            ),
            (Bar(None, (EXACT,)), Bar(None, (PEER_EXACT,))),
            partial(least, many),
            value_tolerance=0.1 if quick else 0.06,
            gradient_tolerance=0.0,
            rounds=3,
        ),
        Work(
            f"{few} tau-leaping runs of the repressilator",
            (
                Contender("neuralgde", "ours", partial(ours, few, until, "tau")),
                Contender(PEER, "other", partial(theirs, few, until, "TauLeapingCSolver", **leaping)),
            ),
            (Bar(None, (PEER,)),),
            partial(least, few),
            # Ten runs are few, and the peer's leaps make about 15 % less of the first protein than its exact solver.
            value_tolerance=0.4,
            gradient_tolerance=0.0,
            rounds=3,
        ),
    ]


def run(machine, quick: bool, console, folder: Path) -> Report:
    del folder
    return Report([compare("tau", work, machine, quick, console) for work in works(quick)])
