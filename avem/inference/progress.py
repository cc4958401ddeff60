"""A line that shows how a long fit is doing."""

from __future__ import annotations

import sys
import time
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

_QUIET_SECONDS = 2.0


class ProgressLine:
    """Shows nothing for two seconds, then the iteration, the bound and the rate, on stderr.

    `show` None means: only where a person is watching (a terminal).
    """

    def __init__(self, show: bool | None, max_iter: int) -> None:
        self._show = sys.stderr.isatty() if show is None else show
        self._max_iter = max_iter
        self._began = time.perf_counter()
        self._stage = "starts"
        self._bar: Progress | None = None

    def __enter__(self) -> ProgressLine:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def stage(self, name: str) -> None:
        """Name what is going on now."""
        self._stage = name

    def __call__(self, iteration: int, bound: float, change: float) -> None:
        """One more iteration is done."""
        elapsed = time.perf_counter() - self._began
        if not self._show or elapsed < _QUIET_SECONDS:
            return
        if self._bar is None:
            self._bar = Progress(
                TextColumn("{task.fields[stage]}"),
                BarColumn(bar_width=20),
                MofNCompleteColumn(),
                TextColumn("bound {task.fields[bound]:.3f}  change {task.fields[change]:.1e}"),
                TextColumn("{task.fields[rate]:.1f} it/s"),
                TimeElapsedColumn(),
                console=Console(stderr=True),
                transient=True,
            )
            fields = {"stage": self._stage, "bound": bound, "change": change, "rate": 0.0}
            self._task = self._bar.add_task("fit", total=self._max_iter, **fields)
            self._bar.start()
            self._shown_from = (time.perf_counter(), 0)
        began, count = self._shown_from
        self._shown_from = (began, count + 1)
        rate = count / max(time.perf_counter() - began, 1e-9)
        self._bar.update(
            self._task,
            completed=iteration,
            stage=self._stage,
            bound=bound,
            change=change,
            rate=rate,
        )
