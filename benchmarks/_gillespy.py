"""GillesPy2 as a contender: the same reactions, its solvers."""

import os
from pathlib import Path

import numpy as np

from ._harness import Job


def birth_death(until: float, initial: int, birth: float, death: float):
    from gillespy2 import Model, Parameter, Reaction, Species, TimeSpan

    model = Model("birth_death")
    x = Species("X", initial_value=initial)
    model.add_species([x])
    model.add_parameter([Parameter("Lambda", birth), Parameter("Mu", death)])
    model.add_reaction(
        [
            Reaction(name="Birth", reactants={x: 1}, products={x: 2}, rate="Lambda"),
            Reaction(name="Death", reactants={x: 1}, products={}, rate="Mu"),
        ]
    )
    model.timespan(TimeSpan.linspace(t=until, num_points=round(until) + 1))
    return model


def repressilator(until: float):
    """The network that `neuralgde.simulate` has built in, reaction by reaction."""
    from gillespy2 import Model, Parameter, Reaction, Species, TimeSpan

    names, initial = ("PX", "PY", "PZ", "X", "Y", "Z"), (0, 0, 0, 0, 20, 0)
    decay, protein_decay = np.log(2) / 2, np.log(2) / 10
    constants = {"kd": decay, "kp": protein_decay, "ktl": 20 * decay, "a": 29.97, "a0": 0.03, "K": 1600.0}
    model = Model("repressilator")
    species = {n: Species(n, initial_value=v) for n, v in zip(names, initial, strict=True)}
    model.add_species(list(species.values()))
    model.add_parameter([Parameter(n, v) for n, v in constants.items()])
    for m, p, r in (("X", "PX", "PZ"), ("Y", "PY", "PX"), ("Z", "PZ", "PY")):
        model.add_reaction(
            [
                Reaction(name=f"decay_{m}", reactants={m: 1}, products={}, rate="kd"),
                Reaction(name=f"decay_{p}", reactants={p: 1}, products={}, rate="kp"),
                Reaction(name=f"make_{p}", reactants={m: 1}, products={m: 1, p: 1}, rate="ktl"),
                Reaction(
                    name=f"make_{m}", reactants={}, products={m: 1}, propensity_function=f"a0 + a*K/(K + {r}*{r})"
                ),
            ]
        )
    model.timespan(TimeSpan.linspace(t=until, num_points=round(until) + 1))
    return model


def moments(x: np.ndarray, over_time: bool = False) -> list[np.ndarray]:
    """Mean and deviation over runs, (runs, times, species); over times too where runs drift out of step."""
    axes = (0, 1) if over_time else 0
    return [x.mean(axes), x.std(axes)]


def job(model, solver_name: str, runs: int, species: tuple[str, ...], over_time: bool = False, **options) -> Job:
    import gillespy2

    # Compiled solvers call SCons with the interpreter behind a virtual environment, which does not see its packages.
    packages = str(Path(gillespy2.__file__).parent.parent)
    os.environ["PYTHONPATH"] = os.pathsep.join([packages, os.environ.get("PYTHONPATH", "")])
    solver = getattr(gillespy2, solver_name)(model=model)
    seed = 0

    def run():
        nonlocal seed
        seed += 1
        made = solver.run(number_of_trajectories=runs, seed=seed, **options)
        x = np.array([[np.asarray(one[s]) for s in species] for one in made]).transpose(0, 2, 1)
        return moments(x, over_time), []

    return Job(run)
