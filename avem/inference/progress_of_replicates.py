"""How far a run of many replicates is, on stderr."""

from __future__ import annotations

import time

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from avem.inference.display import Display


class ReplicateProgress(Display):
    """Shows how many replicates are finished and the time left; call it after each.

    Shows nothing for two seconds.
    """

    def __init__(self, show: bool | None, n: int, what: str = "bootstrap") -> None:
        super().__init__(
            show,
            n,
            TextColumn(what),
            BarColumn(bar_width=20),
            MofNCompleteColumn(),
            TextColumn("{task.fields[words]}"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
        )
        self._what = what
        self._first: tuple[float, int] | None = None  # replicates before it wait for compilation
        self._logged = self._began

    def __call__(self, done: int, failed: int = 0) -> None:
        """So many replicates are finished, and so many of them have failed."""
        now = time.perf_counter()
        if self._first is None:
            self._first = now, done
        if self.is_due():
            words = f"{failed} failed" if failed else ""
            began, before = self._first
            said = [f"{self._what}: {done}/{self._total}"]
            if done > before:
                seconds = (now - began) / (done - before) * (self._total - done)
                said.append(f"about {seconds:.0f} s left")
            self.update(done, ", ".join([*said, *filter(None, [words])]), words=words)
