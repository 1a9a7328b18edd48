"""Progress of an experiment: what is running, how it went, about how long the rest will take."""

import time

from rich.console import Console


class Progress:
    """Lines on a console for `total` pieces of work, each a `start` and an `end`."""

    def __init__(self, console: Console, total: int):
        self.console = console
        self._total = total
        self._done = 0
        self._began = self._since = time.perf_counter()

    @property
    def seconds(self) -> float:
        """Since the beginning."""
        return time.perf_counter() - self._began

    def start(self, what: str) -> None:
        """Say what comes now."""
        self._since = time.perf_counter()
        self.console.print(f"[{self._done + 1}/{self._total}] {what}", markup=False, highlight=False)

    def end(self, outcome: str) -> None:
        """Say how it went, how long it took and what is left."""
        self._done += 1
        left = self.seconds / self._done * (self._total - self._done)
        took = time.perf_counter() - self._since
        self.console.print(f"    {outcome} {took:.0f} s, about {left:.0f} s left", markup=False, highlight=False)
