"""The tables of the traffic experiment."""

from rich.console import Console
from rich.table import Table

from ..report import Result, result_table
from ._traffic_england import CASES, EDGES

_TITLES = {
    "rmse_sensor": "RMSE, mean over sensors (the paper's), mph",
    "mape": "MAPE in percent",
    "rmse": "RMSE, pooled, mph",
    "mae": "MAE, mph",
}


def print_tables(console: Console, result: Result, data: str) -> None:
    """A table for each metric, models down and shares kept across; errors by gap; England."""
    traffic = [row for row in result.rows if row.setting.startswith("keep")]
    for metric, title in _TITLES.items():
        console.print(result_table(traffic, metric, f"{title}; one step ahead on {data}"))
    for setting, by_model in result.config["error_by_gap"].items():
        if setting != "keep 1":
            console.print(gap_table(setting, by_model))
    regimes = [row for row in result.rows if row.setting not in (CASES, EDGES) and row not in traffic]
    console.print(result_table(regimes, "rmse_sensor", "Unlike training: RMSE, mean over sensors, mph"))
    for setting, metrics in ((CASES, ("rmse", "mae")), (EDGES, ("rmse", "mae", "accuracy"))):
        chosen = [row for row in result.rows if row.setting == setting]
        if chosen:
            console.print(england_table(chosen, setting, metrics))


def gap_table(setting: str, by_model: dict[str, dict[int, tuple[float, int]]]) -> Table:
    """Pooled RMSE by the steps from the last observation to the time asked for."""
    gaps = [gap for gap in (1, 2, 3, 4, 6, 8, 12) if any(gap in found for found in by_model.values())]
    table = Table(title=f"RMSE by gap in 5 minutes, {setting}")
    table.add_column("model", no_wrap=True)
    for gap in gaps:
        table.add_column(f"{gap}{'+' if gap == 12 else ''}", justify="right", no_wrap=True)
    for name, found in by_model.items():
        table.add_row(name, *(f"{found[gap][0]:.2f}" if gap in found else "" for gap in gaps))
    return table


def england_table(rows: list, setting: str, metrics: tuple[str, ...]) -> Table:
    """Models down, metrics across."""
    table = Table(title=f"England, {setting}")
    table.add_column("model", no_wrap=True)
    for metric in metrics:
        table.add_column(metric, justify="right", no_wrap=True)
    cells = {(row.model, row.metric): f"{row.mean:.3f}" + (f"±{row.std:.2g}" if row.std else "") for row in rows}
    for model in dict.fromkeys(row.model for row in rows):
        table.add_row(model, *(cells.get((model, metric), "") for metric in metrics))
    return table
