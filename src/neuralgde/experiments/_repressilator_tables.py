"""The tables of the repressilator experiment."""

from rich import box
from rich.console import Console
from rich.table import Table

from ..report import Result, Row
from ._repressilator_baselines import FLOOR, GRU, PERSISTENCE, SAMPLED_GRU, SPREAD

BASELINES = (SPREAD, PERSISTENCE, GRU, SAMPLED_GRU)
_METRICS = (
    ("crps", "CRPS"), ("rmse", "RMSE"), ("coverage_50", "in 50 %"), ("coverage_90", "in 90 %"),
    ("log_likelihood", "log lik."),
)  # fmt: skip


def print_tables(console: Console, result: Result) -> None:
    """Every metric by group, CRPS and coverage by species, the extrapolation, and what the bars ask for."""
    until, beyond = result.config["until"], result.config["beyond"]
    for group in ("all", "proteins", "mRNAs"):
        console.print(group_table(result, group, f"{group}, to {until} minutes, in shares of the training range"))
    for metric, title in (("crps", "CRPS"), ("coverage_90", "share inside 90 % intervals")):
        console.print(species_table(result, metric, f"{title} by species"))
    console.print(width_table(result))
    suffix = f", {until}-{beyond}"
    console.print(group_table(result, f"all{suffix}", f"all, extrapolated from {until} to {beyond} minutes"))
    console.print(verdict(result), highlight=False)


def verdict(result: Result) -> str:
    """The best CRPS over the best baseline's, and where the floor is."""
    rows = {row.model: row for row in result.rows if (row.setting, row.metric) == ("all", "crps")}
    naive = min((rows[name] for name in BASELINES if name in rows), key=lambda row: row.mean)
    own = [row for row in rows.values() if row.model not in (*BASELINES, FLOOR)]
    if not own:
        return f"best baseline: {naive.model}, CRPS {naive.mean:.4f}"
    best = min(own, key=lambda row: row.mean)
    return (
        f"CRPS: {best.model} {best.mean:.4f}, {best.mean / naive.mean:.2f} of the best baseline's ({naive.model} "
        f"{naive.mean:.4f}); the true network {rows[FLOOR].mean:.4f}"
    )


def group_table(result: Result, setting: str, title: str) -> Table:
    """Models down, metrics across."""
    cells = {(row.model, row.metric): row for row in result.rows if row.setting == setting}
    table = _table(title, [label for _, label in _METRICS])
    for model in dict.fromkeys(model for model, _ in cells):
        table.add_row(model, *(_cell(cells.get((model, metric))) for metric, _ in _METRICS))
    return table


def species_table(result: Result, metric: str, title: str) -> Table:
    """Models down, species across."""
    species = result.config["species"]
    cells = {(row.model, row.setting): row for row in result.rows if row.metric == metric and row.setting in species}
    table = _table(title, species)
    for model in dict.fromkeys(model for model, _ in cells):
        table.add_row(model, *(f"{cells[model, name].mean:.3f}" for name in species))
    return table


def width_table(result: Result) -> Table:
    """Mean widths of intervals, proteins and mRNAs."""
    table = _table("widths of intervals: proteins, then mRNAs", ["50 %", "90 %", "50 %", "90 %"])
    for model, widths in result.config["widths"].items():
        means = [sum(widths[f"width_{w}"][p : p + 3]) / 3 for p in (0, 3) for w in (50, 90)]
        table.add_row(model, *(f"{mean:.3f}" for mean in means))
    return table


def _cell(row: Row | None) -> str:
    if row is None:
        return ""
    return f"{row.mean:.3f}" + (f"±{row.std:.3f}" if row.std and row.metric == "crps" else "")


def _table(title: str, columns: list[str]) -> Table:
    table = Table(title=title, box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("model", no_wrap=True)
    for column in columns:
        table.add_column(column, justify="right", no_wrap=True)
    return table
