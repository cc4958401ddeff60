"""How far a run of many replicates is, on stderr."""

from __future__ import annotations

import sys
import time

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from avem.inference.progress import LOG_SECONDS, QUIET_SECONDS, somebody_looks


class ReplicateProgress:
    """Shows how many replicates are finished and the time left; call it after each.

    Shows nothing for two seconds; `show` None means only where a person is looking (a terminal or
    a notebook).
    """

    def __init__(self, show: bool | None, n: int, what: str = "bootstrap") -> None:
        self._drawable = somebody_looks()
        self._show = self._drawable if show is None else show
        self._n, self._what = n, what
        self._first: tuple[float, int] | None = None  # replicates before it wait for compilation
        self._began = self._logged = time.perf_counter()
        self._bar: Progress | None = None

    def __enter__(self) -> ReplicateProgress:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def __call__(self, done: int, failed: int = 0) -> None:
        """So many replicates are finished, and so many of them have failed."""
        now = time.perf_counter()
        if self._first is None:
            self._first = now, done
        if not self._show or now - self._began < QUIET_SECONDS:
            return
        words = f"{failed} failed" if failed else ""
        if self._drawable:
            self._draw(done, words)
        elif now - self._logged >= LOG_SECONDS:
            self._logged = now
            began, before = self._first
            said = [f"{self._what}: {done}/{self._n}"]
            if done > before:
                seconds = (now - began) / (done - before) * (self._n - done)
                said.append(f"about {seconds:.0f} s left")
            said += [words] if words else []
            print(", ".join(said), file=sys.stderr, flush=True)

    def _draw(self, done: int, words: str) -> None:
        if self._bar is None:
            self._bar = Progress(
                TextColumn(self._what),
                BarColumn(bar_width=20),
                MofNCompleteColumn(),
                TextColumn("{task.fields[words]}"),
                TimeElapsedColumn(),
                TextColumn("left"),
                TimeRemainingColumn(),
                console=Console(stderr=True),
                transient=True,
            )
            self._task = self._bar.add_task("", total=self._n, completed=done, words=words)
            self._bar.start()
        self._bar.update(self._task, completed=done, words=words)
