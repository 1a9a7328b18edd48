"""Figures: one style, and colours that the colour-blind can tell apart."""

from pathlib import Path
from typing import Any

# Okabe and Ito's palette; black first, yellow, which is weak on white, last.
PALETTE = ("#000000", "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#F0E442")
_STYLE: Any = {
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.3,
    "font.size": 10,
    "legend.frameon": False,
    "figure.dpi": 120,
    "figure.constrained_layout.use": True,
}


def new_figure(rows: int = 1, columns: int = 1, size: tuple[float, float] = (6.4, 4.0), **options: Any) -> Any:
    """A figure and its axes. It belongs to no window system, so it works without a screen."""
    import matplotlib
    from cycler import cycler
    from matplotlib.figure import Figure

    with matplotlib.rc_context({**_STYLE, "axes.prop_cycle": cycler(color=PALETTE)}):
        figure = Figure(figsize=size)
        return figure, figure.subplots(rows, columns, **options)


def save_figure(figure: Any, path: str | Path) -> Path:
    """Write a PNG; the folder is made if it is missing."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
    return path
