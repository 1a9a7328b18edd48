"""`gde fit` on PeMSD7(M), three tenths of its snapshots: one step ahead on the test days, and what intervals cover."""

import csv

import numpy as np
import pytest

import commands
from neuralgde import Forecaster, metrics
from neuralgde.data import keep_snapshots, load_pemsd7m

# A whole fit of the network takes ten minutes on two quiet cores.
pytestmark = [pytest.mark.data, pytest.mark.slow, pytest.mark.timeout(2400)]
KEEP, TRAIN_DAYS, REPEATS = 0.3, 29, 10


def stamps_of(series):
    return (series.dates.astype("datetime64[m]")[:, None] + 5 * np.arange(series.slots)).reshape(-1)


def write_wide(path, series, rows):
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["ds", *series.sensors])
        for row in rows:
            writer.writerow([stamps_of(series)[row], *series.values[row]])


def write_edges(path, series):
    """Sensors within 3 km, the closer the heavier."""
    near = np.argwhere((series.distances < 3000) & (series.distances > 0))
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["source", "target", "weight"])
        for i, j in near:
            weight = np.exp(-((series.distances[i, j] / 3000) ** 2))
            writer.writerow([series.sensors[i], series.sensors[j], f"{weight:.4f}"])


# In two minutes the network learns little: that case sees that it does not spoil the regression that it starts from.
@pytest.mark.parametrize(
    ("model", "options"),
    [("ridge", ()), ("gcde-gru", ("--time-limit", "2min")), pytest.param("gcde-gru", (), marks=pytest.mark.full)],
    ids=["ridge", "gcde-gru in two minutes", "gcde-gru"],
)
def test_one_step_ahead(model, options, data_dir, tmp_path):
    series = load_pemsd7m(data_dir / "pemsd7m")
    stop = TRAIN_DAYS * series.slots
    write_wide(tmp_path / "speeds.csv", series, np.flatnonzero(keep_snapshots(stop, KEEP, seed=0)))
    write_edges(tmp_path / "edges.csv", series)
    out = tmp_path / "model.gde"
    arguments = ["fit", tmp_path / "speeds.csv", "--edges", tmp_path / "edges.csv", "-m", model, "-o", out, "-q"]
    done = commands.here(*arguments, *options)
    assert done.status == 0, done.err
    forecaster = Forecaster.load(out)
    errors, covered = [], []
    for seed in range(REPEATS):
        rows = stop + np.flatnonzero(keep_snapshots(5 * series.slots, KEEP, seed=(2, seed)))
        write_wide(tmp_path / "test.csv", series, rows)
        made = forecaster.forecasts(stamps_of(series)[rows[5:]], tmp_path / "test.csv")
        low, high = made.interval(90)
        y = series.values[rows[5:]]
        errors.append(float(metrics.rmse_sensor(made.mean[..., 0], y)))
        covered.append(float(metrics.coverage(low[..., 0], high[..., 0], y)))
    print(f"{model}: rmse_sensor {np.mean(errors):.3f} mph, 90 % intervals covered {100 * np.mean(covered):.1f} %")
    assert np.mean(errors) < 4.06 and 0.85 < np.mean(covered) < 0.95
