"""What to say where a disk is full."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from avem.errors import FileError

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@contextmanager
def writing_into(folder: Path) -> Iterator[None]:
    """Say what to do where there is no room for what is written into a folder."""
    try:
        yield
    except OSError as error:
        if error.errno not in _FULL:
            raise
        raise no_room(folder, str(error.strerror)) from error


def no_room(folder: Path, why: str) -> FileError:
    """The error of a folder that is full."""
    return FileError(
        f"There is no room for the rows in {str(folder)!r}: {why}. Make room, or give Panel.scan "
        "a cache= folder on a larger disk."
    )


def full_disk(message: str) -> str | None:
    """What another program's message says of a full disk, if it does."""
    return next((os.strerror(code) for code in _FULL if os.strerror(code) in message), None)
