"""Results survive the way to disk and back, and print as they are."""

import json

import numpy as np
import pytest
from rich.console import Console

import neuralgde as gde
from neuralgde.report import Result, Row, new_figure, read_result, result_table, save_figure, write_result


def example():
    rows = (
        Row.over_seeds("static", "5 steps", "nrmse", [0.5, 0.7], paper=None),
        Row("gcde", "5 steps", "mape", 18.2, 0.1, paper=18.76),
        Row.over_seeds("broken", "5 steps", "nrmse", [0.5, np.nan]),
    )
    return Result("multi-agent", {"rate": np.float32(0.5), "widths": (4, 8)}, 2, rows, 1.5)


def test_round_trip(tmp_path):
    write_result(tmp_path / "run", example())
    again = read_result(tmp_path / "run")
    assert again.rows[:2] == example().rows[:2]
    assert np.isnan(again.find("broken", "5 steps", "nrmse").mean)
    assert again.versions["jax"] and again.config == {"rate": 0.5, "widths": [4, 8]}
    keys = {"experiment", "config", "seeds", "rows", "seconds", "versions"}
    content = json.loads((tmp_path / "run" / "result.json").read_text())
    assert set(content) == keys
    assert set(content["rows"][0]) == {"model", "setting", "metric", "mean", "std", "paper"}
    assert [p.name for p in (tmp_path / "run").iterdir()] == ["result.json"]
    assert (tmp_path / "run" / "result.json").stat().st_mode & 0o777 == 0o644


def test_a_failed_write_leaves_the_old_file(tmp_path):
    write_result(tmp_path, example())
    bad = Result("x", {"f": object()}, 1, (), 0.0)
    with pytest.raises(TypeError):
        write_result(tmp_path, bad)
    assert read_result(tmp_path).experiment == "multi-agent"
    assert [p.name for p in tmp_path.iterdir()] == ["result.json"]


def test_bad_files_are_named(tmp_path):
    with pytest.raises(gde.InputError, match="no such file"):
        read_result(tmp_path)
    (tmp_path / "result.json").write_text("{\n1")
    with pytest.raises(gde.InputError, match=r"result.json:2"):
        read_result(tmp_path)
    (tmp_path / "result.json").write_text("{}")
    with pytest.raises(gde.InputError, match="missing"):
        read_result(tmp_path)
    with pytest.raises(gde.InputError, match="nrmse"):
        Row("a", "b", "nrsme", 1.0, 0.0)


def test_table_shows_the_paper_and_failures():
    console = Console(width=80, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    for metric in ("nrmse", "mape"):
        console.print(result_table(example().rows, metric, metric))
    text = console.export_text()
    assert "0.6±0.1" in text and "failed" in text and "18.8" in text and "(paper)" in text


def test_figures_are_written_without_a_screen(tmp_path):
    figure, axes = new_figure(1, 2)
    axes[0].plot([0, 1], [0, 1])
    assert save_figure(figure, tmp_path / "a" / "b.png").stat().st_size > 1000
