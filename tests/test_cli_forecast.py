"""gde fit, forecast and backtest: broken tables are refused in one line, whole ones go through."""

import json

import numpy as np
import pytest

from commands import status
from neuralgde._cli_options import length
from neuralgde.train._resume import Saver

GOOD = "unique_id,ds,y\n" + "".join(
    f"{name},2024-01-{day:02d} {hour:02d}:00,{50 + 10 * np.sin(hour / 4) + 3 * k + (day * 7 + hour * 3 + k) % 5:.2f}\n"
    for k, name in enumerate("abc") for day in range(1, 11) for hour in range(24)
)  # fmt: skip
EDGES = "source,target,weight\na,b,1\nb,c,0.5\n"


def line(text, number, new):
    lines = text.splitlines()
    lines[number - 1] = new
    return "\n".join(lines) + "\n"


# Of each broken table: readings, edges, where the error says it is broken, and a word of the fix, its last sentence.
SHORT = "unique_id,ds,y\n" + "".join(f"{n},2024-01-01,1\n{n},2024-01-02,2\n" for n in "abc")
NAMELESS = GOOD.replace("unique_id,ds,y", "unique_id,b,y").replace("2024-", "day ")
BROKEN = {
    "no such file": (None, None, "series.csv", "Check the name"),
    "empty": ("", None, "series.csv, line 1", "then rows"),
    "no rows": ("unique_id,ds,y\n", None, "series.csv, line 2", "Add readings"),
    "no stamps": (NAMELESS, None, "series.csv, line 1, columns unique_id, b, y", "--time"),
    "no numbers": (
        "unique_id,ds,w\na,2024-01-01,up\na,2024-01-02,down\n", None, "series.csv, line 1, column w", "--value"
    ),
    "names twice": (line(GOOD, 1, "unique_id,ds,ds"), None, "series.csv, line 1, column 3", "Rename"),
    "a cell too few": (line(GOOD, 5, "a,2024-01-01 03:00"), None, "series.csv, line 5, column 3", "Look for"),
    "no number": (line(GOOD, 7, "a,2024-01-01 05:00,fast"), None, "series.csv, line 7, column y", "Leave it empty"),
    "a decimal comma": (line(GOOD, 7, 'a,2024-01-01 05:00,"5,5"'), None, "series.csv, line 7, column y", "a point"),
    "infinite": (line(GOOD, 7, "a,2024-01-01 05:00,inf"), None, "series.csv, line 7, column y", "Leave the cell empty"),
    "no date": (line(GOOD, 4, "a,01/02/2024 08:00,5"), None, "series.csv, line 4, column ds", "year-month-day"),
    "stamp missing": (line(GOOD, 4, "a,,5"), None, "series.csv, line 4, column ds", "Fill it in"),
    "sensor missing": (line(GOOD, 4, ",2024-01-01 02:00,5"), None, "series.csv, line 4, column unique_id", "Fill it"),
    "a zone here and there": (line(GOOD, 4, "a,2024-01-01 02:00Z,5"), None, "series.csv, line 4, column ds", "Write"),
    "two readings at once": (line(GOOD, 4, "a,2024-01-01 01:00,99"), None, "series.csv, line 4, column y", "Keep one"),
    "no reading at all": (
        "unique_id,ds,y\na,2024-01-01,\na,2024-01-02,\n", None, "series.csv, line 2, column y", "Check the columns"
    ),
    "too short": (SHORT, None, "series.csv, line 7, column ds", "Give a longer table"),
    "an unknown sensor": (GOOD, EDGES + "c,d,1\n", "edges.csv, line 4, column target", "drop the edge"),
    "a negative weight": (GOOD, EDGES + "c,a,-1\n", "edges.csv, line 4, column weight", "larger for closer"),
    "an end before its start": (
        GOOD, "source,target,start,end\na,b,2024-01-05,2024-01-02\n", "edges.csv, line 2, column end", "Swap them"
    ),
    "a matrix of other size": (GOOD, "0,1\n1,0\n", "edges.csv, line 2, column 2", "the columns source, target"),
}  # fmt: skip
# Where there is no cell to point at.
WITHOUT_COLUMN = ("no such file", "empty", "no rows")


@pytest.mark.parametrize("kind", BROKEN)
def test_broken_tables(kind, tmp_path, capsys):
    series, edges, place, fix = BROKEN[kind]
    assert (", column" in place) == (kind not in WITHOUT_COLUMN)
    if series is not None:
        (tmp_path / "series.csv").write_text(series)
    (tmp_path / "edges.csv").write_text(EDGES if edges is None else edges)
    before = sorted(tmp_path.iterdir())
    tables = (tmp_path / "series.csv", "--edges", tmp_path / "edges.csv", "-m", "ridge")
    for command, out in (("fit", tmp_path / "new" / "model.gde"), ("backtest", tmp_path / "new")):
        code = status(command, *tables, "-o", out, "-q")
        out, said = capsys.readouterr()
        assert code == 2 and not out and said.count("\n") == 1
        assert said.startswith(f"gde: error: {tmp_path}/{place}: "), said
        sentences = said.removeprefix(f"gde: error: {tmp_path}/{place}: ").strip().split(". ")
        assert len(sentences) > 1 and fix in sentences[-1] and said.endswith(".\n"), said
        # Not even a folder.
        assert sorted(tmp_path.iterdir()) == before


