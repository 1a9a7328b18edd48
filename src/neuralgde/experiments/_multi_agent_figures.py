"""The figures of the multi-agent experiment."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
import numpy as np

from ..report import PALETTE, Row, new_figure, save_figure
from ._multi_agent_tables import PERSISTENCE, TRUTH
from ._multi_agent_tasks import Task

if TYPE_CHECKING:
    from .multi_agent import MultiAgentConfig

# A model looks the same in all figures; what is no model is black. The paper's two share a colour.
_BLACK, _BLUE, _VERMILION, _GREEN, _PURPLE, _SKY, _ORANGE, _ = PALETTE
_STYLES = {
    TRUTH: {"color": _BLACK},
    PERSISTENCE: {"color": _BLACK, "linestyle": ":"},
    "Static": {"color": "#999999"},
    "Neural ODE": {"color": _ORANGE},
    "GCDE": {"color": _GREEN},
    "GCDE-II": {"color": _GREEN, "linestyle": "--"},
    "HGN": {"color": _PURPLE},
    "GADE-II": {"color": _SKY},
    "GMDE-II absolute": {"color": _BLUE, "linestyle": "--"},
    "GMDE-II": {"color": _VERMILION},
}
_SNAPSHOTS = 5
_SHOWN = ("Neural ODE", "GCDE", "GCDE-II", "GMDE-II")


def draw_figures(
    folder: Path,
    config: "MultiAgentConfig",
    task: Task,
    predicted: dict[str, np.ndarray],
    rows: Sequence[Row],
    energy: dict[str, np.ndarray],
) -> None:
    """All figures: of the first seed's system, of the errors in `rows`, and of the energies (seeds, times)."""
    # The seed axis of `own` is there: this is the task with a trajectory for each seed.
    seen, unseen = np.asarray(task.own)[0], np.asarray(task.unseen)[0, 0]
    states = np.concatenate([seen, unseen[1:]])
    _trajectory(folder / "trajectory.png", states, config)
    _adjacency(folder / "adjacency.png", states, config)
    _errors(folder / "errors.png", rows, task)
    for length in (5, 50):
        if length in task.lengths:
            index = task.lengths.index(length)
            curves = {name: p[index] for name, p in predicted.items() if name in _SHOWN}
            start = (len(seen) - 1) * config.dt
            _extrapolation(folder / f"extrapolation_{length}.png", length, unseen, curves, start, config)
    _energy(folder / "energy.png", energy, config)


def _trajectory(path: Path, states: np.ndarray, config: "MultiAgentConfig") -> None:
    figure, axes = new_figure(2, 2, size=(9, 5), sharex=True)
    times = np.arange(len(states)) * config.dt
    for ax, feature, label in zip(axes.ravel(), range(4), ("x1", "x2", "v1", "v2"), strict=True):
        ax.plot(times, states[:, :, feature], linewidth=0.8)
        ax.axvline(times[-1] / 2, color="black", linestyle="--", linewidth=0.8)
        ax.set_ylabel(label)
    for ax in axes[1]:
        ax.set_xlabel("time in s (dashed: training ends)")
    figure.suptitle(f"Positions x and velocities v of {config.particles} particles")
    save_figure(figure, path)


def _adjacency(path: Path, states: np.ndarray, config: "MultiAgentConfig") -> None:
    figure, axes = new_figure(1, _SNAPSHOTS, size=(11, 2.6))
    for ax, n in zip(axes, np.linspace(0, len(states) - 1, _SNAPSHOTS).astype(int), strict=True):
        ax.imshow(np.asarray(config.system.adjacency(jnp.asarray(states[n]))), vmin=0, vmax=1, cmap="viridis")
        ax.set_title(f"t = {n * config.dt:.2f} s")
        ax.set(xticks=range(0, config.particles, 3), yticks=range(0, config.particles, 3), xlabel="particle")
        ax.grid(False)
    axes[0].set_ylabel("particle")
    figure.suptitle("Adjacency: bright where two particles touch")
    save_figure(figure, path)


def _errors(path: Path, rows: Sequence[Row], task: Task) -> None:
    figure, ax = new_figure(size=(8, 4.4))
    by_name = {(row.model, row.setting): row for row in rows if row.metric == "nrmse"}
    *lengths, _ = task.lengths
    for model in dict.fromkeys(row.model for row in rows):
        found = [by_name[model, setting] for setting in task.settings[:-1] if (model, setting) in by_name]
        if not found:
            continue
        mean, std = np.array([r.mean for r in found]), np.array([r.std for r in found])
        ax.plot(lengths, mean, marker=".", label=model, **_STYLES[model])
        # A band that reached zero or below could not be drawn on a logarithmic axis.
        ax.fill_between(
            lengths,
            np.maximum(mean - std, mean / 10),
            mean + std,
            alpha=0.08,
            color=_STYLES[model]["color"],
            linewidth=0,
        )
    ax.set(xscale="log", yscale="log", xlabel="extrapolation steps", ylabel="NRMSE, mean ± sd over seeds")
    ax.set_xticks(lengths, labels=[str(k) for k in lengths])
    ax.minorticks_off()
    _legend(ax)
    save_figure(figure, path)


def _extrapolation(
    path: Path, length: int, unseen: np.ndarray, curves: dict[str, np.ndarray], start: float, config: "MultiAgentConfig"
) -> None:
    """The particle that models find hardest at this length, by the spread of its truth from persistence alone."""
    if not curves:
        return
    truth = unseen[1:]
    worst = int(np.argmax(np.mean([np.mean((p - truth) ** 2, axis=(0, 2)) for p in curves.values()], axis=0)))
    times = start + np.arange(1, len(unseen)) * config.dt
    figure, axes = new_figure(2, len(curves), size=(3 * len(curves), 4.6), sharex=True, sharey="row", squeeze=False)
    for column, (name, p) in zip(axes.T, curves.items(), strict=True):
        for ax, feature, label in zip(column, (0, 2), ("x1", "v1"), strict=True):
            ax.plot(times, truth[:, worst, feature], linewidth=2.5, alpha=0.35, **_STYLES[TRUTH])
            ax.plot(times, p[:, worst, feature], linewidth=0.9, **_STYLES[name])
            ax.set_ylabel(label)
        column[0].set_title(name)
        column[1].set_xlabel("time in s")
    figure.suptitle(f"{length} steps without the truth (grey), again and again; particle {worst}")
    save_figure(figure, path)


def _energy(path: Path, energy: dict[str, np.ndarray], config: "MultiAgentConfig") -> None:
    figure, ax = new_figure(size=(8, 4.4))
    for name, values in energy.items():
        if name == PERSISTENCE:
            continue
        times = np.arange(1, values.shape[1] + 1) * config.dt
        mean, std = values.mean(0), values.std(0)
        ax.plot(times, mean, label=name, linewidth=2.5 if name == TRUTH else 1.2, **_STYLES[name])
        if name != TRUTH:
            ax.fill_between(times, mean - std, mean + std, alpha=0.1, color=_STYLES[name]["color"], linewidth=0)
    top = 2 * energy[TRUTH].mean(0).max()
    ax.set(xlabel="time in s", ylabel="energy, mean over unseen runs", ylim=(0, top))
    ax.set_title(f"Rollouts of models trained on {config.train_runs} runs")
    _legend(ax)
    save_figure(figure, path)


def _legend(ax: Any) -> None:
    """Beside the axes: there are too many lines for a legend not to cover one."""
    ax.legend(fontsize=8, loc="center left", bbox_to_anchor=(1.01, 0.5))
