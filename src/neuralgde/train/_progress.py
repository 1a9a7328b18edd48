"""A line that shows how training goes."""

import contextlib
import time
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn


class ProgressBar(contextlib.AbstractContextManager):
    """Loss, rate and time left on standard error: a bar on a terminal; elsewhere plain lines, and only if asked for."""

    def __init__(self, total: int, done: int, wanted: bool | None):
        console = Console(stderr=True)
        self._total, self._first = total, done
        self._began = time.perf_counter()
        self._console = console if wanted and not console.is_terminal else None
        self._next_line = 0.0
        self._bar = None
        if console.is_terminal and wanted is not False:
            self._bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("{task.fields[figures]}"),
                TimeRemainingColumn(),
                console=console,
                transient=wanted is None,
            )
            # Without a start the bar pulses: nothing is known yet about the time left.
            self._task = self._bar.add_task("compiling", start=False, total=total, completed=done, figures="")

    def __enter__(self) -> "ProgressBar":
        if self._bar is not None:
            self._bar.start()
        elif self._console is not None:
            self._console.print("compiling")
        return self

    def __exit__(self, *_) -> None:
        if self._bar is not None:
            self._bar.stop()

    def compiled(self) -> None:
        """From here on time is training."""
        self._began = time.perf_counter()
        if self._bar is not None:
            self._bar.start_task(self._task)
            self._bar.update(self._task, description="training")

    def expect(self, total: int) -> None:
        """There are so many steps, as it turned out."""
        self._total = total
        if self._bar is not None:
            self._bar.update(self._task, total=total)

    def update(self, done: int, event: dict[str, Any], running: int) -> None:
        """Show an event."""
        loss = np.atleast_1d(np.asarray(event["loss"]))
        seen = loss[np.isfinite(loss)]
        figures = f"loss {seen.mean() if seen.size else np.nan:.4g}  rate {event['rate']:.3g}"
        if loss.size > 1:
            figures += f"  {running}/{loss.size} seeds"
        if skipped := int(np.sum(event["skipped"])):
            figures += f"  {skipped} skipped"
        if self._bar is not None:
            self._bar.update(self._task, completed=done, figures=figures)
        elif self._console is not None and (done >= self._next_line or done == self._total):
            left = (time.perf_counter() - self._began) / (done - self._first) * (self._total - done)
            figures += f"  about {left:.0f} s left" if done < self._total else ""
            self._console.print(f"step {done}/{self._total}  {figures}", highlight=False, soft_wrap=True)
            self._next_line = done + self._total / 10