def test_text_in_another_encoding(tmp_path, capsys):
    (tmp_path / "series.csv").write_bytes(GOOD.replace("a,", "\xe9,").encode("latin-1"))
    assert status("fit", tmp_path / "series.csv", "-o", tmp_path / "m.gde") == 2
    assert "line 2: not UTF-8" in capsys.readouterr().err


@pytest.fixture
def fitted(tmp_path, capsys):
    (tmp_path / "series.csv").write_text(GOOD)
    (tmp_path / "edges.csv").write_text(EDGES)
    (tmp_path / "o.toml").write_text('model = "persistence"\nhorizon = "12h"\nundirected = true\n')
    out = tmp_path / "model.gde"
    assert status("fit", tmp_path / "series.csv", "--edges", tmp_path / "edges.csv", "-m", "ridge",
                  "--config", tmp_path / "o.toml", "-o", out, "--json", "--report", tmp_path / "page") == 0  # fmt: skip
    return out, json.loads(capsys.readouterr().out)


def test_fit_forecast_backtest(fitted, tmp_path, capsys):
    out, summary = fitted
    # The command line comes before the file of options.
    assert summary["model"] == "ridge" and summary["edges"] == 4 and summary["horizon"] == "12 h"
    assert (tmp_path / "page" / "report.html").stat().st_size > 1000
    assert status("forecast", out, "--every", "30min", "--until", "2h", "-o", tmp_path / "f.csv", "-q") == 0
    rows = (tmp_path / "f.csv").read_text().splitlines()
    assert rows[0] == "unique_id,ds,mean,lo-80,hi-80,lo-95,hi-95" and len(rows) == 1 + 3 * 4
    assert rows[1].startswith("a,2024-01-10 23:30:00,")
    assert capsys.readouterr() == ("", "")
    (tmp_path / "new.csv").write_text("unique_id,ds,y\na,2024-01-11 00:00,90\n")
    assert status("forecast", out, "--history", tmp_path / "new.csv", "--at", "2024-01-11 01:30", "--json",
                  "--quantile", "0.5", "--samples", "2", "--level", "90") == 0  # fmt: skip
    made = json.loads(capsys.readouterr().out)
    assert list(made["forecast"]) == ["unique_id", "ds", "mean", "lo-90", "hi-90", "q-0.5", "sample-1", "sample-2"]
    assert made["forecast"]["ds"][0] == "2024-01-11 01:30:00" and "90" in made["coverage"]
    folder = tmp_path / "b"
    assert status("backtest", tmp_path / "series.csv", "--edges", tmp_path / "edges.csv", "-m", "ridge",
                  "--ahead", "1h", "--ahead", "6h", "-o", folder, "--json") == 0  # fmt: skip
    scores = json.loads(capsys.readouterr().out)
    assert list(scores["by_horizon"]) == ["1 h", "6 h"] and scores["readings"] > 100
    assert set(scores["overall"]) == {"ridge", "persistence", "time-of-day mean"}
    assert {p.name for p in folder.iterdir()} >= {"backtest.csv", "report.html"}


def test_beyond_the_horizon_there_is_a_note(fitted, capsys):
    assert status("forecast", fitted[0], "--every", "6h", "--until", "12h") == 0
    assert "note" not in capsys.readouterr().err
    assert status("forecast", fitted[0], "--every", "6h", "--until", "18h") == 0
    assert "note: the model was fitted for up to 12 h ahead" in capsys.readouterr().err


def test_backtests_of_saved_models(fitted, tmp_path, capsys):
    series, backtest = tmp_path / "series.csv", tmp_path / "b"
    assert status("backtest", series, "--with", fitted[0], "-o", backtest) == 2
    assert "series.csv, line 721, column ds: expected readings up to here that are later" in capsys.readouterr().err
    assert status("backtest", series, "--with", fitted[0], "-m", "ridge", "-o", backtest) == 2
    assert "--model: of no use with --with" in capsys.readouterr().err and not backtest.exists()


