"""Ten seeds trained in one program against ten runs of one seed each, from start to end, compilation included."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

from rich.table import Table

from ._harness import ROOT, Check, Report, number

SEEDS = 10
MOST_SHARE = 0.6
# As the multi-agent experiment trains; quick runs show that it works, not how fast.
MODELS, STEPS = ("GCDE", "GMDE-II"), 2000


def train(name: str, first: int, seeds: int, steps: int) -> float:
    """Seconds from the imports to the trained models of these seeds."""
    start = time.perf_counter()
    from neuralgde.experiments._multi_agent_tasks import single_task, train_models
    from neuralgde.experiments.multi_agent import MultiAgentConfig

    config = MultiAgentConfig(seed=first)
    train_models(name, config, single_task(config, seeds), rate=config.rate, steps=steps)
    return time.perf_counter() - start


def _in_process(*arguments: object) -> float:
    """The same in a process that finds no compiled program of an earlier one."""
    command = [sys.executable, "-m", "benchmarks.seeds", *map(str, arguments)]
    environment = {**os.environ, "JAX_ENABLE_COMPILATION_CACHE": "false"}
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=ROOT, check=True, timeout=1800, env=environment
    )  # fmt: skip
    return json.loads(done.stdout.splitlines()[-1])


def run(machine, quick: bool, console, folder: Path) -> Report:
    del machine, folder
    report = Report()
    table = Table(title=f"Training {SEEDS} seeds: one program, or a run for each", caption="Seconds, imports included.")
    for title in ("model", "together", "one by one", "share"):
        table.add_column(title, justify="left" if title == "model" else "right")
    seeds, steps = (2, 20) if quick else (SEEDS, STEPS)
    for name in MODELS[:1] if quick else MODELS:
        with console.status(f"{name}, {seeds} seeds together"):
            together = _in_process(name, 0, seeds, steps)
        with console.status(f"{name}, one by one"):
            alone = sum(_in_process(name, seed, 1, steps) for seed in range(seeds))
        table.add_row(name, number(together), number(alone), number(together / alone))
        report.numbers[name] = {"together": together, "one by one": alone, "seeds": seeds, "steps": steps}
        if not quick:
            report.checks.append(Check(f"{name}, {seeds} seeds together over one by one", together / alone, MOST_SHARE))
    report.tables.append(table)
    return report


if __name__ == "__main__":
    print(json.dumps(train(sys.argv[1], *map(int, sys.argv[2:]))))
