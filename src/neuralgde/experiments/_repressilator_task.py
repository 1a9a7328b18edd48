"""The data of the repressilator experiment, stochastic runs for each purpose, and how forecasts of them are scored."""

import dataclasses
from typing import TYPE_CHECKING

import jax
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from .. import metrics
from ..graph import Graph
from ..simulate import ReactionNetwork, repressilator, simulate_reactions

if TYPE_CHECKING:
    from .repressilator import RepressilatorConfig

PROTEINS, MRNAS = (0, 1, 2), (3, 4, 5)
GROUPS = {"all": (*PROTEINS, *MRNAS), "proteins": PROTEINS, "mRNAs": MRNAS}
LEVELS = (50, 90)
# What random numbers are for; no two uses share a key.
PURPOSES = ("runs", "floor", "parameters", "samples")


@dataclasses.dataclass(frozen=True)
class RepressilatorTask:
    """Counts at times 0, 1, …: scaled by the least and the largest of the training runs, z = (n - low) / span."""

    network: ReactionNetwork
    graph: Graph
    half: int
    low: Float[np.ndarray, " species"]
    span: Float[np.ndarray, " species"]
    train: Float[np.ndarray, "_ _ species"]
    validation: Float[np.ndarray, "_ _ species"]
    calibration: Float[np.ndarray, "_ _ species"]
    figures: Float[np.ndarray, "_ _ species"]
    test: Float[np.ndarray, "_ _ species"]

    @staticmethod
    def of(config: "RepressilatorConfig") -> "RepressilatorTask":
        """Simulate by tau-leaping; runs that are tested beyond the end of the others are longer."""
        network = repressilator()
        sizes = {
            "train": config.train_runs, "validation": config.validation_runs, "calibration": config.calibration_runs,
            "figures": config.figure_runs, "test": config.test_runs,
        }  # fmt: skip
        # All at once, which compiles once; each run is independent of the others.
        runs = np.asarray(
            simulate_reactions(
                network, np.arange(config.beyond + 1.0), runs=sum(sizes.values()), method="tau",
                key=purpose_key(config.seed, "runs"),
            ).states
        )  # fmt: skip
        ends = np.cumsum(list(sizes.values()))
        made = {
            purpose: part if purpose in ("figures", "test") else part[:, : config.until + 1]
            for purpose, part in zip(sizes, np.split(runs, ends[:-1]), strict=True)
        }
        low = made["train"].min((0, 1))
        span = np.ptp(made["train"], axis=(0, 1))
        scaled = {purpose: (counts - low) / span for purpose, counts in made.items()}
        return RepressilatorTask(network, network.graph(), config.until // 2, low, span, **scaled)

    def past(self, runs: np.ndarray) -> np.ndarray:
        """The half that is seen."""
        return runs[:, : self.half + 1]

    def after(self, runs: np.ndarray, ahead: np.ndarray) -> np.ndarray:
        """The truth at times after the half."""
        return runs[:, self.half + np.asarray(ahead, int)]

    def clip(self, samples: np.ndarray) -> np.ndarray:
        """Samples without negative counts, which all models could have."""
        return np.maximum(samples, (-self.low / self.span).astype(samples.dtype))

    def floor(self, runs: np.ndarray, ahead: np.ndarray, samples: int, seed: int) -> np.ndarray:
        """The true network run on from the true states: what no forecast can pass."""
        start = np.round(runs[:, self.half] * self.span + self.low)
        found = simulate_reactions(
            self.network, [0.0, *ahead], runs=samples * len(runs), method="tau", initial=np.tile(start, (samples, 1)),
            key=purpose_key(seed, "floor"),
        )  # fmt: skip
        scaled = (np.asarray(found.states)[:, 1:] - self.low) / self.span
        return scaled.reshape(samples, len(runs), *scaled.shape[1:])


def purpose_key(seed: int | Array, purpose: str) -> PRNGKeyArray:
    return jax.random.fold_in(jax.random.key(seed), PURPOSES.index(purpose))


def intervals(samples: np.ndarray, level: float) -> tuple[np.ndarray, np.ndarray]:
    """The middle `level` percent of samples: ends that cover as much on average, whatever the number of samples."""
    low, high = np.quantile(samples, [0.5 - level / 200, 0.5 + level / 200], axis=0, method="weibull")
    return low, high


def score(samples: np.ndarray, truth: np.ndarray, unit: np.ndarray) -> dict[str, np.ndarray]:
    """Each metric by species, of samples (samples, runs, times, species); `unit` is one molecule of each.

    The log likelihood is that of normal distributions with the samples' means and deviations, in nats a point.
    """
    mean = samples.mean(0)
    out = {
        "crps": metrics.crps_samples(samples, truth, fair=len(samples) > 1, axis=(0, 1)),
        "rmse": metrics.rmse(mean, truth, axis=(0, 1)),
    }
    if len(samples) > 1:
        std = np.maximum(samples.std(0), unit / 2)
        out["log_likelihood"] = metrics.log_likelihood(mean, std, truth, axis=(0, 1))
        for level in LEVELS:
            low, high = intervals(samples, level)
            out[f"coverage_{level}"] = metrics.coverage(low, high, truth, axis=(0, 1))
            out[f"width_{level}"] = metrics.interval_width(low, high, axis=(0, 1))
    return {name: np.asarray(values) for name, values in out.items()}
