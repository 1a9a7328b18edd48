"""The figures of the repressilator experiment."""

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from ..report import PALETTE, new_figure, save_figure
from ..train import take_seed
from ._repressilator_models import OURS, predict_in_parts
from ._repressilator_task import GROUPS, RepressilatorTask, intervals, purpose_key

if TYPE_CHECKING:
    from .repressilator import RepressilatorConfig

CURVE = tuple(range(10, 100, 10))


@dataclasses.dataclass(frozen=True)
class Paths:
    """A model's sampled paths for the runs of the figures, of its first seed, and the attention of all seeds.

    `states` are (samples, runs, times, nodes) at `times` minutes after the half; `attention` is that of the drift along
    the paths of the first run, a mean over samples, for each seed, (seeds, times, slots), self loops last.
    """

    times: np.ndarray
    states: np.ndarray
    attention: np.ndarray


def attention_paths(
    name: str, models: Any, task: RepressilatorTask, config: "RepressilatorConfig", seeds: int
) -> Paths:
    """Paths beyond the end of the training runs, and what the drift attends to along them."""
    ahead = np.concatenate([config.ahead, config.further])
    graph = task.network.graph(signed=True) if name == OURS else task.graph
    states, attention = [], []
    for seed in range(seeds):
        model = take_seed(models, seed)
        number = config.extrapolation_samples
        parts = predict_in_parts(name, model, task, task.figures, config, ahead, number, purpose_key(seed, "samples"))
        count, found = next(parts)
        states.append(np.asarray(found.states)[:, :count, ..., 0])
        inner = model() if name == OURS else model
        along = eqx.filter_jit(eqx.filter_vmap(lambda m, z, t, g: m.attention(z, t, g), in_axes=(None, 0, None, None)))
        (weights,) = along(inner, found.states[:8, 0], jnp.asarray(ahead_with_start(ahead)), graph)
        attention.append(np.asarray(weights).mean((0, 3)))
    return Paths(ahead_with_start(ahead), states[0], np.stack(attention))


def ahead_with_start(ahead: np.ndarray) -> np.ndarray:
    return np.concatenate([[0.0], ahead]).astype(np.float32)


def coverage_curve(samples: np.ndarray, truth: np.ndarray) -> dict[str, np.ndarray]:
    """The share of the truth inside the middle 10, 20, … percent of samples, proteins and mRNAs."""
    out: dict[str, list[float]] = {"proteins": [], "mRNAs": []}
    for level in CURVE:
        low, high = intervals(samples, level)
        inside = (low <= truth) & (truth <= high)
        for group, shares in out.items():
            shares.append(float(inside[..., list(GROUPS[group])].mean()))
    return {group: np.array(shares) for group, shares in out.items()}


def draw_figures(
    folder: Path,
    task: RepressilatorTask,
    config: "RepressilatorConfig",
    paths: dict[str, Paths],
    curves: dict[str, dict[str, np.ndarray]],
) -> None:
    """All figures."""
    _graph(folder / "graph.png", task)
    _coverage(folder / "coverage.png", curves)
    for name, found in paths.items():
        file = name.lower().replace(" ", "-").replace("+", "-plus")
        _forecast(folder / f"forecast-{file}.png", name, found, task, config)
        _attention(folder / f"attention-{file}.png", name, found, task, config)


def _graph(path: Path, task: RepressilatorTask) -> None:
    """The species and reactions with the roles of the first in the second, and the adjacency."""
    network, graph = task.network, task.network.graph()
    species, names = len(network.species), network.node_names
    figure, (ax, matrix) = new_figure(1, 2, size=(11, 5))
    place = np.zeros((len(names), 2))
    # Species on an inner ring, each reaction outside beside the species it changes.
    angles = np.array([0, 2, 4, 1, 3, 5]) * np.pi / 3
    place[:species] = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    taken = {i: 0 for i in range(species)}
    for j, reaction in enumerate(network.reactions):
        own = network.species.index(next(iter(network.change(reaction))))
        angle = angles[own] + (taken[own] - 0.5) * 0.45
        taken[own] += 1
        place[species + j] = 1.9 * np.cos(angle), 1.9 * np.sin(angle)
    styles = (("reactant", PALETTE[2]), ("product", PALETTE[1]), ("modifier", PALETTE[3]))
    drawn = set()
    for s, r, role in zip(graph.senders, graph.receivers, np.asarray(graph.edge_features), strict=True):
        if s >= species:
            continue
        kind, colour = styles[int(np.argmax(role))]
        ends = place[[int(s), int(r)]].T
        ax.plot(*ends, color=colour, linewidth=1.2, zorder=1, label=None if kind in drawn else kind)
        drawn.add(kind)
    ax.scatter(*place[:species].T, s=420, color="white", edgecolor="black", zorder=2)
    ax.scatter(*place[species:].T, s=150, marker="s", color="white", edgecolor="grey", zorder=2)
    for k, name in enumerate(names):
        ax.annotate(
            name if k < species else name.removeprefix("Reaction"), place[k], ha="center", va="center",
            fontsize=9 if k < species else 7, zorder=3,
        )  # fmt: skip
    ax.set_axis_off()
    ax.legend(fontsize=8, loc="lower left")
    ax.set_title("species (circles) and reactions (squares)")
    matrix.imshow(np.asarray(graph.to_dense()), cmap="Greys", vmin=0, vmax=1)
    matrix.set_xticks(range(len(names)), [n.removeprefix("Reaction") for n in names], fontsize=7)
    matrix.set_yticks(range(len(names)), names, fontsize=7)
    matrix.grid(False)
    matrix.set_title("adjacency")
    save_figure(figure, path)


