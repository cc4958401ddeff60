"""The command `avem` as a process; `python -m avem` is the same.

Nothing but what handles Ctrl-C is imported first: the rest takes a while, and may be interrupted.
"""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress
from types import FrameType
from typing import Any

INTERRUPTED = 130


def main(**options: Any) -> None:
    """Run the command. Ctrl-C ends it at once wherever it is, except that a fit keeps its best."""
    if callable(signal.getsignal(signal.SIGINT)):  # unless it is ignored, as under nohup
        signal.signal(signal.SIGINT, _end)
    try:
        from avem.cli import app

        app(**options)
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # all is done, and Python cleans up


def _end(number: int, frame: FrameType | None) -> None:
    """End without the usual way out, on which modules half imported and JAX at work complain."""
    writing = sys.modules.get("avem.data.writing")
    with suppress(OSError):
        getattr(writing, "discard_unfinished", lambda: None)()
        os.write(2, b"avem: interrupted.\n")
    os._exit(INTERRUPTED)


if __name__ == "__main__":
    main(prog_name="python -m avem")
