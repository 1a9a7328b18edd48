"""The traffic experiment end to end, as small as it gets, and what its models are shown."""

import io

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from rich.console import Console

import neuralgde as gde
from neuralgde.data import DataError, SensorSeries
from neuralgde.experiments import traffic
from neuralgde.experiments._traffic_protocol import TrafficTask
from neuralgde.experiments._traffic_training import fresh_windows, view_of
from neuralgde.experiments.traffic import TrafficConfig, run
from neuralgde.forecast import SensorError, WindowLoss
from neuralgde.report import read_result
from neuralgde.simulate import freeway_network, simulate_freeway

TINY = TrafficConfig(
    keeps=(0.7,), days=(2, 1, 1), models=("GRU", "GCDE-GRU+"), repeats=2, regime_repeats=1, paper_epochs=1, steps=16,
    hidden=4, embedding=2, rank=2, england=None,
)  # fmt: skip


@pytest.fixture(scope="module")
def series():
    made = simulate_freeway(freeway_network(1, miles=3.0), days=7, start="2024-01-04", weekends=False)
    return SensorSeries(made.speeds, made.dates, made.network.distances, made.network.names, "small")


@pytest.fixture
def task(series):
    return TrafficTask.of(series, (4, 1, 1))


def test_a_run_writes_results_and_figures(tmp_path, series, monkeypatch):
    monkeypatch.setattr(traffic, "load_pemsd7m", lambda: series)
    text = tmp_path / "out.txt"
    result = run(tmp_path / "run", seeds=2, console=Console(file=text.open("w"), width=100), config=TINY)
    again = read_result(tmp_path / "run")
    assert again.rows == result.rows and again.seeds == 2
    names = {path.name for path in (tmp_path / "run").glob("*.png")}
    assert names == {"gaps.png", "training.png", "error_by_gap.png", "forecasts.png"}
    assert again.find("GRU", "keep 0.7", "rmse_sensor").paper == 13.28
    assert again.find("GRU", "keep 0.7", "mae").paper is None
    still = again.find("persistence", "keep 0.7", "rmse_sensor")
    assert still.mean > 0 and still.std > 0
    for model in TINY.models:
        assert np.isfinite(again.find(model, "keep 0.7", "mae").mean)
    # What the seeds say together is no worse than they are one by one.
    one, both = (again.find(name, "keep 0.7", "rmse_sensor").mean for name in ("GCDE-GRU+", "GCDE-GRU+, mean of 2"))
    assert both <= one
    # Ours starts from the last value, so that one epoch is enough to be near to standing still.
    assert again.find("GCDE-GRU+", "keep 0.7", "rmse_sensor").mean < 2 * still.mean
    assert "about 0 s left" in text.read_text()


def test_without_data_a_simulation_stands_in_and_says_so(monkeypatch):
    def fail():
        raise DataError("no network")

    monkeypatch.setattr(traffic, "load_pemsd7m", fail)
    text = io.StringIO()
    assert traffic._load(Console(file=text, width=120), 2).name == "a simulated freeway"
    assert "no result on PeMSD7(M)" in text.getvalue()


def test_fresh_windows_are_undersamplings(series):
    keep, length = 0.4, 3
    fresh = fresh_windows(series, keep, length)
    rows = np.tile(np.arange(length, len(series.values)), 3)
    w = jax.tree.map(np.asarray, eqx.filter_jit(fresh)(jnp.asarray(rows, jnp.int32), jax.random.key(0)))
    fits = np.asarray(w.target_mask[:, 0, 0, 0])
    gaps = np.asarray(w.gaps)[fits]
    # Geometric, and independent of each other.
    for k in (1, 2, 3):
        assert (gaps == k).mean() == pytest.approx(keep * (1 - keep) ** (k - 1), abs=0.02)
    assert abs(np.corrcoef(gaps[:, 0], gaps[:, -1])[0, 1]) < 0.05
    # Readings are those of the rows, by the calendar; nothing reaches over the weekend.
    steps = series.steps
    row_of = {int(step): row for row, step in enumerate(steps)}
    for i in np.flatnonzero(fits)[::97]:
        midnight = steps[rows[i]] // series.slots * series.slots
        assert steps[rows[i]] - midnight == w.times[i, -1]
        past = [row_of[int(t) + midnight] for t in np.asarray(w.times[i])]
        target = row_of[int(w.query_times[i, 0]) + midnight]
        np.testing.assert_allclose(w.values[i, :, :, 0], series.values[past], rtol=1e-6)
        np.testing.assert_allclose(w.targets[i, 0, :, 0], series.values[target], rtol=1e-6)
        assert past[-1] == rows[i] < target and steps[target] - steps[past[0]] == target - past[0]
        assert np.asarray(w.slot)[i].tolist() == [row % series.slots for row in past]
    weekend = np.flatnonzero(np.diff(steps) > 1)[0] + 1
    around = (rows >= weekend - 1) & (rows < weekend + length - 1)
    assert around.any() and not fits[around].any()
    assert not np.isin(np.flatnonzero(np.isin(np.arange(len(steps)), rows[around])), fresh.rows).any()
    assert (np.asarray(w.gaps) > 0).all()


