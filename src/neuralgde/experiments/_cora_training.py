"""How a classifier of the Cora experiment is trained over seeds, and what is measured of it."""

import dataclasses
import functools
from pathlib import Path
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key, PRNGKeyArray

from .. import metrics
from ..graph import Graph
from ..train import TrainConfig, TrainResult, TrainStatus, fit_seeds, make_seeds
from ._cora_models import SHALLOW, Classifier, make_classifier
from ._cora_papers import Papers

if TYPE_CHECKING:
    from .cora import CoraConfig

# Closed forms are few large products, which are faster for all seeds at once; the others are many small ones.
_SIDE_BY_SIDE = ("CGNN",)


@dataclasses.dataclass(frozen=True)
class Outcome:
    """A model at one length: what its seeds' chosen parameters are worth, and how they came to be. Shares, not percent.

    `curve` is the test accuracy along training, at `iterations`; it is drawn, and nothing is chosen by it. `energy` is
    the Dirichlet energy of the chosen models' states along `depth`, from 0 to the length. `trouble` tells of steps and
    seeds that failed, and is empty where none did.
    """

    model: str
    setting: str
    accuracy: Float[np.ndarray, " seeds"]
    validation: Float[np.ndarray, " seeds"]
    iterations: Int[np.ndarray, " events"]
    curve: Float[np.ndarray, "events seeds"]
    depth: Float[np.ndarray, " states"]
    energy: Float[np.ndarray, "states seeds"]
    trouble: str


def setting_of(name: str, span: float) -> str:
    """The length of a model as tables name it."""
    return "2 layers" if name in SHALLOW else f"S={span:g}"


def train_model(
    name: str, span: float, config: "CoraConfig", papers: Papers, seeds: int, folder: Path | None = None
) -> Outcome:
    """Train a model for all seeds, so many at once as the config says, choose by validation, and test."""
    parts = [
        _train_seeds(name, span, config, papers, np.arange(first, min(first + config.seeds_at_once, seeds)), folder)
        for first in range(0, seeds, config.seeds_at_once)
    ]
    found = [_evaluate(result.best, papers) for result in parts]
    join = functools.partial(np.concatenate, axis=-1)
    energy = join([np.asarray(energy).T for _, _, energy in found])
    return Outcome(
        model=name,
        setting=setting_of(name, span),
        accuracy=join([np.asarray(test) for _, test, _ in found]),
        validation=join([np.asarray(validation) for validation, _, _ in found]),
        iterations=np.asarray(parts[0].history["step"]),
        curve=join([_whole(result, "test_accuracy", parts[0]) for result in parts]),
        depth=np.linspace(0.0, span, energy.shape[0]),
        energy=energy,
        trouble=" ".join(result.summary for result in parts if _went_wrong(result)),
    )


def _went_wrong(result: TrainResult) -> bool:
    return bool(np.any(result.skipped) or np.any(result.status != TrainStatus.FINISHED))


def _whole(result: TrainResult, name: str, first: TrainResult) -> np.ndarray:
    """A figure's history; where a batch of seeds ended early, its last value goes on."""
    values, events = result.history[name], len(first.history["step"])
    return np.concatenate([values[:events], np.repeat(values[-1:], max(0, events - len(values)), axis=0)])


def _train_seeds(
    name: str, span: float, config: "CoraConfig", papers: Papers, seeds: np.ndarray, folder: Path | None
) -> TrainResult:
    pace = config.pace(span)
    make = functools.partial(make_classifier, name, span, config, papers.num_words, papers.num_classes)
    models = make_seeds(lambda key: make(key=key), _seed_keys(config, seeds, "parameters"))
    log = None if folder is None else folder / f"{name}, {setting_of(name, span)}, seeds {seeds[0]}-{seeds[-1]}.jsonl"
    return fit_seeds(
        models,
        train_loss,
        papers,
        TrainConfig(
            steps=pace.iterations,
            rate=pace.rate,
            weight_decay=config.regularisation[name].weight_decay,
            log_every=config.look_every,
        ),
        key=_seed_keys(config, seeds, "dropout"),
        validation=papers,
        metric_fn=validation_loss,
        log=log,
        in_turn=name not in _SIDE_BY_SIDE,
    )


def train_loss(model: Classifier, papers: Papers, key: PRNGKeyArray) -> Float[Array, ""]:
    """Cross-entropy on the papers to train on, under dropout."""
    return _cross_entropy(model(papers, key), papers.labels, papers.train)


def validation_loss(model: Classifier, papers: Papers, key: PRNGKeyArray) -> tuple[Array, dict[str, Array]]:
    """Cross-entropy on the papers to validate on, which chooses; accuracies, which are logged."""
    del key
    logits = model(papers)
    figures = {
        "validation_accuracy": _accuracy(logits, papers.labels, papers.val),
        "test_accuracy": _accuracy(logits, papers.labels, papers.test),
    }
    return _cross_entropy(logits, papers.labels, papers.val), figures


def dirichlet_energy(z: Float[Array, "nodes hidden"], graph: Graph) -> Float[Array, ""]:
    """The sum over citations of ||z_u - z_v||^2, over ||z||^2: 0 where no paper can be told from those beside it."""
    total = jnp.sum(z**2)
    return jnp.sum(z * (graph.operator("laplacian") @ z)) / jnp.where(total == 0, 1, total)


@eqx.filter_jit
def _evaluate(models: Any, papers: Papers) -> tuple[Array, Array, Array]:
    """Validation and test accuracy of each seed's model, and the energy along its states (seeds, states)."""
    arrays, static = eqx.partition(models, eqx.is_array)
    graph = papers.graph.prepare("laplacian")

    def one(arrays):
        model = eqx.combine(arrays, static)
        logits = model(papers)
        energy = jax.lax.map(lambda z: dirichlet_energy(z, graph), model.path(papers))
        return _accuracy(logits, papers.labels, papers.val), _accuracy(logits, papers.labels, papers.test), energy

    return jax.lax.map(one, arrays)


def _cross_entropy(logits: Array, labels: Array, chosen: Array) -> Array:
    return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(logits[chosen]), labels[chosen, None], axis=1))


def _accuracy(logits: Array, labels: Array, chosen: Array) -> Array:
    return jnp.asarray(metrics.accuracy(jnp.argmax(logits[chosen], axis=-1), labels[chosen]))


_PURPOSES = ("parameters", "dropout")


def _seed_keys(config: "CoraConfig", seeds: np.ndarray, purpose: str) -> Key[Array, " seeds"]:
    """A key for each seed, which depends on neither their number nor how many are trained at once."""
    number = _PURPOSES.index(purpose)
    return jax.vmap(lambda seed: jax.random.fold_in(jax.random.key(seed), number))(config.seed + jnp.asarray(seeds))
