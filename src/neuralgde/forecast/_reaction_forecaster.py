"""`ReactionForecaster`: the latent model of one's own reaction network, fitted to stochastic runs of it."""

import dataclasses
import tempfile
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from .._errors import CheckpointError, InputError, unknown_name
from ..conformal import Conformal, fit_conformal
from ..graph import Graph
from ..metrics import coverage, crps_samples
from ..model import reaction_gde
from ..simulate import ReactionNetwork, read_sbml, sbml_text, simulate_reactions
from ..train import make_seeds, save_checkpoint, take_seed
from ._model_file import REACTIONS, read_model
from ._reaction_training import (
    ReactionTraining,
    ScaledRuns,
    forecast_reactions,
    half_stride,
    half_windows,
    train_reactions,
)

LEVELS = (50, 90)
# Of the runs, those to train on; what is left is for validation and calibration, half each.
_TRAIN_SHARE = 0.7
_LEAST_RUNS = 6


@dataclasses.dataclass(frozen=True)
class ReactionForecast:
    """Sampled counts, (samples, times, species), at `times`, and the levels' corrections where they were fitted."""

    times: Float[np.ndarray, " times"]
    samples: Float[np.ndarray, "samples times species"]
    species: tuple[str, ...]
    start: float
    corrections: dict[int, tuple[Conformal, ...]]

    @property
    def mean(self) -> Float[np.ndarray, "times species"]:
        return self.samples.mean(0)

    def interval(self, level: int) -> tuple[np.ndarray, np.ndarray]:
        """The ends of the middle `level` percent, corrected where `fit` had runs for it."""
        low, high = _middle(self.samples, level)
        if level in self.corrections:
            gap = self.times - self.start
            ends = [c(low[:, s], high[:, s], gap) for s, c in enumerate(self.corrections[level])]
            low, high = (np.stack(side, axis=1) for side in zip(*ends, strict=True))
        return np.maximum(low, 0), high


@dataclasses.dataclass(frozen=True)
class KnockOut:
    """Counts with some species or reactions silenced, by the learned model and by the true network, and by the model
    without; `network` is None where the true one is not known.
    """

    silenced: tuple[str, ...]
    learned: ReactionForecast
    before: ReactionForecast
    network: ReactionForecast | None


