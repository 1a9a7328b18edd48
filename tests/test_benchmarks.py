"""The benchmarks' own helpers: agreement, bars, fits and files; and one quick run against the peers."""

import json
import math
import sys
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks import __main__ as command  # noqa: E402
from benchmarks import _harness as harness  # noqa: E402
from benchmarks._machine import Machine  # noqa: E402
from benchmarks.crossover import crossover_share  # noqa: E402

MACHINE = Machine(gemm_rate=1e9, bandwidth=1e9, cores=2, description="a machine", versions={})


def work(*bars, value_tolerance=1e-3):
    least = harness.Least(operations=1e6, bytes=5e5)
    return harness.Work("a piece of work", (), bars, lambda stats: least, value_tolerance, 1e-3)


def row(name, family, ms, gap=0.0):
    return {"name": name, "family": family, "ms": ms, "iqr_ms": 0.1, "peak_bytes": 3 * 2**20, "value_gap": gap,
            "gradient_gap": 0.0}  # fmt: skip


ROWS = [row("ours", "ours", 2.0), row("a", "torch", 30.0), row("b", "torch", 20.0), row("c", "jax", 4.0)]


@pytest.mark.parametrize(
    ("bar", "peer", "passed"),
    [
        (harness.Bar(9), "b", True),
        (harness.Bar(11), "b", False),
        (harness.Bar(11, ("a",)), "a", True),
        (harness.Bar(None, ("c",)), "c", None),
    ],
)
def test_a_bar_is_judged_against_the_fastest_of_its_peers(bar, peer, passed):
    (found,) = harness.summarise(work(bar), ROWS, MACHINE, judge=True)["bars"]
    assert (found["peer"], found["passed"]) == (peer, passed)


def test_a_quick_run_judges_no_bar():
    (found,) = harness.summarise(work(harness.Bar(1000)), ROWS, MACHINE, judge=False)["bars"]
    assert found["passed"] is None


def test_share_of_the_limit():
    # A million operations at 1e9 a second take 1 ms, the bytes half of that; ours takes 2 ms.
    assert harness.summarise(work(harness.Bar(1)), ROWS, MACHINE, judge=True)["share_of_limit"] == pytest.approx(0.5)


@pytest.mark.parametrize(("gap", "told"), [(5e-4, 0), (5e-3, 1), (math.inf, 1), (math.nan, 1)])
def test_disagreements_are_told(gap, told):
    rows = [ROWS[0], row("a", "torch", 30.0, gap)]
    assert len(harness.summarise(work(harness.Bar(1)), rows, MACHINE, judge=True)["disagreements"]) == told


@pytest.mark.parametrize(
    ("found", "gap"),
    [([[3.0, 4.0]], 0.0), ([[3.0, 4.5]], 0.1), ([[3.0, math.nan]], math.inf), ([[3.0]], math.inf), ([], math.inf)],
)
def test_largest_gap(found, gap):
    assert harness.largest_gap([np.array(x) for x in found], [np.array([3.0, 4.0])]) == pytest.approx(gap)


def test_arrays_come_back_in_order(tmp_path):
    arrays = {f"gradients_{i}": np.full(2, i) for i in range(12)}
    np.savez(tmp_path / "x.npz", values_0=np.zeros(1), **arrays)
    found = harness.load_arrays(tmp_path / "x.npz")
    assert [a[0] for a in found["gradients"]] == list(range(12))
    assert len(found["values"]) == 1


def test_fit_exponent():
    x = np.array([1.0, 10.0, 100.0])
    assert harness.fit_exponent(list(x), list(3 * x**1.5)) == pytest.approx(1.5)


def test_interleave_takes_turns():
    order = []
    samples = harness.interleave([lambda: order.append("a") or 1.0, lambda: order.append("b") or 2.0], rounds=3)
    assert order == ["a", "b"] * 3
    assert samples == [[1.0] * 3, [2.0] * 3]


def test_spread():
    assert harness.spread([1e-3, 2e-3, 3e-3, 4e-3, 5e-3]) == pytest.approx({"ms": 3.0, "iqr_ms": 2.0, "rounds": 5})


@pytest.mark.parametrize(("x", "text"), [(0.01234, "0.0123"), (1.234, "1.23"), (12.34, "12.3"), (1234.5, "1234")])
def test_number(x, text):
    assert harness.number(x) == text


def test_missed_bars_name_what_was_missed():
    comparison = harness.summarise(work(harness.Bar(11)), ROWS, MACHINE, judge=True)
    report = harness.Report([comparison], [harness.Check("slope", 1.2, 1.1), harness.Check("other", 1.0, 1.1)])
    assert len(report.missed()) == 2
    assert "10.00 times faster than b, the bar is 11" in report.missed()[0]
    assert report.missed()[1] == "slope: 1.2, the bar is 1.1"


def test_tables_show_what_was_found():
    comparison = harness.summarise(work(harness.Bar(11)), ROWS, MACHINE, judge=True)
    console = Console(record=True, width=160, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(harness.summary_table([comparison]), harness.detail_table(comparison))
    text = console.export_text()
    for word in ("10.00", "11 ✗", "50 %", "3.00 MiB", "30.0"):
        assert word in text


def test_json_is_strict(tmp_path):
    path = tmp_path / "deep" / "result.json"
    harness.write_json(path, {"a": [math.inf, np.float32(1.5), np.int64(2)], "b": {1: None}})
    assert json.loads(path.read_text()) == {"a": [None, 1.5, 2], "b": {"1": None}}


def test_crossover_share():
    shares = [0.01, 0.1, 1.0]
    assert crossover_share(shares, [1.0, 1.0, 1.0], [0.1, 1.0, 10.0]) == pytest.approx(0.1)
    assert crossover_share(shares, [1.0, 1.0, 1.0], [0.01, 0.1, 10.0]) == pytest.approx(10**-0.5)
    assert crossover_share(shares, [1.0, 1.0, 1.0], [0.1, 0.2, 0.3]) is None
    assert crossover_share(shares, [1.0, 1.0, 1.0], [2.0, 3.0, 4.0]) == 0.0


def test_an_unknown_name_is_refused(capsys):
    with pytest.raises(SystemExit):
        command.main(["particle"])
    assert "known: particles" in capsys.readouterr().err


@pytest.mark.peers
def test_a_quick_run_agrees_with_the_peers(tmp_path):
    path = tmp_path / "result.json"
    assert command.main(["large", "--quick", "-o", str(path)]) == 0
    result = json.loads(path.read_text())
    assert result["disagreements"] == []
    comparisons = result["modules"]["large"]["comparisons"]
    assert [len(c["contenders"]) for c in comparisons] == [3, 2, 2]
    assert all(row["ms"] > 0 for c in comparisons for row in c["contenders"])
    assert {"jax", "torch"} <= set(result["machine"]["versions"])


@pytest.mark.peers
def test_hybrid_models_agree_at_tight_tolerances(monkeypatch):
    from benchmarks import hybrid

    monkeypatch.setattr(hybrid, "TOLERANCE", 1e-6)
    ours, theirs = hybrid.ours(20).run(), hybrid.torchdiffeq_step(20).run()
    for part, tolerance in zip((0, 1), (2e-4, 2e-3), strict=True):
        for a, b in zip(ours[part], theirs[part], strict=True):
            b = b.detach().numpy()
            np.testing.assert_allclose(a, b, atol=tolerance * np.abs(b).max())