def test_all_are_kept_where_keep_is_one(series):
    fresh = fresh_windows(series, 1.0, 2, queries=3)
    w = eqx.filter_jit(fresh)(jnp.asarray(fresh.rows[::50]), jax.random.key(0))
    assert (np.asarray(w.query_times - w.times[:, -1:]) == 1).all() and w.target_mask.all()
    assert len(fresh.rows) == len(series.values) - 2 * 2


def test_sensors_go_out_and_stay_out(series):
    fresh = fresh_windows(series, 0.5, 4, outages=0.3)
    w = eqx.filter_jit(fresh)(jnp.asarray(fresh.rows), jax.random.key(0))
    mask = np.asarray(w.mask[..., 0])
    assert (np.diff(mask.astype(int), axis=1) <= 0).all()
    assert (~mask[:, -1]).mean() == pytest.approx(0.3, abs=0.02) and (~mask[:, 0]).mean() == pytest.approx(
        0.075, abs=0.02
    )
    assert not np.asarray(w.values)[~np.asarray(w.mask)].any()


@pytest.mark.parametrize("mean_day", [False, True])
def test_what_a_model_is_shown_is_read_back(task, mean_day):
    view = view_of(task, mean_day)
    w = jax.tree.map(jnp.asarray, task.windows("test", 0.5, seed=0))
    shown, inputs = view.show(w)
    np.testing.assert_allclose(view.read(shown.targets, w), w.targets, rtol=1e-4)
    # A model that predicts nothing, read, is the mean of all, or the mean day.
    nothing = view.read(jnp.zeros_like(w.targets), w)[:, :, :, 0]
    slot = np.asarray(w.query_times).astype(int) % w.period
    expected = task.profile[slot] if mean_day else np.full(nothing.shape, task.scale.mean)
    np.testing.assert_allclose(nothing, expected, rtol=1e-4)
    assert (inputs is None) == (not mean_day)
    train = view.show(jax.tree.map(jnp.asarray, task.windows("train", 1.0, seed=0)))[0].values
    assert float(jnp.std(train)) == pytest.approx(1, rel=0.02)


def test_loss_and_selection_are_the_errors_they_say(task):
    view, graph = view_of(task, False), task.train.graph()
    w = jax.tree.map(jnp.asarray, task.windows("validation", 0.5, seed=0))

    def last(stream, times):
        return stream.values[:, -1:]

    error = np.asarray(w.targets - w.values[:, -1:])[:, 0, :, 0]
    loss = WindowLoss(graph, view, None)(last, w, jax.random.key(0))
    assert float(loss) == pytest.approx((error**2).mean() / task.scale.std**2, rel=1e-4)
    chosen = SensorError(graph, view)(last, w, jax.random.key(0))
    assert float(chosen) == pytest.approx(np.sqrt((error**2).mean(0)).mean(), rel=1e-4)


@pytest.mark.parametrize(("change", "name"), [({"models": ("GCDEGRU",)}, "GCDE-GRU"), ({"keeps": (0.0,)}, "keeps")])
def test_bad_config(change, name):
    with pytest.raises(gde.InputError, match=name):
        TrafficConfig(**change)


def test_some_models_alone():
    chosen = traffic.only(TrafficConfig(england=None), ("England", "GRU", "GRU"))
    assert chosen.models == ("GRU",) and chosen.england is not None
    assert traffic.only(chosen, ("GCGRU+",)).england is None
    assert traffic.only(chosen, ("England",)).models == ()
    with pytest.raises(gde.InputError, match=r"Known: .*England"):
        traffic.only(chosen, ("Wales",))
