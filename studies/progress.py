"""How far a study is, and the time left."""

from __future__ import annotations

import sys
import time

_EVERY = 30.0
"""Seconds between two lines where nobody looks, as in a log file."""


class Progress:
    """Call it after every finished replicate."""

    def __init__(self, name: str, total: int) -> None:
        self._name, self._total, self._done = name, total, 0
        self._began = self._said = time.monotonic()
        self._terminal = sys.stderr.isatty()

    def __call__(self) -> None:
        """One more is finished."""
        self._done += 1
        now = time.monotonic()
        last = self._done == self._total
        if not self._terminal and now - self._said < _EVERY and not last:
            return
        self._said = now
        left = (now - self._began) / self._done * (self._total - self._done)
        words = f"{self._name}: {self._done}/{self._total}, {_words(left)} left"
        end = "\n" if last or not self._terminal else ""
        print(("\r" if self._terminal else "") + f"{words:<60}", end=end, file=sys.stderr)
        sys.stderr.flush()


def _words(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
