"""England's task: what is forecast, what is known, and the naive forecasts."""

import jax.numpy as jnp
import numpy as np
import pytest

from neuralgde.data import EnglandMobility, load_england
from neuralgde.experiments._traffic_england import CASES, EDGES, EnglandTask, naive_rows
from neuralgde.experiments._traffic_england_models import EnglandConfig, train_england
from neuralgde.graph import Graph, GraphStream


def make_task(later=0.0) -> EnglandTask:
    """Twelve days of two regions: cases count the days, one edge is there every day and one every other day."""
    days = 12
    movements = np.zeros((days, 2, 2))
    movements[:, 0, 1] = np.e - 1
    movements[::2, 1, 0] = np.e - 1
    cases = np.arange(days)[:, None] * np.array([1.0, 10.0])
    cases[-1] += later
    stream = GraphStream(jnp.arange(days, dtype=float), cases[..., None], [Graph.from_adjacency(m) for m in movements])
    data = EnglandMobility(stream, movements, np.datetime64("2020-03-13") + np.arange(days))
    return EnglandTask.of(data, train_days=6, validation_days=2)


@pytest.fixture
def task():
    return make_task()


def test_parts(task):
    assert (task.validation, task.test) == (range(6, 8), range(8, 12))
    assert task.pairs.tolist() == [[False, True], [True, False]]
    np.testing.assert_allclose(task.flows[:2], [[1, 1], [1, 0]])


def test_naive_rows(task):
    rows = {(r.model, r.setting, r.metric): r.mean for r in naive_rows(task)}
    # One day of growth is 1 and 10; the middle of the last seven days is four days ago.
    assert rows["persistence", CASES, "mae"] == pytest.approx(5.5)
    assert rows["7-day mean", CASES, "mae"] == pytest.approx(4 * 5.5)
    # Of two pairs one is always right, and the other always wrong if today is tomorrow.
    assert rows["persistence", EDGES, "accuracy"] == pytest.approx(0.5)
    assert rows["persistence", EDGES, "mae"] == pytest.approx(0.5)


def test_england_learns_from_training_days_alone(tmp_path):
    config = EnglandConfig(models=("GCDE-GRU",), hidden=3, steps=2)
    rows = train_england(make_task(), config, 1, 0, tmp_path)
    again = train_england(make_task(later=100.0), config, 1, 0, tmp_path)
    assert {row.model for row in rows} == {"GCDE-GRU"} and all(np.isfinite(row.mean) for row in rows)
    # What changes on the last day changes the score of that day, through the truth alone.
    changed = [row.metric for row, other in zip(rows, again, strict=True) if row.mean != other.mean]
    assert set(changed) == {"rmse", "mae"}


@pytest.mark.data
def test_england(data_dir):
    task = EnglandTask.of(load_england(data_dir / "england_covid" / "england_covid.json"))
    assert len(task.test) == 14
    rows = {(r.model, r.setting, r.metric): r.mean for r in naive_rows(task)}
    for model in ("persistence", "7-day mean"):
        assert 3 < rows[model, CASES, "mae"] < 10 and 0.8 < rows[model, EDGES, "accuracy"] < 1
