"""Stochastic runs as files, and the commands that write them."""

import io

import jax
import numpy as np
import pytest

import commands
import neuralgde as gde
from neuralgde import InputError
from neuralgde.simulate import (
    MassAction,
    Reaction,
    ReactionNetwork,
    read_reactions,
    repressilator,
    simulate_reactions,
    write_reactions,
)

NETWORK = ReactionNetwork(
    {"A": 30, "B": 0, "half": 0}, [Reaction("r", {"A": 1}, {"B": 1}, MassAction(0.3))], rules={"half": "A / 2"}
)


def test_files_give_the_runs_back(tmp_path):
    made = simulate_reactions(NETWORK, [0.0, 0.1, 2.0], runs=4, key=jax.random.key(0))
    write_reactions(made, tmp_path / "runs.csv")
    lines = (tmp_path / "runs.csv").read_text().splitlines()
    assert lines[0] == "run,time,A,B,half"
    assert lines[1] == "0,0,30,0,15"
    table = np.loadtxt(lines[1:], delimiter=",")
    np.testing.assert_array_equal(table[:, 0], np.repeat(np.arange(4), 3))
    np.testing.assert_allclose(table[:, 1], np.tile([0, 0.1, 2], 4))
    np.testing.assert_array_equal(table[:, 2:].reshape(4, 3, 3), made.states)
    write_reactions(made, tmp_path / "deep" / "runs.npz")
    with np.load(tmp_path / "deep" / "runs.npz") as file:
        np.testing.assert_array_equal(file["states"], made.states)
        assert list(file["species"]) == ["A", "B", "half"]


def test_unwritable_names_are_told(tmp_path):
    made = simulate_reactions(NETWORK, [0.0, 0.1, 2.0], runs=4, key=jax.random.key(0))
    with pytest.raises(gde.InputError, match=r"\.csv or \.npz"):
        write_reactions(made, tmp_path / "runs.txt")
    (tmp_path / "file").touch()
    with pytest.raises(gde.InputError, match="cannot be written"):
        write_reactions(made, tmp_path / "file" / "runs.csv")


def test_repressilator_command(tmp_path):
    path = tmp_path / "runs.csv"
    done = commands.elsewhere("simulate", "repressilator", "--runs", 3, "--until", 6, "--every", 2, "-o", path)
    assert done.status == 0, done.err
    assert "3 run(s) of 6 species, 4 times" in done.out
    lines = path.read_text().splitlines()
    assert lines[0] == "run,time,PX,PY,PZ,X,Y,Z"
    assert lines[1] == "0,0,0,0,0,0,20,0"
    assert len(lines) == 1 + 3 * 4


@pytest.mark.data
def test_sbml_command(tmp_path, data_dir):
    model, path = data_dir / "dsmts" / "00001" / "00001-sbml-l3v1.xml", tmp_path / "runs.csv"
    texts = []
    for seed in (0, 0, 1):
        done = commands.elsewhere(
            "simulate", "sbml", model, "--runs", 20, "--until", 5, "--every", 1, "--seed", seed, "-o", path
        )
        assert done.status == 0, done.err
        texts.append(path.read_text())
    assert texts[0].startswith("run,time,X\n0,0,100\n0,1,") and len(texts[0].splitlines()) == 121
    assert texts[0] == texts[1] != texts[2]


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (("repressilator", "-o", "runs.csv", "--every", "0"), "--every"),
        (("sbml", "missing.xml", "--until", "5", "-o", "runs.csv"), "missing.xml"),
    ],
)
def test_command_errors_are_one_line(arguments, word, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = commands.here("simulate", *arguments)
    assert done.status == 2 and not list(tmp_path.iterdir())
    assert word in done.err and done.err.startswith("gde: error") and len(done.err.splitlines()) == 1


def test_read_what_was_written(tmp_path):
    network = repressilator()
    made = simulate_reactions(network, [0.0, 1.0, 2.5], runs=3, method="tau", key=jax.random.key(0))
    write_reactions(made, tmp_path / "runs.csv")
    times, counts = read_reactions(tmp_path / "runs.csv", network.species)
    np.testing.assert_array_equal(times, made.times)
    np.testing.assert_array_equal(counts, made.states)


def test_standard_input_is_read(monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO("run,time,A\n0,0,1\n0,2.5,3\n"))
    times, counts = read_reactions("-", ("A",))
    assert times.tolist() == [0, 2.5] and counts.tolist() == [[[1], [3]]]
    monkeypatch.setattr("sys.stdin", io.StringIO("run,time,A\n0,0,one\n"))
    with pytest.raises(gde.InputError, match="standard input, line 2, column 'A'"):
        read_reactions("-", ("A",))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("run,time,B\n0,0,1\n", "line 1: expected the columns run, time, A, and 'A' is missing"),
        ("run,time,A\n0,0,one\n", "line 2, column 'A': expected a number, got 'one'"),
        ("run,time,A\n0,0\n", "line 2, column 'A': expected a number, got ''"),
        ("run,time,A\n0,0,1\n0,1,1\n1,0,1\n1,2,1\n", "run 1 has other times than run 0"),
        ("run,time,A\n", "no line behind the first"),
    ],
)
def test_read_refuses(tmp_path, text, message):
    (tmp_path / "runs.csv").write_text(text)
    with pytest.raises(InputError, match=message):
        read_reactions(tmp_path / "runs.csv", ("A",))
