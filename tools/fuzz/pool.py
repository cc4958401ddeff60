"""A process that takes cases one after the other, and is replaced when one of them ends it."""

from __future__ import annotations

import os
import signal
import tempfile
import time
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

from tools.fuzz.case import Case, Verdict

_POLL = 0.05
_SLACK = 6 << 30  # addresses that threads and compilers set aside and do not use
_MOST_CASES = 3000  # compiled code is never given back
_FIRST = 180.0  # more seconds for the first case with such a beginning, which compiles


class Limits(NamedTuple):
    """What one case may take."""

    seconds: float
    growth: int
    """Bytes of memory beyond what the process had when the case began."""


class _Running(NamedTuple):
    process: Any
    pipe: Any
    room: tempfile.TemporaryDirectory[str]
    """For its files, which a process that is killed leaves behind."""


class Worker:
    """One process at a time."""

    def __init__(self) -> None:
        self._running: _Running | None = None
        self._known: set[tuple[str, str]] = set()
        self._taken = 0

    def ask(self, case: Case, limits: Limits) -> Verdict:
        """The verdict on one case."""
        self._running = self._running or _started()
        process, pipe, _ = self._running
        pipe.send((case, limits))
        before, begun = _resident(process.pid), time.monotonic()
        is_known = (case.area, case.before) in self._known
        limit = limits.seconds + (0 if is_known else _FIRST)
        while not pipe.poll(_POLL):
            if not process.is_alive():
                return self._ended(Verdict("crash", f"exit code {process.exitcode}"))
            if time.monotonic() - begun > limit:
                return self._ended(Verdict("hang", "", f"more than {limit:.0f} seconds"))
            if _resident(process.pid) - before > limits.growth and is_known:
                return self._ended(Verdict("memory", "", f"more than {limits.growth:,} bytes"))
        try:
            verdict = pipe.recv()
        except EOFError:
            process.join()
            return self._ended(Verdict("crash", f"exit code {process.exitcode}"))
        self._known.add((case.area, case.before))
        self._taken += 1
        if self._taken >= _MOST_CASES:
            self.close()
        return verdict

    def close(self) -> None:
        """End the process."""
        if self._running is not None:
            process, pipe, room = self._running
            process.kill()
            process.join()
            pipe.close()
            room.cleanup()
        self._running, self._known, self._taken = None, set(), 0

    def _ended(self, verdict: Verdict) -> Verdict:
        self.close()
        return verdict


def _started() -> _Running:
    context = get_context("spawn")
    room = tempfile.TemporaryDirectory(prefix="avem-fuzz-", ignore_cleanup_errors=True)
    pipe, other = context.Pipe()
    process = context.Process(target=_serve, args=(other, room.name), daemon=True)
    process.start()
    other.close()
    return _Running(process, pipe, room)


def _serve(pipe: Connection, room: str) -> None:
    """Take cases until there are no more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for who asks
    tempfile.tempdir = room
    from tools.fuzz.judge import judge

    while True:
        try:
            case, limits = pipe.recv()
        except EOFError:
            return
        _limit_addresses(limits.growth + _SLACK)
        verdict = judge(case)
        _limit_addresses(None)
        pipe.send(verdict)


def _limit_addresses(more: int | None) -> None:
    """So that one huge array is refused at once, before memory is filled with it."""
    now = _pages(os.getpid(), 0)
    if not now:
        return
    import resource

    limit = resource.RLIM_INFINITY if more is None else now + more
    resource.setrlimit(resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))


def _resident(pid: int) -> int:
    return _pages(pid, 1)


def _pages(pid: int, field: int) -> int:
    """Bytes of addresses (0) or of memory (1) of a process; 0 where nobody counts them."""
    try:
        counts = Path(f"/proc/{pid}/statm").read_text().split()
    except OSError:
        return 0
    return int(counts[field]) * os.sysconf("SC_PAGE_SIZE") if counts else 0
