"""10,000 exact runs of birth and death, the first case of the stochastic test suite: t = 0..50 from 100."""

from functools import partial
from pathlib import Path

import numpy as np

from . import _gillespy
from ._harness import Bar, Contender, Job, Least, Report, Work, compare

INITIAL, BIRTH, DEATH, UNTIL = 100, 0.1, 0.11, 50.0
NUMPY, COMPILED = "GillesPy2 NumPySSASolver", "GillesPy2 SSACSolver, compiled"


def ours(runs: int) -> Job:
    import jax

    from neuralgde.simulate import MassAction, Reaction, ReactionNetwork, simulate_reactions

    network = ReactionNetwork(
        {"X": INITIAL},
        [
            Reaction("Birth", {"X": 1}, {"X": 2}, MassAction("Lambda")),
            Reaction("Death", {"X": 1}, {}, MassAction("Mu")),
        ],
        parameters={"Lambda": BIRTH, "Mu": DEATH},
    )
    times = np.arange(UNTIL + 1)
    key, made = jax.random.key(0), None

    def run():
        nonlocal key, made
        key, now = jax.random.split(key)
        made = simulate_reactions(network, times, runs=runs, key=now)
        return _gillespy.moments(np.asarray(made.states, float)), []

    return Job(run, lambda: {"steps": int(made.steps.sum())})


def theirs(runs: int, solver: str) -> Job:
    return _gillespy.job(_gillespy.birth_death(UNTIL, INITIAL, BIRTH, DEATH), solver, runs, ("X",))


def works(quick: bool) -> list[Work]:
    runs = 200 if quick else 10_000

    def least(stats: dict[str, int]) -> Least:
        # A firing: two rates, their sum, a logarithm, a division, a comparison, and two random words of 20 rounds.
        return Least(operations=stats["steps"] * 130.0, bytes=runs * (UNTIL + 1) * 4.0)

    return [
        Work(
            f"{runs} exact runs of birth and death",
            (
                Contender("neuralgde", "ours", partial(ours, runs)),
                Contender(NUMPY, "other", partial(theirs, runs, "NumPySSASolver")),
                Contender(COMPILED, "other", partial(theirs, runs, "SSACSolver")),
            ),
            (Bar(20.0, (NUMPY,)), Bar(None, (COMPILED,))),
            least,
            # Different random numbers: moments agree to some standard errors.
            value_tolerance=0.2 if quick else 0.03,
            gradient_tolerance=0.0,
            rounds=5,
        )
    ]


def run(machine, quick: bool, console, folder: Path) -> Report:
    del folder
    return Report([compare("ssa", work, machine, quick, console) for work in works(quick)])
