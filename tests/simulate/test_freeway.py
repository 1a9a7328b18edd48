"""The freeway simulator: vehicles are kept, queues grow where they should, and tables say what was simulated."""

import csv
import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest

import commands
import neuralgde as gde
from neuralgde.simulate import DemandConfig, freeway_network, simulate_freeway, write_freeway
from neuralgde.simulate import _freeway as freeway
from neuralgde.simulate._freeway_demand import capacity_factors, draw_incidents

CALM = DemandConfig(peak=0.8, daily=0.0, fluctuation=0.05, incidents=0.0)


@pytest.fixture(scope="module")
def network():
    return freeway_network(2, miles=6.0, seed=1)


@pytest.fixture(scope="module")
def run(network):
    return simulate_freeway(network, days=3, seed=0)


def test_a_network_is_whole(network):
    cells = network.num_cells
    assert cells == 4 * 12 and network.first.sum() == network.last.sum() == 4
    assert not (network.entry & network.first).any() and not network.exits[network.last].any()
    # Each of the four ways to turn at the crossing leaves one carriageway and enters another.
    assert len(network.links) == 4 and network.entry[network.links[:, 1]].all()
    assert (network.links[:, 0] // 12 // 2 != network.links[:, 1] // 12 // 2).all()
    assert len(set(network.names)) == len(network.sensors) == 24
    np.testing.assert_array_equal(network.distances, network.distances.T)
    i, j = network.neighbours[0]
    assert network.distances[i, j] == pytest.approx(1609.344)
    assert np.isfinite(network.distances).all()
    assert np.isinf(freeway_network(1, miles=6.0).distances).any()


@pytest.mark.usefixtures("x64")
def test_vehicles_are_kept(network):
    """What came in is on the road, in queues, or has left, step by step, at any densities."""
    rng = np.random.default_rng(0)
    road = freeway._road(network)
    density, queue = network.jam * rng.uniform(0, 1, network.num_cells), rng.uniform(0, 200, network.num_cells)
    queue = np.where(network.entry | network.first, queue, 0)
    inflow = np.where(network.entry | network.first, 500.0, 0)
    dt = 20 / 3600
    state, factor = (jnp.asarray(density), jnp.asarray(queue)), jnp.ones(network.num_cells)
    (after, queued), (out, leaving) = road.step(state, jnp.asarray(inflow), factor, jnp.asarray(dt))
    turned = np.asarray(road.changing @ np.where(network.last, 0, leaving)).sum()
    before = (density * network.cell + queue).sum()
    expected = before + dt * (inflow.sum() + turned - np.asarray(leaving).sum())
    assert float((after * network.cell + queued).sum()) == pytest.approx(expected, rel=1e-12)
    assert (after >= -1e-9).all() and (after <= network.jam + 1e-6).all() and (queued >= -1e-9).all()
    # In no cell does more flow than it can send.
    assert (out <= np.minimum(network.free_speed * density, network.capacity) + 1e-9).all()


def test_a_calm_road_flows_freely(network):
    run = simulate_freeway(network, days=1, demand=CALM, noise=0.0, weekends=False)
    np.testing.assert_allclose(run.speeds, np.tile(network.free_speed[network.sensors], (288, 1)), rtol=2e-3)


def test_an_incident_makes_a_queue_upstream_and_none_downstream(network, monkeypatch):
    at = 8  # of the first carriageway, between its sensors at 7 and 9
    incident = freeway.Incident(0, at, 12.0, 13.0, 0.2)
    monkeypatch.setattr(freeway, "draw_incidents", lambda *_: (incident,))
    run = simulate_freeway(network, days=1, demand=CALM, noise=0.0)
    slow = run.speeds < 0.6 * network.free_speed[network.sensors]
    during, before = slice(12 * 12 + 2, 13 * 12), slice(0, 12 * 12)
    upstream, downstream = (int(np.flatnonzero(network.sensors == cell)[0]) for cell in (7, 9))
    assert not slow[before].any()
    assert slow[during, upstream].mean() > 0.9 and not slow[:, downstream].any()
    # The queue moves up the road: those further away slow down later, if at all.
    first = [int(np.flatnonzero(slow[:, s])[0]) for s in range(upstream, -1, -1) if slow[:, s].any()]
    assert len(first) > 1 and first == sorted(first)
    assert not slow[-60:].any()


def test_days_have_peaks_and_weekends_do_not(network):
    run = simulate_freeway(network, days=7, start="2024-01-01", noise=0.0, demand=DemandConfig(incidents=0.0, daily=0))
    mean = run.speeds.reshape(7, 288, -1).mean(2)
    assert run.speeds.shape == (7 * 288, 24) and np.isfinite(run.speeds).all()
    assert (mean[:5].min(1) < 60).all() and (mean[5:].min(1) > 60).all()
    assert (mean[:, : 4 * 12] > 62).all()
    assert (run.densities >= -1e-3).all() and (run.densities <= network.jam * 1.001).all()


def test_the_seed_decides(network, run):
    np.testing.assert_array_equal(run.speeds, simulate_freeway(network, days=3, seed=0).speeds)
    assert not np.allclose(run.speeds, simulate_freeway(network, days=3, seed=1).speeds)


def test_noise_and_missing_readings(network, run):
    clean = simulate_freeway(network, days=3, seed=0, noise=0.0)
    noise = (run.speeds - clean.speeds)[clean.speeds > 20]
    assert noise.std() == pytest.approx(1.0, rel=0.05) and abs(noise.mean()) < 0.05
    gaps = simulate_freeway(network, days=3, seed=0, missing=0.1)
    assert np.isnan(gaps.speeds).mean() == pytest.approx(0.1, abs=0.01)
    there = ~np.isnan(gaps.speeds)
    np.testing.assert_array_equal(gaps.speeds[there], run.speeds[there])


def test_incidents_take_capacity_while_they_last(network):
    incidents = draw_incidents(np.random.default_rng(0), network, DemandConfig(incidents=5.0), 20)
    assert len(incidents) == pytest.approx(100, abs=40)
    one = incidents[0]
    factors = capacity_factors((one,), 20, 288, network.num_cells)
    hours = (factors != 1).sum() / 12
    assert hours == pytest.approx(one.end - one.start, abs=0.1)
    assert factors.min() == one.factor and (factors[one.day, :, one.cell] != 1).any()


def test_only_weekdays(network):
    run = simulate_freeway(network, days=6, start="2024-01-04", weekends=False, demand=CALM)
    assert run.dates.astype(str).tolist() == [
        "2024-01-04", "2024-01-05", "2024-01-08", "2024-01-09", "2024-01-10", "2024-01-11"
    ]  # fmt: skip


def test_tables(network, run, tmp_path):
    speeds = run.speeds.copy()
    speeds[5, 2] = np.nan
    series, edges = write_freeway(dataclasses.replace(run, speeds=speeds), tmp_path / "new" / "road.csv")
    with series.open() as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["unique_id", "ds", "y"] and len(rows) == speeds.size - 1
    assert rows[1] == {"unique_id": network.names[0], "ds": "2024-01-01T00:05:00", "y": f"{speeds[1, 0]:.2f}"}
    with edges.open() as file:
        pairs = list(csv.DictReader(file))
    assert edges.name == "road-edges.csv" and len(pairs) == run.graph.num_edges
    there = {(row["source"], row["target"]): float(row["weight"]) for row in pairs}
    assert {(b, a) for a, b in there} == set(there)
    dense = np.asarray(run.graph.to_dense())
    for (a, b), weight in there.items():
        assert dense[network.names.index(a), network.names.index(b)] == pytest.approx(weight, abs=1e-5)


def test_the_command(tmp_path):
    call = ("simulate", "freeway", "--days", 1, "--corridors", 1, "-o")
    done = commands.elsewhere(*call, tmp_path / "road.csv")
    assert done.status == 0, done.err
    assert "24 sensors" in done.out and len((tmp_path / "road.csv").read_text().splitlines()) == 1 + 24 * 288
    wrong = commands.here(*call, tmp_path / "road.txt")
    assert wrong.status == 2 and ".csv" in wrong.err


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda: freeway_network(0), "corridors"),
        (lambda: freeway_network(miles=1.0), "miles / cell"),
        (lambda: freeway_network(sensor_every=100), "sensor_every"),
        (lambda: DemandConfig(peak=-1.0), "peak"),
        (lambda: simulate_freeway(days=0), "days"),
        (lambda: simulate_freeway(missing=1.0), "missing"),
        (lambda: simulate_freeway(start="soon"), "start"),
    ],
)
def test_bad_input(call, name):
    with pytest.raises(gde.InputError, match=name):
        call()
