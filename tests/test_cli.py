"""The command `gde`: quick to answer, plain about errors."""

import os
import subprocess
import sys
import time
from importlib.metadata import version

import pytest

from neuralgde import CheckpointError, InputError, SolveError, cli


def gde(*args):
    code = "import sys; from neuralgde.cli import main; sys.argv[0] = 'gde'; main()"
    return subprocess.run([sys.executable, "-c", code, *args], capture_output=True, text=True)


def test_version():
    run = gde("--version")
    assert (run.returncode, run.stdout.strip()) == (0, f"neuralgde {version('neuralgde')}")


def test_help_is_quick_and_loads_no_jax():
    code = (
        "import sys; from neuralgde.cli import main; sys.argv = ['gde', '--help']\n"
        "try: main()\n"
        "except SystemExit as stop: assert not stop.code, stop.code\n"
        "assert 'jax' not in sys.modules"
    )
    start = time.perf_counter()
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    seconds = time.perf_counter() - start
    assert run.returncode == 0, run.stderr
    assert "demo" in run.stdout
    assert seconds < 3  # generous, because other tests run at the same time


def commands(app, before=()):
    """The words of every command and group."""
    yield before
    for group in app.registered_groups:
        yield from commands(group.typer_instance, (*before, group.name))
    yield from ((*before, c.name or c.callback.__name__) for c in app.registered_commands)


@pytest.mark.parametrize("words", list(commands(cli.app)), ids=" ".join)
def test_every_help_has_an_example(words, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["gde", *words, "--help"])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    said = capsys.readouterr().out
    assert stop.value.code == 0 and f"Example: gde {' '.join(words)}".strip() in said


def test_unknown_command_is_a_usage_error():
    run = gde("nonsense")
    assert run.returncode == 2
    assert "nonsense" in run.stderr and "Traceback" not in run.stderr


def test_unknown_experiment_names_the_nearest():
    run = gde("reproduce", "multi-agnt")
    assert run.returncode == 2
    assert "multi-agent" in run.stderr and "Traceback" not in run.stderr


def test_a_file_where_the_demonstration_should_go_is_refused_before_the_work(tmp_path, monkeypatch, capsys):
    (tmp_path / "taken").write_text("")
    monkeypatch.setattr("sys.argv", ["gde", "demo", "-o", str(tmp_path / "taken")])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    out, said = capsys.readouterr()
    assert stop.value.code == 2 and not out and said.startswith("gde: error: --out:") and said.count("\n") == 1


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
    run = gde("reproduce", *arguments, "-o", str(tmp_path / "run"))
    assert not (tmp_path / "run").exists()
    assert run.returncode == 2 and message in run.stderr and "Traceback" not in run.stderr


@pytest.mark.parametrize(
    "error, status",
    [
        (InputError("edge 3 names node 12,\n  but there are 10 nodes"), 2),
        (SolveError("too many steps", status="max_steps"), 1),
        (CheckpointError("not a model"), 1),
    ],
)
def test_errors_are_one_line(error, status, monkeypatch, capsys, tmp_path):
    def fail():
        raise error

    monkeypatch.setattr(cli, "app", fail)
    with pytest.raises(SystemExit) as stop:
        cli.main()
    lines = capsys.readouterr().err.splitlines()
    assert stop.value.code == status
    assert lines == ["gde: error: " + " ".join(str(error).split())]


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
