"""A run that is interrupted, wherever, ends in the same bits as one that is not."""

import dataclasses
import json
import multiprocessing
import os
import signal
import sys
from pathlib import Path

import equinox as eqx
import jax
import numpy as np
import pytest

from neuralgde import CheckpointError
from neuralgde.train import TrainStatus, _resume, read_checkpoint

sys.path.insert(0, str(Path(__file__).parent))
import killed_run


def outcome(folder):
    """Everything that a run leaves behind but the clock: parameters, optimiser state, keys, history, log."""
    found = read_checkpoint(folder / "run.ckpt")
    arrays = {name: (a.dtype.name, a.shape, a.tobytes()) for name, a in found.arrays.items()}
    return arrays, found.meta["step"], (folder / "run.jsonl").read_bytes()


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    result = killed_run.train(folder)
    return result, outcome(folder)


def test_the_whole_run(whole):
    result, (arrays, step, log) = whole
    assert step == 42 and {name.split(".")[0].split("[")[0] for name in arrays} == {"state", "key", "history"}
    lines = [json.loads(line) for line in log.splitlines()]
    assert [line["step"] for line in lines] == [*range(4, 42, 4), 42]
    assert list(lines[0])[:6] == ["step", "epoch", "rate", "skipped", "loss", "validation"]
    # One seed stops early, so that this is resumed too; from there on its losses are null.
    assert result.status.tolist() == [TrainStatus.STOPPED_EARLY, TrainStatus.FINISHED]
    for name in ("loss", "noise"):
        np.testing.assert_array_equal(np.array([line[name] for line in lines], float), result.history[name])


class Stop(Exception):
    pass


@pytest.mark.parametrize("saves", [1, 4])
def test_interrupted(whole, tmp_path, monkeypatch, saves):
    save, done = _resume.save_checkpoint, []

    def stopping(*args):
        save(*args)
        done.append(1)
        if len(done) == saves:
            raise Stop

    monkeypatch.setattr(_resume, "save_checkpoint", stopping)
    with pytest.raises(Stop):
        killed_run.train(tmp_path)
    monkeypatch.undo()
    assert outcome(tmp_path)[1] == 8 * saves
    result = killed_run.train(tmp_path)
    assert outcome(tmp_path) == whole[1]
    assert eqx.tree_equal(result.model, whole[0].model) and eqx.tree_equal(result.best, whole[0].best)
    for name, values in whole[0].history.items():
        np.testing.assert_array_equal(result.history[name], values)


@pytest.fixture(scope="module")
def ready():
    """Processes forked from one that has imported JAX, which is most of what a short run takes, and not yet run it."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["neuralgde.train"])
    return context


@pytest.mark.slow
@pytest.mark.parametrize("point", killed_run.POINTS)
def test_killed(whole, ready, tmp_path, point):
    run = ready.Process(target=killed_run.train_until, args=(point, tmp_path), daemon=True)
    run.start()
    run.join(timeout=120)
    assert run.exitcode == -signal.SIGKILL
    step = killed_run.POINTS[point][1]
    path = tmp_path / "run.ckpt"
    assert read_checkpoint(path).meta["step"] == step if step else not path.exists()
    killed_run.train(tmp_path)
    assert outcome(tmp_path) == whole[1]
    assert sorted(os.listdir(tmp_path)) == ["run.ckpt", "run.ckpt.prev", "run.jsonl"]


def test_damaged_checkpoint(whole, tmp_path):
    killed_run.train(tmp_path)
    path = tmp_path / "run.ckpt"
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.warns(UserWarning, match="run.ckpt.prev is used instead"):
        killed_run.train(tmp_path)
    assert outcome(tmp_path) == whole[1]
    assert (tmp_path / "run.ckpt.damaged").exists()
    # The good one that was used is still the one before.
    assert read_checkpoint(tmp_path / "run.ckpt.prev").meta["step"] == 40


def test_a_finished_run_is_not_run_again(whole, tmp_path, monkeypatch):
    killed_run.train(tmp_path)
    before = (tmp_path / "run.ckpt").read_bytes()
    monkeypatch.setattr("neuralgde.train._loop.run_steps", None)
    result = killed_run.train(tmp_path)
    assert eqx.tree_equal(result.best, whole[0].best) and (tmp_path / "run.ckpt").read_bytes() == before


def relu_net(key):
    return eqx.nn.MLP(2, 1, 3, 1, key=key)


def wider_net(key):
    return eqx.nn.MLP(2, 1, 4, 1, activation=jax.nn.tanh, key=key)


@pytest.mark.parametrize(
    ("message", "change"),
    [
        ("run with rate=0.05, and this one has 0.1", {"config": dataclasses.replace(killed_run.CONFIG, rate=0.1)}),
        ("of another model: it has .*tanh.* where this one has .*relu", {"make": relu_net}),
        (r"of another model: .*f32\[2,3,2\].* where this one has .*f32\[2,4,2\]", {"make": wider_net}),
        ("of a run with another key", {"seed": 6}),
        ("of a run on other data", {"scale": 2.0}),
    ],
)
def test_another_run_is_refused(whole, tmp_path, message, change):
    killed_run.train(tmp_path)
    before = (tmp_path / "run.ckpt").read_bytes()
    with pytest.raises(CheckpointError, match=message) as error:
        killed_run.train(tmp_path, **change)
    assert "remove" in str(error.value) and (tmp_path / "run.ckpt").read_bytes() == before


def test_other_versions_are_told(whole, tmp_path, monkeypatch):
    monkeypatch.setattr("neuralgde.train._checkpoint.package_versions", lambda: {"jax": "0.1"})
    killed_run.train(tmp_path)
    with pytest.warns(UserWarning, match="last bits"):
        killed_run.train(tmp_path)
