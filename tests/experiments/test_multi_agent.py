"""The multi-agent experiment end to end, as small as it gets, and the commands around it."""

import io

import numpy as np
import pytest
from rich.console import Console

import neuralgde as gde
from neuralgde.experiments._multi_agent_tables import mape_table, setting_table, share_table
from neuralgde.experiments.multi_agent import MultiAgentConfig, run
from neuralgde.report import Result, Row, read_result

TINY = MultiAgentConfig(
    particles=3, duration=0.2, dt=0.01, models=("Static", "GMDE-II"), steps=5, extrapolation=(1, 5),
    train_runs=2, validation_runs=1, test_runs=1, runs_models=("GMDE-II",), runs_steps=5, runs_extrapolation=(1, 5),
    grid_widths=(),
)  # fmt: skip


def test_a_run_writes_results_and_figures(tmp_path):
    console = Console(file=(tmp_path / "out.txt").open("w"), width=100)
    result = run(tmp_path / "run", seeds=2, console=console, config=TINY)
    again = read_result(tmp_path / "run")
    assert again.rows == result.rows and again.seeds == 2
    assert list((tmp_path / "run").glob("*.png"))
    naive = again.find("persistence", "5 steps", "nrmse")
    assert naive.mean > 0
    assert again.find("Static", "5 steps", "mape").paper == 197.20
    assert np.isfinite(again.find("GMDE-II", "5 steps, 2 runs", "nrmse").mean)


@pytest.mark.parametrize(("change", "name"), [({"adjacency": "nominl"}, "nominal"), ({"models": ("GCD",)}, "GCDE")])
def test_unknown_names(change, name):
    with pytest.raises(gde.InputError, match=name):
        MultiAgentConfig(**change)


def test_tables_fit_a_terminal():
    steps = (1, 3, 5, 10, 15, 20, 50)
    settings = [f"{k} steps" for k in steps] + ["rollout"]
    rows = [
        Row(model, setting, metric, mean, 12.3456, 360.39 if metric == "mape" else None)
        for model, mean in (("persistence", 36.1234), ("GMDE-II absolute", 0.061234))
        for setting in settings
        for metric in ("mape", "median_relative_error", "nrmse")
    ]
    result = Result("multi-agent", {}, 10, tuple(rows), 1.0)
    out = io.StringIO()
    console = Console(file=out, width=80)
    tables = share_table(result, settings, "shares"), mape_table(result, settings), setting_table(result, settings[-2])
    for table in tables:
        console.print(table)
    assert "…" not in out.getvalue()
