"""Results as a table that fits a terminal."""

from collections.abc import Sequence

import numpy as np
from rich.table import Table

from ._result import Row


def result_table(rows: Sequence[Row], metric: str, title: str, digits: int = 3) -> Table:
    """Models down, settings across, mean ± standard deviation; the paper's figures in rows of their own."""
    chosen = [row for row in rows if row.metric == metric]
    models = list(dict.fromkeys(row.model for row in chosen))
    settings = list(dict.fromkeys(row.setting for row in chosen))
    cells = {(row.model, row.setting): row for row in chosen}
    table = Table(title=title)
    table.add_column("model", no_wrap=True)
    for setting in settings:
        table.add_column(setting, justify="right", no_wrap=True)
    for model in models:
        found = [cells.get((model, setting)) for setting in settings]
        if any(row is not None and row.paper is not None for row in found):
            table.add_row(
                f"{model} (paper)",
                *("" if row is None or row.paper is None else short_number(row.paper, digits) for row in found),
                style="dim",
            )
        table.add_row(model, *("" if row is None else _cell(row, digits) for row in found))
    return table


def _cell(row: Row, digits: int) -> str:
    if not np.isfinite(row.mean):
        return "failed"
    return short_number(row.mean, digits) + (f"±{short_number(row.std, 2)}" if row.std else "")


def short_number(value: float, digits: int) -> str:
    """So many digits, without an exponent where a person would write none."""
    text = f"{value:.{digits}g}"
    return f"{float(text):g}" if "e" in text and abs(value) < 1e5 else text
