"""What is shown on stderr while something long goes on."""

from __future__ import annotations

import signal
import sys
import threading
import time
from importlib.util import find_spec
from types import FrameType
from typing import Any, Self

from rich.console import Console
from rich.progress import Progress, ProgressColumn

QUIET_SECONDS = 2.0
"""Before anything is shown."""
LOG_SECONDS = 5.0
"""Between lines where there is no terminal to draw on."""


def somebody_looks() -> bool:
    """Whether there is a terminal, or a notebook that can draw a line anew."""
    console = Console(stderr=True)
    return console.is_terminal or (console.is_jupyter and find_spec("ipywidgets") is not None)


def say(line: str) -> None:
    """Write a line to stderr at once."""
    print(line, file=sys.stderr, flush=True)


class Display:
    """A bar of `total` steps in a terminal or a notebook, elsewhere a line now and then.

    `show` None means only where a person is looking.
    """

    def __init__(self, show: bool | None, total: int, *columns: ProgressColumn) -> None:
        self._drawable = show is not False and somebody_looks()
        self._show = self._drawable if show is None else show
        self._total, self._columns = total, columns
        self._began = time.perf_counter()
        self._logged = -float("inf")
        self._bar: Progress | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def is_due(self) -> bool:
        """Whether it is time to show something."""
        return self._show and time.perf_counter() - self._began >= QUIET_SECONDS

    def update(self, completed: int, line: str, **fields: Any) -> None:
        """Draw the bar with these fields; where none can be drawn, write the line."""
        if self._drawable:
            if self._bar is None:
                self._bar = Progress(*self._columns, console=Console(stderr=True), transient=True)
                self._task = self._bar.add_task("", total=self._total, **fields)
                self._bar.start()
            self._bar.update(self._task, completed=completed, **fields)
        elif time.perf_counter() - self._logged >= LOG_SECONDS:
            self._logged = time.perf_counter()
            say(line)


class Interruptible(Display):
    """A display whose work the first Ctrl-C ends gently: `interrupted` is True from then on.

    The second one raises KeyboardInterrupt at once, and so does the first one as long as there is
    nothing `to_keep`, as while the first step is compiled.
    """

    def __init__(self, show: bool | None, total: int, *columns: ProgressColumn) -> None:
        super().__init__(show, total, *columns)
        self._previous: Any = None
        self.interrupted = self.to_keep = False

    def __enter__(self) -> Self:
        in_main_thread = threading.current_thread() is threading.main_thread()
        # Only there may signals be handled; and where Ctrl-C is ignored, it stays so.
        if in_main_thread and callable(signal.getsignal(signal.SIGINT)):
            self._previous = signal.signal(signal.SIGINT, self._interrupt)
        return self

    def __exit__(self, *_: object) -> None:
        self._restore()
        super().__exit__()

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        self.interrupted, previous = True, self._previous
        self._restore()
        if not self.to_keep and previous is not None:
            previous(number, frame)

    def _restore(self) -> None:
        if self._previous is not None:
            signal.signal(signal.SIGINT, self._previous)
            self._previous = None
