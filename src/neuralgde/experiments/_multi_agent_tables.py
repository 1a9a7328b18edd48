"""The tables of the multi-agent experiment."""

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from ..report import Result, result_table
from ._multi_agent_tasks import Task

PERSISTENCE = "persistence"
TRUTH = "truth"


def print_tables(console: Console, result: Result, tasks: Sequence[Task]) -> None:
    """For each task: errors as shares of persistence's, every metric at the longest run of steps; energies at last."""
    for task in tasks:
        title = f"NRMSE as a share of persistence's{task.suffix}"
        console.print(share_table(result, task.settings, title))
        console.print(setting_table(result, task.settings[-2]))
    single = [row for row in result.rows if row.setting in tasks[0].settings]
    console.print(result_table(single, "mape", "MAPE in percent; it explodes where the truth crosses zero"))
    for name, energy in result.config["energy"].items():
        console.print(f"energy in rollouts{tasks[1].suffix}, {name}: from {energy['start']:.2f} to {energy['end']:.2f}")


def share_table(result: Result, settings: Sequence[str], title: str) -> Table:
    """Each model's mean NRMSE over the mean of persistence's: models down, settings across."""
    table = Table(title=title)
    table.add_column("model", no_wrap=True)
    for setting in settings:
        table.add_column(setting.split(",")[0], justify="right", no_wrap=True)
    for model in _models(result, settings[0]):
        table.add_row(model, *(f"{share(result, model, setting):.3f}" for setting in settings))
    return table


def setting_table(result: Result, setting: str) -> Table:
    """Models down, metrics across, mean ± standard deviation, the paper's MAPE beside ours."""
    table = Table(title=f"{setting}, mean ± standard deviation over {result.seeds} seed(s)")
    table.add_column("model", no_wrap=True)
    for column in ("MAPE, paper", "MAPE", "median rel. error", "NRMSE", "of persistence's"):
        table.add_column(column, justify="right")
    for model in _models(result, setting):
        mape, median, nrmse = (
            result.find(model, setting, metric) for metric in ("mape", "median_relative_error", "nrmse")
        )
        paper = "" if mape.paper is None else f"{mape.paper:.2f}"
        cells = (f"{row.mean:.3g} ± {row.std:.2g}" for row in (mape, median, nrmse))
        table.add_row(model, paper, *cells, f"{share(result, model, setting):.3f}")
    return table


def share(result: Result, model: str, setting: str) -> float:
    """A model's mean NRMSE over the mean of persistence's."""
    return result.find(model, setting, "nrmse").mean / result.find(PERSISTENCE, setting, "nrmse").mean


def _models(result: Result, setting: str) -> list[str]:
    return list(dict.fromkeys(row.model for row in result.rows if row.setting == setting))
