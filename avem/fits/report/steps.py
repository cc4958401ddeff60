"""What a report is doing, on stderr."""

from __future__ import annotations

from rich.console import Console
from rich.status import Status

from avem.inference.display import say, somebody_looks


class ReportProgress:
    """Says what is going on; `show` None means only where a person is looking."""

    def __init__(self, show: bool | None) -> None:
        looks = somebody_looks()
        self._show = looks if show is None else show
        self._status: Status | None = None
        if self._show and looks:
            self._status = Status("report", console=Console(stderr=True))

    def __enter__(self) -> ReportProgress:
        if self._status is not None:
            self._status.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._status is not None:
            self._status.stop()

    def __call__(self, words: str) -> None:
        if self._status is not None:
            self._status.update(f"report: {words}")
        elif self._show:
            say(f"report: {words}")
