"""How long XLA has compiled in this process."""

from __future__ import annotations

from functools import cache
from threading import Lock
from typing import Any

import jax

_EVENT = "/jax/core/compile/backend_compile_duration"


class _Clock:
    """Adds up what JAX tells of every program, from any thread."""

    def __init__(self) -> None:
        self.seconds, self._lock = 0.0, Lock()

    def hear(self, event: str, duration_secs: float, **_: Any) -> None:
        if event == _EVENT:
            with self._lock:
                self.seconds += duration_secs


@cache
def _clock() -> _Clock:
    clock = _Clock()
    jax.monitoring.register_event_duration_secs_listener(clock.hear)
    return clock


def compile_seconds() -> float:
    """Seconds of compiling since this was asked for the first time; differences count."""
    return _clock().seconds
