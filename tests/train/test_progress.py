"""The log's lines and what is shown while training."""

import io
import json
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from rich.console import Console

from neuralgde._errors import InputError
from neuralgde.train import TrainConfig, _progress, fit

KEY = jax.random.key(0)
CONFIG = TrainConfig(steps=20, log_every=5)


def run(**options):
    return fit({"w": jnp.ones(2)}, lambda model, batch, key: jnp.sum(model["w"] ** 2), None, CONFIG, key=KEY, **options)


@pytest.mark.parametrize("progress", [None, False])
def test_nothing_is_printed_where_there_is_no_terminal(capfd, progress):
    run(progress=progress)
    assert capfd.readouterr() == ("", "")


def test_lines_if_asked_for(capfd):
    run(progress=True)
    out, err = capfd.readouterr()
    lines = err.splitlines()
    assert out == "" and lines[0] == "compiling" and len(lines) == 5
    assert lines[-1].startswith("step 20/20  loss ") and "rate 0.01" in lines[-1]
    assert all(re.search(r"  about \d+ s left$", line) for line in lines[1:-1]) and "left" not in lines[-1]


@pytest.mark.parametrize("progress", [None, True, False])
def test_a_bar_on_a_terminal(monkeypatch, progress):
    screen = io.StringIO()
    monkeypatch.setattr(
        _progress, "Console", lambda stderr: Console(file=screen, force_terminal=True, width=120, legacy_windows=False)
    )
    run(progress=progress)
    shown = screen.getvalue()
    if progress is False:
        assert shown == ""
    else:
        assert shown.index("compiling") < shown.index("training")
        assert "20/20" in shown and "loss" in shown and "rate 0.01" in shown


def test_log(tmp_path):
    path = tmp_path / "folder" / "run.jsonl"
    history = run(log=path).history
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["step"] for line in lines] == [5, 10, 15, 20] and lines[0].keys() == history.keys()
    np.testing.assert_array_equal([line["loss"] for line in lines], history["loss"])

    # Without a checkpoint a run starts anew, and so does its log.
    first = path.read_bytes()
    run(log=path)
    assert path.read_bytes() == first

    with pytest.raises(InputError, match="log: cannot write"):
        run(log=path / "below" / "a" / "file")