def test_interrupted_fits_go_on(tmp_path, monkeypatch, capsys):
    (tmp_path / "series.csv").write_text(GOOD)
    small = {"hidden": 4, "embedding": 1, "rank": 1, "batch_size": 4, "queries": 1, "length": 3, "steps": 4}
    options = "\n".join(f"{name} = {value}" for name, value in small.items())
    (tmp_path / "o.toml").write_text(options + '\nmodel = "gcgru"\nhorizon = "3h"\n')
    out, left = tmp_path / "model.gde", tmp_path / "model.gde.ckpt"
    command = ("fit", tmp_path / "series.csv", "--config", tmp_path / "o.toml", "-o", out)
    save = Saver.save

    def interrupted(self, step, *args):
        save(self, step, *args)
        if step == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(Saver, "save", interrupted)
    assert status(*command) == 1
    said = capsys.readouterr().err.splitlines()[-1]
    assert said == f"gde: interrupted. What was learned is in {left}: the same command goes on from there."
    assert left.exists() and not out.exists()
    monkeypatch.setattr(Saver, "save", save)
    assert status(*command) == 0
    said = capsys.readouterr().err
    assert f"going on from {left}" in said and "step 1/4" not in said and "step 4/4" in said
    assert out.exists() and not left.exists()
    assert status("forecast", out, "--every", "1h", "--until", "3h", "-q") == 0
    assert capsys.readouterr().out.count("\n") == 1 + 3 * 3


@pytest.mark.parametrize(
    "args, message",
    [
        ([], "--at, --every"),
        (["--every", "1h"], "--until"),
        (["--every", "1x", "--until", "2h"], "such as 5min"),
        (["--at", "noon"], "expected a date"),
        (["--at", "2020-01-01"], "not after the first reading"),
        (["--at", "2024-01-11", "-o", "x.xls"], "ends in .csv"),
        (["--at", "2024-01-11", "--level", "120"], "percent"),
    ],
)
def test_bad_questions(fitted, args, message, capsys):
    assert status("forecast", fitted[0], *args) == 2
    said = capsys.readouterr().err
    assert message in said and said.count("\n") == 1


def test_files_that_are_no_models(tmp_path, capsys):
    assert status("forecast", tmp_path / "no.gde", "--at", "1") == 2
    (tmp_path / "bad.gde").write_bytes(b"nothing")
    assert status("forecast", tmp_path / "bad.gde", "--at", "1") == 1
    assert status("fit", tmp_path / "s.csv", "-o", tmp_path / "model.txt") == 2
    (tmp_path / "c.toml").write_text("modle = 'ridge'\n")
    assert status("fit", tmp_path / "s.csv", "--config", tmp_path / "c.toml", "-o", tmp_path / "m.gde") == 2
    assert "Did you mean 'model'" in capsys.readouterr().err


def test_a_report_that_cannot_be_written(fitted, tmp_path, capsys):
    (tmp_path / "taken").write_text("")
    again = ("fit", tmp_path / "series.csv", "-m", "ridge", "-o", tmp_path / "new.gde", "-q", "--report")
    assert status(*again, tmp_path / "taken") == 2
    said = capsys.readouterr().err
    assert said.startswith("gde: error: --report:") and "is a file" in said and not (tmp_path / "new.gde").exists()
    (tmp_path / "page" / "report.html").unlink()
    (tmp_path / "page" / "report.html").mkdir()
    assert status(*again, tmp_path / "page") == 2
    said = capsys.readouterr().err
    assert said.startswith("gde: error: --report: the page cannot be written") and said.count("\n") == 1


def test_regressions_leave_the_checkpoint_of_a_network(tmp_path):
    (tmp_path / "series.csv").write_text(GOOD)
    left = tmp_path / "model.gde.ckpt"
    left.write_text("of a fit that was interrupted")
    assert status("fit", tmp_path / "series.csv", "-m", "persistence", "-o", tmp_path / "model.gde", "-q") == 0
    assert left.exists()


def test_units_are_for_dates(tmp_path, capsys):
    rows = "".join(f"{name},{t},{(t * 7 + k) % 13}\n" for k, name in enumerate("ab") for t in range(60))
    series, out = tmp_path / "series.csv", tmp_path / "model.gde"
    series.write_text("unique_id,ds,y\n" + rows)
    fit = ("fit", series, "-m", "persistence", "-o", out, "-q")
    assert status(*fit, "--horizon", "12", "--time-limit", "1h") == 0
    for option, args in {
        "--horizon": (*fit, "--horizon", "5min"),
        "--period": (*fit, "--period", "24 h"),
        "--ahead": ("backtest", series, "-o", tmp_path / "b", "-m", "persistence", "--ahead", "1", "--ahead", "2h"),
        "--every": ("forecast", out, "--every", "1s", "--until", "3"),
        "--until": ("forecast", out, "--every", "1", "--until", "3s"),
    }.items():
        assert status(*args) == 2
        assert capsys.readouterr().err.startswith(f"gde: error: {option}: expected a plain number")
    assert status("forecast", out, "--every", "1", "--until", "3", "-q") == 0


@pytest.mark.parametrize("text, seconds", [("5min", 300), ("2h", 7200), ("1.5 d", 129600), ("7", 7), ("30s", 30)])
def test_lengths_of_time(text, seconds):
    assert length(text, "x") == seconds
