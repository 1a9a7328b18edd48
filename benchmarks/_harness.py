"""What every benchmark shares: pieces of work, contenders in their own processes, interleaved timing, tables, JSON."""

import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
from rich.console import Console
from rich.table import Table

from ._machine import Machine, cores

Family = Literal["ours", "torch", "jax", "other"]
ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Job:
    """A contender that is ready to run. `run` returns (values, gradients), lists of arrays, once they are computed."""

    run: Callable[[], tuple[list, list]]
    stats: Callable[[], dict[str, int]] | None = None


@dataclass(frozen=True)
class Contender:
    """Someone who does the work. `make` imports what it needs, so that a process holds one library alone."""

    name: str
    family: Family
    make: Callable[[], Job]


@dataclass(frozen=True)
class Bar:
    """Ours must be `ratio` times faster than the fastest of the peers named (none named: every PyTorch peer)."""

    ratio: float | None
    peers: tuple[str, ...] = ()


@dataclass(frozen=True)
class Least:
    """The least that the work needs, whoever does it: floating-point operations, and bytes to and from memory."""

    operations: float
    bytes: float

    def seconds(self, machine: Machine) -> float:
        return max(self.operations / machine.gemm_rate, self.bytes / machine.bandwidth)


@dataclass(frozen=True)
class Work:
    """One piece of work: the first contender is ours. Tolerances are relative, in the 2-norm of each array."""

    name: str
    contenders: tuple[Contender, ...]
    bars: tuple[Bar, ...]
    least: Callable[[dict[str, int]], Least]
    value_tolerance: float
    gradient_tolerance: float
    rounds: int = 15


@dataclass(frozen=True)
class Check:
    """A bar on a measured number that is no comparison: `measured` must be at most `limit`."""

    name: str
    measured: float
    limit: float

    @property
    def passed(self) -> bool:
        return bool(self.measured <= self.limit)


@dataclass
class Report:
    """What a module found."""

    comparisons: list[dict[str, Any]] = field(default_factory=list)
    checks: list[Check] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)
    numbers: dict[str, Any] = field(default_factory=dict)
    files: list[str] = field(default_factory=list)

    def missed(self) -> list[str]:
        rows = [
            f"{c['work']}: {row['ratio']:.2f} times faster than {row['peer']}, the bar is {row['bar']:g}"
            for c in self.comparisons
            for row in c["bars"]
            if row["passed"] is False
        ]
        return rows + [f"{c.name}: {c.measured:.3g}, the bar is {c.limit:g}" for c in self.checks if not c.passed]

    def disagreements(self) -> list[str]:
        return [line for c in self.comparisons for line in c["disagreements"]]

    def as_json(self) -> dict[str, Any]:
        checks = [{**asdict(c), "passed": c.passed} for c in self.checks]
        return {"comparisons": self.comparisons, "checks": checks, **self.numbers, "files": self.files}


# Timing


class Process:
    """A contender in its own process, asked over pipes: one library's threads and memory cannot touch another's."""

    def __init__(
        self, module: str, work: str, contender: Contender, quick: bool, folder: Path, threads: int | None = None
    ):
        self.contender = contender
        self.arrays = folder / f"{abs(hash((work, contender.name, threads)))}.npz"
        command = [sys.executable, "-m", "benchmarks._worker", module, work, contender.name, str(self.arrays)]
        self._child = subprocess.Popen(
            command + ["--quick"] * quick,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env={**os.environ, "PYTHONWARNINGS": "ignore", "TF_CPP_MIN_LOG_LEVEL": "3"}
            # How many threads XLA's programs share; fixed when JAX starts.
            | ({} if threads is None else {"NPROC": str(threads)}),
        )
        self.facts = self._answer()

    def time(self) -> float:
        """Seconds of one run: the mean over a short burst where one is too short to time well."""
        return self._ask("time")["seconds"]

    def memory(self) -> float:
        return self._ask("memory")["bytes"]

    def close(self) -> None:
        if self._child.poll() is None:
            assert self._child.stdin is not None
            self._child.stdin.close()
            self._child.wait(60)

    def _ask(self, word: str) -> dict[str, Any]:
        assert self._child.stdin is not None
        self._child.stdin.write(word + "\n")
        self._child.stdin.flush()
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self._child.stdout is not None
        line = self._child.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.contender.name}: its process ended; what it printed is above.")
        return json.loads(line)


# Seconds of a run from which on JAX is not tried with one thread: such work has large parts to share.
ONE_THREAD_BELOW = 1.0


