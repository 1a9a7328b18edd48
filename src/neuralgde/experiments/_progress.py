"""Progress of an experiment: what is running, how it went, about how long the rest will take."""

import time
from collections.abc import Sequence

from rich.console import Console


class Progress:
    """Lines on a console for pieces of work, each a `start` and an `end`; `costs` are how they compare in time."""

    def __init__(self, console: Console, costs: Sequence[float]):
        self.console = console
        self._costs = tuple(costs)
        self._done = 0
        self._began = self._since = time.perf_counter()

    @property
    def seconds(self) -> float:
        """Since the beginning."""
        return time.perf_counter() - self._began

    def start(self, what: str) -> None:
        """Say what comes now."""
        self._since = time.perf_counter()
        self.console.print(f"[{self._done + 1}/{len(self._costs)}] {what}", markup=False, highlight=False)

    def end(self, outcome: str) -> None:
        """Say how it went, how long it took and what is left."""
        self._done += 1
        done = sum(self._costs[: self._done])
        left = self.seconds / done * (sum(self._costs) - done)
        took = time.perf_counter() - self._since
        self.console.print(f"    {outcome} {took:.0f} s, about {left:.0f} s left", markup=False, highlight=False)
