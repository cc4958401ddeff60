"""A file to which one process adds lines, each when what it tells is finished.

Lines are never changed, so a run that was killed loses only what it was working on. A second
process that would write to the same file, and do the same work, is refused; the lock ends with the
process that holds it, however it ends.
"""

from __future__ import annotations

import errno
import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from avem.data.locks import try_lock
from avem.data.writing import is_stream, need_file
from avem.errors import FileError

DAMAGED = object()
"""What a line that is no JSON stands for."""


class LineFile:
    """The open file; it is made when there is none.

    Parameters
    ----------
    path
        The file.
    purpose
        Such as " to keep the replicates in", for an error.
    """

    def __init__(self, path: str | os.PathLike[str], purpose: str = "") -> None:
        need_file(path, purpose)
        self.path = Path(path)
        if is_stream(path):
            raise FileError(f"{str(path)!r} is a device; a file that can be read again is wanted.")
        try:
            # Unbuffered, so that a line is one write: it is there, or it is not.
            self._file = open(self.path, "a+b", buffering=0)  # noqa: SIM115
        except OSError as error:
            raise self._cannot("use", error) from error
        try:
            self.lines, self.torn = self._read()
        except BaseException:
            self.close()
            raise

    def _read(self) -> tuple[list[bytes], bytes]:
        """The lines, and what a process that was killed wrote of one more."""
        if try_lock(self._file) is False:
            raise FileError(
                f"{str(self.path)!r} is in use: another process is adding to it, and this one "
                "would do the same work again. Wait until that has ended, or choose another path."
            )
        try:
            self._file.seek(0)
            *lines, torn = self._file.readall().split(b"\n")
        except OSError as error:
            raise self._cannot("use", error) from error
        return lines, torn

    def drop_torn(self) -> None:
        """Remove the line that was cut short: the next one starts there."""
        if self.torn:
            self._cut(os.fstat(self._file.fileno()).st_size - len(self.torn))
            self.torn = b""

    def append(self, record: Any) -> None:
        """Write one more line, as JSON."""
        line = self.line(record)
        size = os.fstat(self._file.fileno()).st_size
        try:
            self._check_place()
            if self._file.write(line) != len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            with suppress(OSError):
                self._cut(size)
            raise self._cannot("write", error) from error

    @staticmethod
    def line(record: Any) -> bytes:
        """The line of a record."""
        return json.dumps(record).encode("ascii") + b"\n"

    def refuse(self, number: int, why: str, advice: str) -> FileError:
        """The error for a line that no run writes; the first line has the number 1."""
        return FileError(f"Line {number} of {str(self.path)!r} {why}. {advice}")

    def close(self) -> None:
        """Let others use the file."""
        self._file.close()

    def _check_place(self) -> None:
        """Raise if the file was removed or replaced: what is written would be lost."""
        if not os.path.samestat(os.stat(self.path), os.fstat(self._file.fileno())):
            raise OSError(errno.ESTALE, "another file has taken its place")

    def _cut(self, size: int) -> None:
        self._file.truncate(size)

    def _cannot(self, do: str, error: OSError) -> FileError:
        return FileError(
            f"Cannot {do} {str(self.path)!r}: {error.strerror or error}. Choose another path, or "
            "make room there."
        )


def parsed(line: bytes) -> Any:
    """What a line holds as JSON, or `DAMAGED`."""
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return DAMAGED
