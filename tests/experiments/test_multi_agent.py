"""The multi-agent experiment end to end, as small as it gets, and the commands around it."""

import numpy as np
import pytest
from rich.console import Console

import neuralgde as gde
from neuralgde.experiments.multi_agent import MultiAgentConfig, run
from neuralgde.report import read_result

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
