"""Processes that work side by side, and end with the one that started them."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context, parent_process
from threading import Thread
from typing import Any


class Processes(ProcessPoolExecutor):
    """New processes, each of which calls `begin` first.

    JAX runs threads, and a forked copy of a process with threads may hang: none is forked. Ctrl-C,
    which reaches all processes of a terminal, is put off in them until they have begun.
    """

    def __init__(self, jobs: int, begin: Callable[..., None], given: tuple[Any, ...] = ()) -> None:
        super().__init__(jobs, get_context("spawn"), _begin, (begin, given))

    def submit(self, *args: Any, **kwargs: Any) -> Future[Any]:
        """A call for the next process that is free; it may be started here."""
        with _ctrl_c_put_off():
            return super().submit(*args, **kwargs)


def _begin(begin: Callable[..., None], given: tuple[Any, ...]) -> None:
    _end_with_parent()
    begin(*given)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])


def _end_with_parent() -> None:
    """A killed process cannot stop those it started: each looks out for its end."""
    parent = parent_process()
    assert parent is not None

    def watch() -> None:
        parent.join()
        os._exit(1)

    Thread(target=watch, daemon=True, name="avem-parent").start()


@contextmanager
def _ctrl_c_put_off() -> Iterator[None]:
    """What is started meanwhile does not see Ctrl-C; this process sees it when the block ends."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
