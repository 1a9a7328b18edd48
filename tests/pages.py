"""Pages to test with: a small network with every part, made by formula."""

import dataclasses

import numpy as np

from neuralgde.report import Calibration, Fans, LatentFlow, Network, Page, Row, Scores, SolverStats, Training

NODES = ("A1 north", "A1 south", "B <2>", "C & D", "Ü5")


def full_page() -> Page:
    """All parts; the first node is forecast well, the last one badly."""
    random = np.random.default_rng(0)
    hours = np.sort(random.uniform(0, 24, 60))
    times = np.datetime64("2024-03-01", "ms") + (hours * 3.6e6).astype("timedelta64[ms]")
    spread = np.linspace(0.5, 3, len(NODES))
    y = 60 - 15 * np.exp(-(((hours[:, None] - 8 - np.arange(len(NODES))) / 2) ** 2))
    mean = y + spread * random.standard_normal(y.shape)
    y = np.where(random.uniform(size=y.shape) < 0.1, np.nan, y)
    half = np.array([0.67, 1.64])[:, None, None] * spread
    baselines = {"persistence": np.roll(mean, 3, axis=0), "time-of-day mean": np.full_like(mean, 55.0)}
    fans = Fans(
        NODES, times, mean, (50.0, 90.0), mean - half, mean + half, y,
        seen=random.uniform(size=y.shape) < 0.5, origins=times - np.timedelta64(15, "m"), baselines=baselines,
        past_times=times - np.timedelta64(1, "D"), past=np.roll(y, 1, axis=0),
    )  # fmt: skip
    forecasts = np.stack([mean, *baselines.values()])
    error = np.abs(forecasts - y)
    by_node = np.stack([np.nanmean(error, 1), np.sqrt(np.nanmean(error**2, 1))], 1)
    inside = (fans.lower <= y) & (y <= fans.upper)
    measured = 100 * np.array([inside[i][np.isfinite(y)].mean() for i in range(2)])
    scores = Scores(
        ("gcde-gru", *baselines), ("mae", "rmse"), by_node.mean(2), ("15 min", "60 min"),
        np.stack([by_node.mean(2) * 0.8, by_node.mean(2) * 1.2], 2), NODES, by_node, int(np.isfinite(y).sum()),
    )  # fmt: skip
    senders = np.arange(len(NODES))
    steps = np.arange(0, 200, 10)
    jumps = times[:4]
    flow_times = np.repeat(times[:5], 2)[1:-1]
    return Page(
        "Speeds on five roads",
        ("Five sensors, one day.",),
        ("Sensor 'X9' has no readings and was left out.",),
        "speed (mph)",
        fans,
        scores,
        Network(
            NODES, senders, np.roll(senders, 1), None, np.array([-118.0, 34.0]) + random.uniform(0, 0.1, (5, 2)), True
        ),
        Calibration((50.0, 90.0), measured, int(np.isfinite(y).sum()), 2 * half.mean((1, 2))),
        Training(steps, {"training": 1 / (1 + steps), "validation": 1.2 / (1 + steps)}, 150, 42.0),
        LatentFlow(NODES[:2], flow_times, random.standard_normal((8, 2, 3)).cumsum(0), jumps),
        SolverStats(
            {"solver": "tsit5", "steps": 120, "evaluations": 720}, hours[:20], random.integers(1, 9, 20), "min"
        ),
        {
            "model": "gcde-gru",
            "hidden": 32,
            "train": {"rate": 1e-3, "batch": 32, "a_setting_with_a_long_name": [{"and_a_part_with_another": [1.5, 2]}]},
        },
        {"python": "3.11", "neuralgde": "0.1.0"},
    )


def experiment_page() -> Page:
    """An experiment: rows and a figure."""
    rows = (Row("static", "5 steps", "nrmse", 0.6, 0.1), Row("gcde", "5 steps", "mape", 18.2, 0.1, 18.76))
    return Page("multi-agent", rows=rows, figures={"errors": b"\x89PNG\r\n\x1a\n\x00"})


def equal(a, b) -> bool:
    """Whether two pages, or parts of them, say the same."""
    if dataclasses.is_dataclass(a):
        return type(a) is type(b) and all(equal(getattr(a, f.name), getattr(b, f.name)) for f in dataclasses.fields(a))
    if isinstance(a, dict):
        return list(a) == list(b) and all(equal(a[k], b[k]) for k in a)
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and np.array_equal(a, b, equal_nan=a.dtype.kind in "fM")
    return a == b