def _forecast(path: Path, name: str, found: Paths, task: RepressilatorTask, config: "RepressilatorConfig") -> None:
    """One run: what was seen, the truth and the bands above; the latent values of its reactions below."""
    species = len(task.span)
    figure, axes = new_figure(3, 3, size=(12, 8), sharex=True)
    shown = task.figures[0] * task.span + task.low
    minutes = np.arange(len(shown))
    after = task.half + found.times
    counts = task.clip(found.states[:, 0, :, :species]) * task.span + task.low
    for s, ax in enumerate(axes[:2].ravel()):
        for level, alpha in ((90, 0.2), (50, 0.35)):
            low, high = intervals(counts[:, :, s], level)
            ax.fill_between(after, low, high, color=PALETTE[1], alpha=alpha, linewidth=0, label=f"{level} %")
        ax.plot(after, counts[:, :, s].mean(0), color=PALETTE[1], linewidth=1, label="mean")
        ax.plot(minutes, shown[:, s], color="black", linewidth=0.8, label="run")
        for end in (task.half, config.until):
            ax.axvline(end, color="grey", linestyle="--", linewidth=0.8)
        ax.set_title(task.network.species[s], fontsize=9)
    axes[0, 0].legend(fontsize=7)
    latent = found.states[:, 0, :, species:].mean(0)
    for k, ax in enumerate(axes[2]):
        own = [j for j, r in enumerate(task.network.reactions) if _gene(task, r) == k]
        for j in own:
            ax.plot(after, latent[:, j], label=task.network.reactions[j].name, linewidth=1)
        ax.legend(fontsize=7)
        ax.set_xlabel(f"minutes; latent reactions of {task.network.species[k]} and {task.network.species[3 + k]}")
    for ax, label in zip(axes[:, 0], ("proteins, molecules", "mRNAs, molecules", "latent values"), strict=True):
        ax.set_ylabel(label)
    figure.suptitle(f"{name}: forecast from {task.half} minutes, extrapolated beyond {config.until}")
    save_figure(figure, path)


def _gene(task: RepressilatorTask, reaction: Any) -> int:
    """The gene whose protein or mRNA a reaction changes."""
    return task.network.species.index(next(iter(task.network.change(reaction)))) % 3


def _attention(path: Path, name: str, found: Paths, task: RepressilatorTask, config: "RepressilatorConfig") -> None:
    """The attention on the edges into and out of each species; bands are one deviation over seeds."""
    graph, species = task.network.graph(), len(task.span)
    senders, receivers = np.asarray(graph.senders), np.asarray(graph.receivers)
    figure, axes = new_figure(2, 3, size=(13, 7), sharex=True, sharey=True)
    after = task.half + found.times
    mean, std = found.attention.mean(0), found.attention.std(0)
    for s, ax in enumerate(axes.ravel()):
        partners = np.unique(receivers[senders == s])
        for colour, partner in zip(PALETTE[1:], partners, strict=False):
            label = task.network.node_names[partner]
            for style, edge in (
                ("-", np.flatnonzero((senders == partner) & (receivers == s))),
                ("--", np.flatnonzero((senders == s) & (receivers == partner))),
            ):
                curve, spread = mean[:, edge[0]], std[:, edge[0]]
                ax.plot(after, curve, style, color=colour, linewidth=1.1, label=label if style == "-" else None)
                ax.fill_between(after, curve - spread, curve + spread, color=colour, alpha=0.12, linewidth=0)
        ax.axvline(config.until, color="grey", linestyle="--", linewidth=0.8)
        ax.set_title(task.network.species[s], fontsize=9)
        ax.legend(fontsize=7)
        if s >= species - 3:
            ax.set_xlabel("minutes")
    for ax in axes[:, 0]:
        ax.set_ylabel("attention weight")
    figure.suptitle(f"{name}: attention into (solid) and out of (dashed) each species, ± deviation over seeds")
    save_figure(figure, path)


def _coverage(path: Path, curves: dict[str, dict[str, np.ndarray]]) -> None:
    figure, axes = new_figure(1, 2, size=(9, 4.4), sharey=True)
    nominal = np.array(CURVE) / 100
    for ax, group in zip(axes, ("proteins", "mRNAs"), strict=True):
        ax.plot([0, 1], [0, 1], color="grey", linestyle=":")
        for colour, (name, found) in zip((*PALETTE[1:], "#999999"), curves.items(), strict=False):
            ax.plot(nominal, found[group], marker=".", label=name, color=colour)
        ax.set(title=group, xlabel="share promised", xlim=(0, 1), ylim=(0, 1))
    axes[0].set_ylabel("share of the truth inside")
    axes[0].legend(fontsize=7)
    save_figure(figure, path)
