"""The demonstration: the main job on data that it simulates, from tables to forecasts and a page."""

import time
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from ..data import keep_snapshots, write_table
from ..forecast import Backtest, Forecaster, backtest_page, backtest_table, forecast_columns
from ..report import write_page, write_page_data
from ..simulate import FreewayRun, freeway_network, simulate_freeway

DAYS, KEEP = 14, 0.5
# Two freeways with a sensor each mile: large enough to have queues that move, small enough for two cores.
CORRIDORS, MILES = 2, 10.0
OPTIONS: dict[str, Any] = {"model": "gcde-gru", "steps": 400, "hidden": 24, "horizon": 6 * 3600.0}


def run(folder: str | Path, *, seed: int = 0, console: Console | None = None, **options: Any) -> Backtest:
    """Simulate, drop snapshots, fit, forecast the last day, and write `forecast.csv` and `report.html`.

    `options` are those of the Forecaster, in the place of the demonstration's own.
    """
    console = console or Console()
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    began = time.perf_counter()

    def say(text: str) -> None:
        console.print(f"{time.perf_counter() - began:4.0f} s  {text}", markup=False, highlight=False)

    say(f"simulating {CORRIDORS} freeways for {DAYS} days, a reading of every sensor each 5 minutes")
    # From a Saturday on, so that the last day, which is forecast, is a working day with its queues.
    made = simulate_freeway(
        freeway_network(CORRIDORS, miles=MILES, seed=seed), days=DAYS, start="2024-01-06", seed=seed
    )
    kept = keep_snapshots(len(made.speeds), KEEP, seed=seed)
    last_day = made.times >= made.dates[-1]
    say(
        f"{len(made.network.names)} sensors; {1 - KEEP:.0%} of the snapshots are dropped at random, the last day is "
        "held back"
    )
    forecaster = Forecaster(**{"seed": seed, **OPTIONS, **options})
    forecaster.fit(_series(made, kept & ~last_day), _edges(made), say=say, progress=True)
    say("forecasting the last day, each time from what was seen before it")
    test = forecaster.backtest(_series(made, kept & last_day))
    console.print(backtest_table(test))

    at = made.times[kept & last_day]
    forecasts = forecaster.forecasts(at, _series(made, kept & last_day))
    clock = forecaster.fitted.readings.clock
    write_table(folder / "forecast.csv", forecast_columns(forecasts, (50, 90)), clock)
    page = backtest_page("Demonstration: a simulated freeway", test, quantity="speed (mph)", made=forecasts)
    write_page_data(folder, page)
    write_page(folder / "report.html", page)
    say(_verdict(test))
    say(f"{folder / 'forecast.csv'} has the forecasts, {folder / 'report.html'} shows them")
    console.print(
        "\nWith your own tables, readings (unique_id, ds, y) and edges (source, target):\n"
        "  gde fit readings.csv --edges edges.csv -o model.gde\n"
        "  gde forecast model.gde --every 5min --until 2h\n"
        "  gde backtest readings.csv --edges edges.csv -o backtest",
        markup=False,
        highlight=False,
    )
    return test


def _series(made: FreewayRun, rows: np.ndarray) -> dict[str, np.ndarray]:
    """A long table of some rows."""
    names = np.array(made.network.names)
    count = int(rows.sum())
    return {
        "unique_id": np.tile(names, count),
        "ds": np.repeat(made.times[rows], len(names)),
        "y": made.speeds[rows].round(2).reshape(-1),
    }


def _edges(made: FreewayRun) -> dict[str, np.ndarray]:
    names = np.array(made.network.names)
    upstream, downstream = made.network.neighbours.T
    ends = np.concatenate([upstream, downstream]), np.concatenate([downstream, upstream])
    return {"source": names[ends[0]], "target": names[ends[1]], "weight": np.tile(made.network.closeness, 2)}


def _verdict(test: Backtest) -> str:
    scores = test.scores()
    gains = [100 * (1 - scores[0, 1] / scores[m, 1]) for m in (1, 2)]
    words = " and ".join(
        f"{abs(gain):.0f} % {'less' if gain >= 0 else 'more'} than {name}"
        for gain, name in zip(gains, test.models[1:], strict=True)
    )
    return f"errors are {words}; 90 % intervals covered {scores[0, 4]:.1f} %"