def start(module: str, work: str, contender: Contender, quick: bool, folder: Path) -> Process:
    """The contender's process. JAX's has the threads that serve best; PyTorch's chooses for itself."""
    if contender.family not in ("ours", "jax"):
        return Process(module, work, contender, quick, folder)
    many = Process(module, work, contender, quick, folder, threads=cores())
    if quick or cores() == 1 or many.facts["fastest_seconds"] > ONE_THREAD_BELOW:
        return many
    try:
        one = Process(module, work, contender, quick, folder, threads=1)
    except BaseException:
        many.close()
        raise
    # In turn, for the same reason as below: what one of them did earlier may have been in a quieter moment.
    of_many, of_one = map(np.median, interleave([many.time, one.time], 7))
    best, rest = (many, one) if of_many <= of_one else (one, many)
    rest.close()
    return best


def compare(module: str, work: Work, machine: Machine, quick: bool, console: Console) -> dict[str, Any]:
    """Do the work with every contender in turn, over and over; check that they agree; set the times side by side."""
    processes: list[Process] = []
    with tempfile.TemporaryDirectory() as folder:
        try:
            for contender in work.contenders:
                with console.status(f"{work.name}: preparing {contender.name}"):
                    processes.append(start(module, work.name, contender, quick, Path(folder)))
            with console.status(f"{work.name}: timing"):
                samples = interleave([p.time for p in processes], 3 if quick else work.rounds)
                memory = [p.memory() for p in processes]
            arrays = [load_arrays(p.arrays) for p in processes]
        finally:
            for p in processes:
                p.close()
    rows = []
    for p, seconds, peak, found in zip(processes, samples, memory, arrays, strict=True):
        gaps = [largest_gap(found[kind], arrays[0][kind]) for kind in ("values", "gradients")]
        rows.append(
            {"name": p.contender.name, "family": p.contender.family, **spread(seconds), "peak_bytes": peak,
             "value_gap": gaps[0], "gradient_gap": gaps[1], **p.facts}
        )  # fmt: skip
    return summarise(work, rows, machine, judge=not quick)


def interleave(runs: Sequence[Callable[[], float]], rounds: int, budget: float = 240.0) -> list[list[float]]:
    """Times of each run, taken in turn so that all see the same machine; at least 3 rounds, fewer if slow."""
    samples: list[list[float]] = [[] for _ in runs]
    start = time.perf_counter()
    for k in range(rounds):
        if k >= 3 and time.perf_counter() - start > budget:
            break
        for run, taken in zip(runs, samples, strict=True):
            taken.append(run())
    return samples


def time_once(run: Callable[[], Any], shortest: float = 0.03) -> float:
    """Seconds of one run, the mean over a burst of at least `shortest` seconds after one that is not counted.

    As in a training loop, what ran before is the same work: caches are warm, and memory is at hand. After another
    contender's turn a gigabyte of fresh pages alone may take seconds.
    """
    start = time.perf_counter()
    run()
    count = max(1, math.ceil(shortest / (time.perf_counter() - start)))
    start = time.perf_counter()
    for _ in range(count):
        run()
    return (time.perf_counter() - start) / count


def spread(seconds: Sequence[float]) -> dict[str, float]:
    """Median and interquartile range, in milliseconds."""
    low, middle, high = (float(q) for q in np.percentile(np.asarray(seconds) * 1e3, [25, 50, 75]))
    return {"ms": middle, "iqr_ms": high - low, "rounds": len(seconds)}


# Agreement


def load_arrays(path: Path) -> dict[str, list[np.ndarray]]:
    with np.load(path) as file:
        return {
            kind: [file[name] for name in sorted((n for n in file.files if n.startswith(kind)), key=_position)]
            for kind in ("values", "gradients")
        }


def _position(name: str) -> int:
    return int(name.rsplit("_", 1)[1])


def largest_gap(found: Sequence[np.ndarray], expected: Sequence[np.ndarray]) -> float:
    """The largest relative difference of any array, in the 2-norm; infinite where shapes differ or numbers are bad.

    An array that is 0 but for rounding counts by the rounding of the largest.
    """
    if [a.shape for a in found] != [b.shape for b in expected]:
        return math.inf
    sizes = [float(np.linalg.norm(b.astype(float))) for b in expected]
    least = max(1e-6 * max(sizes, default=0.0), 1e-30)
    gaps = [
        np.linalg.norm(a.astype(float) - b) / max(size, least)
        for a, b, size in zip(found, expected, sizes, strict=True)
    ]
    worst = max(gaps, default=0.0)
    return float(worst) if np.isfinite(worst) else math.inf


