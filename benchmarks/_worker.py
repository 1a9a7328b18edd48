"""The process of one contender: makes it ready, then answers over its pipes with times and with peak memory."""

import ctypes
import importlib
import json
import os
import resource
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from ._harness import Job, time_once
from ._machine import cores

# Seconds from which on a run is not done over and over: caches count little in it, and nobody wants to wait.
LONG = 20.0


def main(module: str, work_name: str, contender_name: str, path: str, quick: bool) -> None:
    # Answers go to the pipe alone; whatever a library prints goes to the terminal.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def answer(**content: Any) -> None:
        answers.write(json.dumps(content) + "\n")
        answers.flush()

    works = importlib.import_module(f"benchmarks.{module}").works(quick)
    work = next(w for w in works if w.name == work_name)
    contender = next(c for c in work.contenders if c.name == contender_name)
    if contender.family == "torch":
        import torch  # noqa: F401
    job = contender.make()
    _give_back()
    baseline = _resident()
    start = time.perf_counter()
    values, gradients = job.run()
    first = time.perf_counter() - start
    facts: dict[str, Any] = {"first_run_seconds": first}
    arrays = {f"values_{i}": _numpy(x) for i, x in enumerate(values)}
    arrays |= {f"gradients_{i}": _numpy(x) for i, x in enumerate(gradients)}
    np.savez(path, **arrays)
    del values, gradients, arrays
    # The first run compiles, which may take longer than all others together: it tells nothing of them.
    if contender.family == "torch":
        facts["threads"], fastest = _choose_threads(job)
    else:
        fastest = _warm_up(job)
        if "NPROC" in os.environ and contender.family in ("ours", "jax"):
            facts["threads"] = int(os.environ["NPROC"])
    facts["fastest_seconds"] = fastest
    long = fastest > LONG
    if job.stats is not None:
        facts["stats"] = job.stats()
    answer(**facts)
    for line in sys.stdin:
        if line.strip() == "time":
            answer(seconds=fastest if long else time_once(job.run))
        else:
            answer(bytes=_peak_above(baseline, job))


def _warm_up(job: Job, seconds: float = 0.3) -> float:
    """The fastest of some runs."""
    start, taken = time.perf_counter(), []
    while not taken or time.perf_counter() - start < seconds:
        taken.append(time_once(job.run))
    return min(taken)


def _choose_threads(job: Job) -> tuple[int, float]:
    """The threads that serve best, and their fastest run: small products lose more to waking threads than they win."""
    import torch

    taken = {}
    for threads in sorted({1, cores()}):
        torch.set_num_threads(threads)
        taken[threads] = _warm_up(job)
    best = min(taken, key=taken.__getitem__)
    torch.set_num_threads(best)
    return best, taken[best]


def _numpy(x: Any) -> np.ndarray:
    return np.asarray(x.detach() if hasattr(x, "detach") else x)


def _peak_above(baseline: int, job: Job) -> int:
    """The most memory that one run takes, above what libraries, data and parameters took before the first."""
    if sys.platform != "linux":
        job.run()
        return max(0, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - baseline)
    # Give back what compilation left in the heap, then let the kernel start its high-water mark afresh.
    _give_back()
    Path("/proc/self/clear_refs").write_text("5")
    job.run()
    return max(0, _peak() - baseline)


def _give_back() -> None:
    """Return what was freed to the system, so that it is not counted."""
    if sys.platform == "linux" and hasattr(libc := ctypes.CDLL(None), "malloc_trim"):
        libc.malloc_trim(0)


def _peak() -> int:
    return _status("VmHWM") if sys.platform == "linux" else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def _resident() -> int:
    return _status("VmRSS") if sys.platform == "linux" else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def _status(name: str) -> int:
    line = next(x for x in Path("/proc/self/status").read_text().splitlines() if x.startswith(name))
    return int(line.split()[1]) * 1024


if __name__ == "__main__":
    main(*sys.argv[1:5], quick="--quick" in sys.argv[5:])
