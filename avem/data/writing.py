"""Files that are there whole or not at all.

What is written goes to a temporary file in the same folder, which takes the place of the target
once it is complete and on the disk. A process that is killed leaves the target as it was, and a
temporary file that the next one to write that target removes.
"""

from __future__ import annotations

import os
import re
import stat
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from avem.data.locks import try_lock
from avem.errors import FileError

_LONGEST = 48
"""Letters of the target's name in a temporary one, which must not be too long for the folder."""
_STREAMS = {"/dev/stdout": 1, "/dev/stderr": 2}
_unfinished: set[Path] = set()


@contextmanager
def replacing(path: str | os.PathLike[str], purpose: str = "") -> Iterator[IO[bytes]]:
    """A file to write to, which takes the place of `path` when the block ends without an error.

    A link stays a link, and what it leads to is replaced; a file that was there keeps its
    permissions. A device or a pipe is written to directly. `purpose` is " to save the fit in".
    """
    need_file(path, purpose)
    try:
        if is_stream(path):
            with _opened(Path(path)) as file:
                yield file
        else:
            with _replacing(Path(os.path.realpath(path))) as file:
                yield file
    except BrokenPipeError:  # who reads has had enough
        raise
    except OSError as error:
        raise FileError(
            f"Cannot write {str(path)!r}: {error.strerror or error}. Make room or get permission, "
            "or choose another place."
        ) from error


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write a text, whole or not at all."""
    with replacing(path) as file:
        file.write(text.encode())


def need_file(path: str | os.PathLike[str], purpose: str = "") -> None:
    """Raise unless `path` can be the name of a file to write."""
    name = os.fspath(path)
    if not name:
        raise FileError("The name of the file to write is empty; give one, such as 'out.csv'.")
    if "\0" in name:
        raise FileError(f"{name!r} holds a zero byte, which no name of a file can. Choose another.")
    try:
        is_folder = Path(path).is_dir()
    except OSError as error:  # a name that is too long, or a folder that cannot be looked into
        raise FileError(
            f"Cannot write {name!r}: {error.strerror}. Choose another place."
        ) from error
    if is_folder:
        raise FileError(f"{name!r} is a folder; the name of a file is wanted.")
    need_folder(Path(path), purpose)


def need_folder(path: Path, purpose: str = "") -> None:
    """Raise unless there is a folder to write a file into; `purpose` is " to save the fit in"."""
    if not path.parent.is_dir():
        raise FileError(f"There is no folder {str(path.parent)!r}{purpose}. Make it first.")


def is_stream(path: str | os.PathLike[str]) -> bool:
    """Whether `path` is a device or a pipe, which nothing can take the place of."""
    if os.fspath(path) in _STREAMS:
        return True
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError):
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def _opened(path: Path) -> IO[bytes]:
    number = _STREAMS.get(str(path))
    # Opened by its name, a standard stream that leads to a file would be written from its start.
    return open(path if number is None else os.dup(number), "wb")


@contextmanager
def _replacing(path: Path) -> Iterator[IO[bytes]]:
    if path.exists():
        open(path, "r+b").close()  # one that must not be changed is not replaced either
    _remove_left_over(path)
    file, temporary = _temporary(path)
    _unfinished.add(temporary)
    try:
        with file:
            if path.exists():
                _like(temporary, path.stat())
            yield file
            file.flush()
            os.fsync(file.fileno())
            if os.name != "nt":  # where an open file cannot be renamed
                os.replace(temporary, path)
        if os.name == "nt":
            os.replace(temporary, path)
        _sync_folder(path.parent)
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        _unfinished.discard(temporary)


def _like(path: Path, other: os.stat_result) -> None:
    """Give a file the owner, as far as it may be given, and the permissions of another."""
    if hasattr(os, "chown"):
        with suppress(OSError):
            os.chown(path, other.st_uid, other.st_gid)
    os.chmod(path, stat.S_IMODE(other.st_mode))


def discard_unfinished() -> None:
    """Remove the temporary files of a process that is about to end."""
    for temporary in list(_unfinished):
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def _temporary(path: Path) -> tuple[IO[bytes], Path]:
    """A new file that is locked, so that no other process takes it for left over."""
    while True:
        temporary = path.with_name(f".{path.name[:_LONGEST]}.{uuid.uuid4().hex}.tmp")
        file = open(temporary, "xb")  # noqa: SIM115
        if try_lock(file) is not False and temporary.exists():
            return file, temporary
        file.close()  # another process was quicker, and removes it


def _remove_left_over(path: Path) -> None:
    """Remove the temporary files of processes that were killed while they wrote this target."""
    name = re.compile(rf"\.{re.escape(path.name[:_LONGEST])}\.[0-9a-f]{{32}}\.tmp")
    with suppress(OSError):
        for found in [
            entry.path for entry in os.scandir(path.parent) if name.fullmatch(entry.name)
        ]:
            with suppress(OSError), _unless_in_use(found):
                os.unlink(found)


@contextmanager
def _unless_in_use(path: str) -> Iterator[None]:
    if os.name == "nt":  # where an open file cannot be removed
        yield
        return
    with open(path, "r+b") as file:
        if not try_lock(file):
            raise BlockingIOError
        yield


def _sync_folder(folder: Path) -> None:
    """The new name, too, is on the disk, where a system can be told so."""
    with suppress(OSError):
        number = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(number)
        finally:
            os.close(number)
