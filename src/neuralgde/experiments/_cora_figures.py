"""The figures of the Cora experiment."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..report import PALETTE, new_figure, save_figure
from ._cora_models import MODELS
from ._cora_training import Outcome

# A model has one colour in all figures.
_COLOURS: dict[str, str] = dict(zip(MODELS, (PALETTE[0], PALETTE[6], *PALETTE[1:6]), strict=True))
_LENGTHS = (PALETTE[1], PALETTE[2], PALETTE[3], PALETTE[4])


def draw_figures(folder: Path, outcomes: Sequence[Outcome], data: str) -> None:
    """The paper's figure, the same for all models, and the Dirichlet energy against depth."""
    if any(o.model == "GCDE" for o in outcomes):
        _intervals(folder / "gcde_accuracy.png", outcomes, data)
    _all_curves(folder / "accuracy.png", outcomes, data)
    _energy(folder / "dirichlet_energy.png", outcomes, data)


def _intervals(path: Path, outcomes: Sequence[Outcome], data: str) -> None:
    """Test accuracy of the GCDE over training, one band for each interval; the GCN beside it."""
    figure, ax = new_figure()
    for o in outcomes:
        if o.model == "GCN":
            _band(ax, o.iterations, 100 * o.curve, "GCN, 2 layers", "black", linestyle=":")
    for o, colour in zip((o for o in outcomes if o.model == "GCDE"), _LENGTHS, strict=False):
        _band(ax, o.iterations, 100 * o.curve, f"GCDE, {o.setting}", colour)
    ax.set(xlabel="training iterations", ylabel="test accuracy in percent, mean ± sd", title=f"GCDE on {data}")
    ax.legend(loc="lower right")
    save_figure(figure, path)


def _all_curves(path: Path, outcomes: Sequence[Outcome], data: str) -> None:
    """Test accuracy of all models over training, a panel for each length."""
    settings = [s for s in dict.fromkeys(o.setting for o in outcomes) if s != "2 layers"] or ["2 layers"]
    figure, axes = new_figure(1, len(settings), size=(3.6 * len(settings) + 1.8, 3.8), sharey=True, squeeze=False)
    for ax, setting in zip(axes[0], settings, strict=True):
        for o in outcomes:
            if o.setting in (setting, "2 layers"):
                _band(ax, o.iterations, 100 * o.curve, o.model, _COLOURS[o.model])
        ax.set(xlabel="training iterations", title=setting)
    axes[0, 0].set_ylabel("test accuracy in percent, mean ± sd")
    figure.suptitle(f"All models on {data}")
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right center", fontsize=8)
    save_figure(figure, path)


def _energy(path: Path, outcomes: Sequence[Outcome], data: str) -> None:
    """Dirichlet energy along the states of the models of the greatest length."""
    longest = max(o.depth[-1] for o in outcomes)
    figure, ax = new_figure()
    for o in outcomes:
        if o.depth[-1] == longest and len(o.depth) > 1:
            _band(ax, o.depth, o.energy, o.model, _COLOURS[o.model], marker="." if len(o.depth) < 12 else "")
    ax.set(
        yscale="log",
        xlabel=f"depth t; discrete models spread their layers over [0, {longest:g}]",
        ylabel="Dirichlet energy of the states over ||z||²",
        title=f"Trained models on {data}, S={longest:g}",
    )
    ax.legend()
    save_figure(figure, path)


def _band(ax: Any, x: np.ndarray, values: np.ndarray, label: str, colour: str, **line: Any) -> None:
    """The mean over seeds, the last axis, and a standard deviation to each side."""
    mean, std = values.mean(-1), values.std(-1)
    ax.plot(x, mean, label=label, color=colour, linewidth=1.4, **line)
    # A logarithmic axis has no place for zero.
    ax.fill_between(x, np.maximum(mean - std, mean / 10), mean + std, color=colour, alpha=0.15, linewidth=0)
