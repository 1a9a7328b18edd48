"""The command `gde`: quick to answer, plain about errors."""

import os
import time
from importlib.metadata import version

import pytest

import commands
from neuralgde import CheckpointError, InputError, SolveError, cli


def test_version():
    run = commands.elsewhere("--version")
    assert (run.status, run.out.strip()) == (0, f"neuralgde {version('neuralgde')}")


def test_help_is_quick_and_loads_no_jax():
    start = time.perf_counter()
    run = commands.elsewhere("--help", first=commands.TELL_OF_JAX)
    seconds = time.perf_counter() - start
    assert run.status == 0, run.err
    assert "demo" in run.out and run.out.split()[-1] == "False"
    assert seconds < 3  # generous, because other tests run at the same time


def every_command(app, before=()):
    """The words of every command and group."""
    yield before
    for group in app.registered_groups:
        yield from every_command(group.typer_instance, (*before, group.name))
    yield from ((*before, c.name or c.callback.__name__) for c in app.registered_commands)


@pytest.mark.parametrize("words", list(every_command(cli.app)), ids=" ".join)
def test_every_help_has_an_example(words):
    run = commands.here(*words, "--help")
    assert run.status == 0 and f"Example: gde {' '.join(words)}".strip() in run.out


def test_unknown_command_is_a_usage_error():
    run = commands.elsewhere("nonsense")
    assert run.status == 2
    assert "nonsense" in run.err and "Traceback" not in run.err


def test_unknown_experiment_names_the_nearest():
    run = commands.elsewhere("reproduce", "multi-agnt")
    assert run.status == 2
    assert run.err.startswith("gde: error") and "multi-agent" in run.err and run.err.count("\n") == 1


def test_a_file_where_the_demonstration_should_go_is_refused_before_the_work(tmp_path):
    (tmp_path / "taken").write_text("")
    status, out, said = commands.here("demo", "-o", tmp_path / "taken")
    assert status == 2 and not out and said.startswith("gde: error: --out:") and said.count("\n") == 1


@pytest.mark.parametrize(
    "arguments, message",
    [
        (("cora", "--keep", "0.3"), "--keep: it is an option of traffic"),
        (("multi-agent", "--models", "GRU"), "--models: it is an option of traffic"),
        (("traffic", "--keep", "30"), "such as 1,0.3, got '30'"),
        (("traffic", "--models", "GRU,GCDEGRU"), "Did you mean 'GCDE-GRU'?"),
    ],
)
def test_options_of_traffic(arguments, message, tmp_path):
    run = commands.here("reproduce", *arguments, "-o", tmp_path / "run")
    assert not (tmp_path / "run").exists()
    assert run.status == 2 and message in run.err


@pytest.mark.parametrize(
    "error, status",
    [
        (InputError("edge 3 names node 12,\n  but there are 10 nodes"), 2),
        (SolveError("too many steps", status="max_steps"), 1),
        (CheckpointError("not a model"), 1),
    ],
)
def test_errors_are_one_line(error, status, monkeypatch):
    def fail():
        raise error

    monkeypatch.setattr(cli, "app", fail)
    assert commands.here() == (status, "", f"gde: error: {' '.join(str(error).split())}\n")


def test_compilation_cache_goes_to_the_users_cache(monkeypatch, tmp_path):
    monkeypatch.delenv("JAX_COMPILATION_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(cli, "app", lambda: None)
    cli.main()
    assert os.environ["JAX_COMPILATION_CACHE_DIR"] == str(tmp_path / "neuralgde" / "jax")


def test_compilation_cache_named_by_the_user_stays(monkeypatch, tmp_path):
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", str(tmp_path / "mine"))
    monkeypatch.setattr(cli, "app", lambda: None)
    cli.main()
    assert os.environ["JAX_COMPILATION_CACHE_DIR"] == str(tmp_path / "mine")


def test_without_a_cache_folder_it_goes_on(monkeypatch, tmp_path):
    monkeypatch.delenv("JAX_COMPILATION_CACHE_DIR")
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.setattr(cli, "app", lambda: None)
    cli.main()
    assert "JAX_COMPILATION_CACHE_DIR" not in os.environ