@dataclasses.dataclass(frozen=True)
class ReactionForecaster:
    """The model of a network: `fit` it to runs, then ask for forecasts, attention and knock-outs.

    `scores` has the CRPS of validation in shares of each species' span, as a mean, that of persistence, and the shares
    of the calibration runs inside the intervals before they were corrected.
    """

    network: ReactionNetwork
    model: Any
    low: tuple[float, ...]
    span: tuple[float, ...]
    spacing: float
    training: ReactionTraining
    corrections: dict[int, tuple[Conformal, ...]]
    scores: dict[str, float]

    @staticmethod
    def fit(
        network: ReactionNetwork,
        times: Any,
        runs: Any,
        *,
        training: ReactionTraining | None = None,
        seed: int = 0,
        progress: bool | None = None,
    ) -> "ReactionForecaster":
        """Fit the latent model to counts, (runs, times, species), at times of equal spacing.

        Seven runs of ten are trained on; the rest chooses the parameters and corrects the intervals, half each.
        """
        training = training or ReactionTraining()
        times, counts = _checked(network, times, runs)
        kept = len(counts) - max(2, round((1 - _TRAIN_SHARE) * len(counts)))
        train, rest = counts[:kept], counts[kept:]
        low = train.min((0, 1))
        span = np.ptp(train, axis=(0, 1))
        span = np.where(span > 0, span, 1.0)
        spacing = float(times[1] - times[0])
        scaled = [ScaledRuns(((c - low) / span).astype(np.float32), spacing) for c in (train, rest[::2], rest[1::2])]
        graph = network.graph(signed=True)
        keys = jax.random.split(jax.random.key(seed), 1)
        # Counts change by much in some tenths of a run at most.
        scale = max(spacing, (times[-1] - times[0]) / 30)
        models = make_seeds(
            lambda key: reaction_gde(graph, low.tolist(), span.tolist(), spacing=spacing, time_scale=scale, key=key),
            keys,
        )
        result = train_reactions(models, graph, scaled[0], scaled[1], training, key=keys, progress=progress)
        fitted = ReactionForecaster(
            network, take_seed(result.best, 0), tuple(low.tolist()), tuple(span.tolist()), spacing, training, {}, {}
        )
        return fitted._calibrated(scaled[2])

    def forecast(
        self, history: Any, times: Any, *, start: float = 0.0, samples: int = 200, seed: int = 0
    ) -> ReactionForecast:
        """Counts at `times` after `start`, the time of the last row of `history`, (times, species), at the spacing of
        the runs that were fitted.
        """
        return self._forecast(history, times, start, samples, seed, self.network.graph(signed=True))

    def attention(
        self, history: Any, times: Any, *, start: float = 0.0, samples: int = 16, seed: int = 0
    ) -> tuple[list[tuple[str, str]], Float[np.ndarray, "times edges"]]:
        """The edges, (from, to), and the weight of each along the forecast, a mean over samples.

        Into a reaction: how much it attends to a species; into a species: the reaction's share of what changes it.
        """
        graph = self.network.graph(signed=True)
        found = self._paths(self._history(history), self._ahead(times, start), samples, seed, graph)
        along = eqx.filter_jit(eqx.filter_vmap(lambda m, z, t, g: m.attention(z, t, g), in_axes=(None, 0, None, None)))
        (weights,) = along(self.model(), found.states[:, 0], jnp.asarray(found.times[0]), graph)
        names = self.network.node_names
        edges = [(names[s], names[r]) for s, r in zip(graph.senders.tolist(), graph.receivers.tolist(), strict=True)]
        return edges, np.asarray(weights).mean((0, 3))[1:, : len(edges)]

    def knock_out(
        self, names: Any, history: Any, times: Any, *, start: float = 0.0, samples: int = 200, seed: int = 0,
        true_network: bool = True,
    ) -> KnockOut:  # fmt: skip
        """Silence species or reactions at `start`, and run on: the learned model, and the true network beside it."""
        names = (names,) if isinstance(names, str) else tuple(names)
        nodes = self.network.node_names
        for name in names:
            if name not in nodes:
                raise InputError(unknown_name("species or reaction", name, nodes))
        past = np.array(self._history(history), float)
        gone = [self.network.species.index(name) for name in names if name in self.network.species]
        past[-1, gone] = 0
        graph = self.network.graph(signed=True).with_node_mask(np.array([name not in names for name in nodes]))
        learned = self._forecast(past, times, start, samples, seed, graph)
        learned.samples[..., gone] = 0
        truth = None
        if true_network:
            ahead = self._ahead(times, start)
            now = zip(self.network.species, np.round(past[-1]).tolist(), strict=True)
            counts = {name: count for name, count in now if name not in dict(self.network.rules)}
            made = simulate_reactions(
                self.network.without(*names).with_initial(**counts), [0.0, *ahead], runs=samples, method="tau",
                key=jax.random.key(seed),
            )  # fmt: skip
            states = np.asarray(made.states)[:, 1:]
            truth = ReactionForecast(np.asarray(times, float), states, self.network.species, start, {})
        plain = dataclasses.replace(learned, corrections={})
        return KnockOut(names, plain, self.forecast(history, times, start=start, samples=samples, seed=seed), truth)

    def save(self, path: str | Path, sbml: str | Path | None = None) -> None:
        """Write the model to a file, with the text of the network's SBML file where that is given."""
        meta = {
            "kind": REACTIONS, "species": list(self.network.species), "nodes": list(self.network.node_names),
            "low": list(self.low), "span": list(self.span), "spacing": self.spacing, "scores": self.scores,
            "training": dataclasses.asdict(self.training),
            "corrections": {
                str(level): [[c.shift, c.gaps.tolist(), c.sizes.tolist()] for c in found]
                for level, found in self.corrections.items()
            },
        }  # fmt: skip
        if sbml is not None:
            meta["sbml"] = sbml_text(sbml)
        save_checkpoint(path, {"model": self.model}, meta, keep_previous=False)

    @staticmethod
    def load(path: str | Path, network: ReactionNetwork | None = None) -> "ReactionForecaster":
        """Read a model that `save` wrote, of this network; without one, of the network that is in the file."""
        found = read_model(path, REACTIONS)
        meta = found.meta
        if network is None:
            network = _network(meta.get("sbml"), path)
        if tuple(meta["nodes"]) != network.node_names:
            raise CheckpointError(f"{path} was fitted to another network, of the species {meta['species']}.")
        like = reaction_gde(
            network.graph(signed=True), meta["low"], meta["span"], spacing=meta["spacing"], key=jax.random.key(0)
        )
        corrections = {
            int(level): tuple(Conformal(int(level) / 100, c[0], np.array(c[1]), np.array(c[2])) for c in each)
            for level, each in meta["corrections"].items()
        }
        return ReactionForecaster(
            network, found.restore("model", like), tuple(meta["low"]), tuple(meta["span"]), meta["spacing"],
            ReactionTraining(**meta["training"]), corrections, meta["scores"],
        )  # fmt: skip

    def _calibrated(self, calibration: ScaledRuns) -> "ReactionForecaster":
        """With intervals corrected on runs that chose nothing else, and the scores of forecasts of them."""
        found, truth, gap = self._halves(calibration)
        last = calibration.z[:, (calibration.z.shape[1] - 1) // 2, None]
        scores = {
            "crps": float(crps_samples(found, truth, fair=True)),
            "crps_persistence": float(np.abs(truth - last).mean()),
        }
        corrections: dict[int, tuple[Conformal, ...]] = {}
        span = np.array(self.span)
        for level in LEVELS:
            low, high = _middle(found, level)
            scores[f"coverage_{level}"] = float(coverage(low, high, truth))
            if truth[..., 0].size >= 10 * 100 / (100 - level):
                corrections[level] = tuple(
                    fit_conformal(
                        low[..., s] * span[s], high[..., s] * span[s], truth[..., s] * span[s],
                        np.broadcast_to(gap, low.shape[:2]), level=level / 100,
                    )
                    for s in range(len(span))
                )  # fmt: skip
        return dataclasses.replace(self, corrections=corrections, scores=scores)

    def _halves(self, runs: ScaledRuns) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Samples of the second halves of runs, scaled, the truth, and the time after the half."""
        contexts, seen, truth = half_windows(runs, self.training.context)
        stride = half_stride(runs.z.shape[1])
        ahead = self.spacing * stride * np.arange(truth.shape[1] + 1)
        found = forecast_reactions(
            self.model, contexts, seen, tuple(ahead.tolist()), self.network.graph(signed=True), self.spacing,
            key=jax.random.key(1), samples=100,
        )  # fmt: skip
        least = -np.array(self.low) / np.array(self.span)
        return np.maximum(np.asarray(found.observations)[:, :, 1:, :, 0], least), truth, ahead[1:]

    def _forecast(self, history, times, start, samples, seed, graph: Graph) -> ReactionForecast:
        found = self._paths(self._history(history), self._ahead(times, start), samples, seed, graph)
        scaled = np.asarray(found.observations, float)[:, 0, 1:, :, 0]
        counts = np.maximum(scaled * np.array(self.span) + np.array(self.low), 0)
        return ReactionForecast(np.asarray(times, float), counts, self.network.species, start, self.corrections)

    def _paths(self, history: np.ndarray, ahead: tuple[float, ...], samples: int, seed: int, graph: Graph):
        past = history[-self.training.context :]
        missing = self.training.context - len(past)
        scaled = (past - np.array(self.low)) / np.array(self.span)
        context = np.pad(scaled, ((missing, 0), (0, 0)))[None].astype(np.float32)
        seen = np.arange(self.training.context)[None] >= missing
        return forecast_reactions(
            self.model, context, seen, (0.0, *ahead), graph, self.spacing, key=jax.random.key(seed), samples=samples
        )

    def _history(self, history: Any) -> np.ndarray:
        out = np.asarray(history, float)
        if out.ndim != 2 or out.shape[1] != len(self.network.species) or not len(out) or not np.isfinite(out).all():
            raise InputError(
                f"history: expected finite counts, (times, {len(self.network.species)}), a column for each of "
                f"{list(self.network.species)}, got shape {out.shape}."
            )
        return out

    def _ahead(self, times: Any, start: float) -> tuple[float, ...]:
        out = np.asarray(times, float) - start
        if out.ndim != 1 or not out.size or out[0] <= 0 or (np.diff(out) <= 0).any():
            raise InputError(f"times: expected increasing times after the start, {start:g}, got {times}.")
        return tuple(out.tolist())


def _network(sbml: str | None, path: str | Path) -> ReactionNetwork:
    if sbml is None:
        raise InputError(f"{path} has no SBML text in it. Give the network: ReactionForecaster.load(path, network).")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "model.xml"
        file.write_text(sbml, encoding="utf-8")
        return read_sbml(file)


def _middle(samples: np.ndarray, level: int) -> tuple[np.ndarray, np.ndarray]:
    """The middle `level` percent: ends that cover as much on average, whatever the number of samples."""
    if not 0 < level < 100:
        raise InputError(f"level: expected a percentage between 0 and 100, such as 90, got {level}.")
    low, high = np.quantile(samples, [0.5 - level / 200, 0.5 + level / 200], axis=0, method="weibull")
    return low, high


def _checked(network: ReactionNetwork, times: Any, runs: Any) -> tuple[np.ndarray, np.ndarray]:
    times, counts = np.asarray(times, float), np.asarray(runs, float)
    shape = (len(times), len(network.species))
    if counts.ndim != 3 or counts.shape[1:] != shape or len(counts) < _LEAST_RUNS:
        raise InputError(f"runs: expected {_LEAST_RUNS} runs or more of shape {shape}, got {counts.shape}.")
    if len(times) < 5 or not np.allclose(np.diff(times), times[1] - times[0], rtol=1e-3) or times[1] <= times[0]:
        raise InputError("times: expected five or more at equal spacing. Simulate with one --every for all.")
    if not np.isfinite(counts).all():
        raise InputError("runs: expected finite counts. Leave out runs with gaps.")
    return times, counts
