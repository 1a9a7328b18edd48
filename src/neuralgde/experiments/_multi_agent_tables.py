"""The tables of the multi-agent experiment."""

from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.table import Table

from ..report import Result
from ._multi_agent_tasks import Task

PERSISTENCE = "persistence"
TRUTH = "truth"


def print_tables(console: Console, result: Result, tasks: Sequence[Task]) -> None:
    """For each task: errors as shares of persistence's, every metric at the longest run of steps; energies at last."""
    for task in tasks:
        title = f"NRMSE as a share of persistence's{task.suffix}"
        console.print(share_table(result, task.settings, title))
        console.print(setting_table(result, task.settings[-2]))
    console.print(mape_table(result, tasks[0].settings))
    for name, energy in result.config["energy"].items():
        console.print(f"energy in rollouts{tasks[1].suffix}, {name}: from {energy['start']:.2f} to {energy['end']:.2f}")


def share_table(result: Result, settings: Sequence[str], title: str) -> Table:
    """Each model's mean NRMSE over the mean of persistence's: models down, settings across."""
    table = _table_over(settings, title)
    for model in _models(result, settings[0]):
        table.add_row(model, *(f"{share(result, model, setting):.3f}" for setting in settings))
    return table


def mape_table(result: Result, settings: Sequence[str]) -> Table:
    """Each model's mean MAPE in percent, and the paper's below it where it has one."""
    table = _table_over(settings, "MAPE in percent; it explodes where the truth crosses zero")
    for model in _models(result, settings[0]):
        rows = [result.find(model, setting, "mape") for setting in settings]
        table.add_row(model, *(f"{row.mean:.3g}" if row.mean >= 1 else f"{row.mean:.2f}" for row in rows))
        if any(row.paper is not None for row in rows):
            paper = ("" if row.paper is None else f"{row.paper:.3g}" for row in rows)
            table.add_row("  paper", *paper, style="dim")
    return table


def setting_table(result: Result, setting: str) -> Table:
    """Models down, metrics across, mean ± standard deviation."""
    table = Table(
        title=f"{setting}, mean ± standard deviation over {result.seeds} seed(s)",
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
    )
    table.add_column("model", no_wrap=True)
    for column in ("MAPE, %", "median rel. error", "NRMSE", "share"):
        table.add_column(column, justify="right", no_wrap=True)
    for model in _models(result, setting):
        found = (result.find(model, setting, metric) for metric in ("mape", "median_relative_error", "nrmse"))
        cells = (f"{row.mean:.3g} ± {row.std:.1g}" for row in found)
        table.add_row(model, *cells, f"{share(result, model, setting):.3f}")
    return table


def _table_over(settings: Sequence[str], title: str) -> Table:
    """A column for each length of extrapolation, headed by its number of steps."""
    table = Table(
        title=title,
        caption="across: steps until the nominal state is fed again",
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
    )
    table.add_column("model", no_wrap=True)
    for setting in settings:
        table.add_column(setting.split(",")[0].split(" ")[0], justify="right", no_wrap=True)
    return table


def _new_table(title: str) -> Table:
    # Eight columns of figures fit in a terminal's 80 only without lines between them.
    table = Table(title=title, box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("model", no_wrap=True)
    return table


def share(result: Result, model: str, setting: str) -> float:
    """A model's mean NRMSE over the mean of persistence's."""
    return result.find(model, setting, "nrmse").mean / result.find(PERSISTENCE, setting, "nrmse").mean


def _models(result: Result, setting: str) -> list[str]:
    return list(dict.fromkeys(row.model for row in result.rows if row.setting == setting))
