"""The two tasks of the multi-agent experiment, and how a model is trained for one and tested on it."""

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key, PRNGKeyArray

from ..simulate import ParticleSystem, simulate_particles
from ..train import TrainConfig, TrainResult, fit_seeds, make_seeds
from ._multi_agent_models import make_model
from ._multi_agent_protocol import OneStep, Trial, TrialLoss

if TYPE_CHECKING:
    from .multi_agent import MultiAgentConfig

# Neighbours in time are all but equal, so every so many states of a validation run say as much as all of them.
_VALIDATION_STRIDE = 16


@dataclasses.dataclass(frozen=True)
class Task:
    """What is seen in training and what is tested on; every seed has trajectories of its own to test on, or a copy.

    Where each seed has a trajectory of its own to learn from, `own`, the steps to train and to validate on are numbers
    of times; where all seeds share theirs, they are states and those after them. `suffix` is what the task adds to the
    names of settings; `lengths` are the runs of steps to extrapolate, the last of them the whole.
    """

    suffix: str
    own: Float[Array, "seeds times particles 4"] | None
    train: Any
    validation: Any
    unseen: Float[Array, "seeds runs test_times particles 4"]
    lengths: tuple[int, ...]
    steps: int

    @property
    def seeds(self) -> int:
        return self.unseen.shape[0]

    @property
    def settings(self) -> tuple[str, ...]:
        """The names of the lengths in tables."""
        *steps, _ = self.lengths
        return (*(f"{k} step{'s' if k > 1 else ''}{self.suffix}" for k in steps), f"rollout{self.suffix}")

    def first_seeds(self, seeds: int) -> "Task":
        """The same for fewer seeds."""
        own = None if self.own is None else self.own[:seeds]
        return dataclasses.replace(self, own=own, unseen=self.unseen[:seeds])


def single_task(config: "MultiAgentConfig", seeds: int) -> Task:
    """The paper's: a trajectory for each seed, its first half to train and the second to test."""
    states = jax.vmap(lambda key: _simulate(config, config.system, 1, key)[0])(_seed_keys(config, seeds, "trajectory"))
    half = (states.shape[1] - 1) // 2
    end = half - max(1, round(config.validation_share * half))
    return Task(
        suffix="",
        own=states[:, : half + 1],
        train=np.arange(end, dtype=np.int32),
        validation=np.arange(end, half, dtype=np.int32),
        unseen=states[:, None, half:],
        lengths=(*config.extrapolation, states.shape[1]),
        steps=config.steps,
    )


def many_task(config: "MultiAgentConfig", seeds: int, system: ParticleSystem, suffix: str = "") -> Task:
    """Whole trajectories to train, others to validate, and others to test, the same for all seeds."""
    counts = {"train": config.train_runs, "validation": config.validation_runs, "test": config.test_runs}
    train, validation, unseen = (
        _simulate(config, system, runs, _key(config.seed, purpose)) for purpose, runs in counts.items()
    )
    return Task(
        suffix=f", {config.train_runs} runs{suffix}",
        own=None,
        train=_pairs(train, 1),
        validation=_pairs(validation, _VALIDATION_STRIDE),
        unseen=jnp.broadcast_to(unseen, (seeds, *unseen.shape)),
        lengths=(*config.runs_extrapolation, unseen.shape[1]),
        steps=config.runs_steps,
    )


def _simulate(
    config: "MultiAgentConfig", system: ParticleSystem, runs: int, key: PRNGKeyArray
) -> Float[Array, "runs times particles 4"]:
    run = simulate_particles(
        system, runs=runs, particles=config.particles, duration=config.duration, dt=config.dt, key=key
    )
    return run.states


def _pairs(states: Float[Array, "runs times particles 4"], stride: int) -> tuple[Array, Array]:
    """Every so many states, and those after them."""
    z, z_next = states[:, :-1:stride], states[:, 1::stride]
    return z.reshape(-1, *z.shape[2:]), z_next.reshape(-1, *z.shape[2:])


def train_models(
    name: str, config: "MultiAgentConfig", task: Task, *, rate: float, steps: int | None = None, log: Path | None = None
) -> tuple[Any, TrainResult]:
    """The models of all seeds with the best validation, and how training went."""
    keys = _seed_keys(config, task.seeds, "parameters")
    models = make_seeds(lambda key: make_model(name, config, key=key), keys)
    samples = jax.tree.leaves(task.train)[0].shape[0]
    settings = TrainConfig(
        steps=steps or task.steps,
        batch_size=min(config.batch_size, samples),
        rate=rate,
        log_every=max(1, (steps or task.steps) // 40),
    )
    result = fit_seeds(
        Trial(models, task.own),
        TrialLoss(_one_step(config)),
        task.train,
        settings,
        key=_seed_keys(config, task.seeds, "batches"),
        validation=task.validation,
        frozen=None if task.own is None else lambda trial: trial.states,
        log=log,
    )
    return result.best.model, result


def predict(
    models: Any, config: "MultiAgentConfig", task: Task
) -> Float[np.ndarray, "seeds test_runs lengths steps particles 4"]:
    """What the models of all seeds, or one without parameters, predict of the trajectories to test on."""
    nominal = jnp.asarray(config.adjacency == "nominal")
    return np.asarray(_extrapolate(models, _one_step(config), task.unseen, jnp.asarray(task.lengths), nominal))


@eqx.filter_jit
def _extrapolate(models: Any, step: OneStep, states: Array, lengths: Array, nominal: Array) -> Array:
    def one(model, states):
        return jax.vmap(lambda s: step.extrapolate(model, s, lengths, nominal))(states)

    return eqx.filter_vmap(one)(models, states)


def _one_step(config: "MultiAgentConfig") -> OneStep:
    return OneStep(config.system.radius, config.dt)


# What random numbers are for; no two uses share a key.
_PURPOSES = ("trajectory", "train", "validation", "test", "parameters", "batches")


def _key(seed: int | Array, purpose: str) -> PRNGKeyArray:
    return jax.random.fold_in(jax.random.key(seed), _PURPOSES.index(purpose))


def _seed_keys(config: "MultiAgentConfig", seeds: int, purpose: str) -> Key[Array, " seeds"]:
    """A key for each seed, which does not depend on how many there are."""
    return jax.vmap(lambda seed: _key(seed, purpose))(config.seed + jnp.arange(seeds))
