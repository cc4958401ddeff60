"""Locks on open files, which end with the process that holds them, however it ends."""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import IO

_FAR = 1 << 40
"""On Windows a locked byte cannot be read by others: one that no file has is locked."""


def try_lock(file: IO[bytes]) -> bool | None:
    """Whether the file is now this one's alone, until it is closed; None where locks are unknown.

    Some network folders have none.
    """
    try:
        _lock(file)
    except (BlockingIOError, PermissionError):
        return False
    except OSError:
        return None
    return True


if sys.platform == "win32":
    import msvcrt

    def _lock(file: IO[bytes]) -> None:
        place = file.tell()
        file.seek(_FAR)
        try:
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        finally:
            with suppress(OSError):
                file.seek(place)

else:
    import fcntl

    def _lock(file: IO[bytes]) -> None:
        fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