# What came out


def summarise(work: Work, rows: list[dict[str, Any]], machine: Machine, judge: bool) -> dict[str, Any]:
    ours, peers = rows[0], rows[1:]
    disagreements = [
        f"{work.name}: {row['name']} differs from ours in its {kind} by {row[key]:.2g}, allowed {allowed:g}"
        for row in peers
        for kind, key, allowed in (
            ("values", "value_gap", work.value_tolerance),
            ("gradients", "gradient_gap", work.gradient_tolerance),
        )
        if not row[key] <= allowed
    ]
    bars = []
    for bar in work.bars:
        among = [r for r in peers if (r["name"] in bar.peers if bar.peers else r["family"] == "torch")]
        best = min(among, key=lambda r: r["ms"])
        ratio = best["ms"] / ours["ms"]
        passed = None if bar.ratio is None or not judge else bool(ratio >= bar.ratio)
        bars.append({"peer": best["name"], "peer_ms": best["ms"], "ratio": ratio, "bar": bar.ratio, "passed": passed})
    least = work.least(ours.get("stats", {}))
    return {
        "work": work.name,
        "contenders": rows,
        "bars": bars,
        "least_operations": least.operations,
        "least_bytes": least.bytes,
        "share_of_limit": least.seconds(machine) * 1e3 / ours["ms"],
        "value_tolerance": work.value_tolerance,
        "gradient_tolerance": work.gradient_tolerance,
        "disagreements": disagreements,
    }


def summary_table(comparisons: Sequence[dict[str, Any]]) -> Table:
    table = Table(title="Ours and the best peer")
    table.add_column("work")
    table.add_column("best peer")
    for name in ("ours, ms", "peer, ms", "ratio", "bar", "share of limit", "peak memory"):
        table.add_column(name, justify="right")
    for c in comparisons:
        ours = c["contenders"][0]
        for row in c["bars"]:
            bar = "–" if row["bar"] is None else f"{row['bar']:g}"
            mark = {True: " ✓", False: " ✗", None: ""}[row["passed"]]
            table.add_row(
                c["work"], row["peer"], number(ours["ms"]), number(row["peer_ms"]), f"{row['ratio']:.2f}", bar + mark,
                f"{100 * c['share_of_limit']:.2g} %", memory_text(ours["peak_bytes"]),
            )  # fmt: skip
    return table


def detail_table(comparison: dict[str, Any]) -> Table:
    table = Table(title=comparison["work"])
    table.add_column("contender")
    for name in ("median, ms", "IQR, ms", "peak memory", "threads", "steps", "gap of values", "gap of gradients"):
        table.add_column(name, justify="right")
    for row in comparison["contenders"]:
        table.add_row(
            row["name"], number(row["ms"]), number(row["iqr_ms"]), memory_text(row["peak_bytes"]),
            str(row.get("threads", "–")), str(row.get("stats", {}).get("steps", "–")),
            f"{row['value_gap']:.1e}", f"{row['gradient_gap']:.1e}",
        )  # fmt: skip
    return table


def check_table(checks: Sequence[Check]) -> Table:
    table = Table(title="Other bars")
    table.add_column("what")
    for name in ("measured", "at most", "met"):
        table.add_column(name, justify="right")
    for c in checks:
        table.add_row(c.name, f"{c.measured:.3g}", f"{c.limit:g}", "✓" if c.passed else "✗")
    return table


def number(x: float) -> str:
    """Three significant digits, no exponent."""
    digits = 2 if x <= 0 or not math.isfinite(x) else max(0, 2 - math.floor(math.log10(x)))
    return f"{x:.{min(digits, 4)}f}"


def memory_text(size: float) -> str:
    for unit, scale in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if size >= scale:
            return f"{number(size / scale)} {unit}"
    return f"{size:.0f} B"


def fit_exponent(x: Sequence[float], y: Sequence[float]) -> float:
    """The slope of log y on log x by least squares."""
    return float(np.polyfit(np.log(np.asarray(x, float)), np.log(np.asarray(y, float)), 1)[0])


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Strict JSON: numbers that are not finite become null."""

    def clean(x: Any) -> Any:
        if isinstance(x, dict):
            return {str(k): clean(v) for k, v in x.items()}
        if isinstance(x, list | tuple):
            return [clean(v) for v in x]
        if isinstance(x, np.generic):
            x = x.item()
        return None if isinstance(x, float) and not math.isfinite(x) else x

    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(clean(content), indent=2, allow_nan=False) + "\n")
