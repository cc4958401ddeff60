"""The folder of a scan: made whole or not at all, by one process at a time, and cleaned up."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
import time
import uuid
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from avem.data.locks import try_lock
from avem.data.scanning.columns import check_files
from avem.data.scanning.packages import interruptible
from avem.data.scanning.sort import Keys, Sorter
from avem.data.scanning.sources import PREFIX, Files, find_files, lazy_kind, put_into_files
from avem.errors import DataError, FileError

_FORMAT = 2
_MOST_HASHED = 1 << 28
"""Bytes of a file whose contents are compared."""
_FACTS = "scan.json"
_WAIT = 0.1


def sorted_folder(source: Any, keys: Keys, memory: int, cache: Any) -> Path:
    """The folder with the source's sorted rows: one that is there already, or a new one."""
    for what, name in (("subject", keys.subject), ("time", keys.time), ("sequence", keys.sequence)):
        if not isinstance(name, str) and (name is not None or what == "subject"):
            raise DataError(f"{what} is {name!r}; the name of a column is wanted.")
    if len(set(keys.names)) < len(keys.names):
        raise DataError(
            f"subject={keys.subject!r}, time={keys.time!r} and sequence={keys.sequence!r} must be "
            "different columns."
        )
    if not isinstance(cache, str | os.PathLike | None):
        raise DataError(f"cache is {cache!r}; the path of a folder is wanted.")
    if cache is None:
        root = Path(tempfile.gettempdir())
        clean(root)
        return _make(source, keys, memory, temporary_folder("rows"))
    if not str(cache).strip():
        raise FileError("cache is empty; the name of a folder is wanted.")
    root = Path(cache)
    try:
        root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileError(f"Cannot make the folder {str(root)!r}: {error.strerror}.") from error
    if lazy_kind(source) is not None:  # which may hold other rows every time
        return _make(source, keys, memory, temporary_folder("rows", root))
    target = root / f"{PREFIX}{_key(find_files(source), keys)}"
    with _alone(target.with_suffix(".lock")):
        clean(root)
        if _is_whole(target):
            return target
        shutil.rmtree(target, ignore_errors=True)
        made = _make(source, keys, memory, _unfinished(root))
        if os.name == "nt":  # where a folder with an open file cannot be renamed
            _let_go(made)
        os.replace(made, target)
        _let_go(made)
        (target / "lock").unlink(missing_ok=True)
        return target


def facts_of(folder: Path) -> dict[str, Any]:
    """What was learned while the rows were sorted."""
    return json.loads((folder / _FACTS).read_text(encoding="utf-8"))


def _is_whole(folder: Path) -> bool:
    """Whether the files are those that were once written: what was damaged is made again."""
    try:
        marks = facts_of(folder)["files"]
        return all(_mark(folder / name) == mark for name, mark in marks.items())
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return False


def _mark(path: Path) -> list[Any]:
    """The size of a file, and the hash of its contents unless these are many."""
    size = path.stat().st_size
    if size > _MOST_HASHED:
        return [size, ""]
    return [size, hashlib.sha256(path.read_bytes()).hexdigest()]


def _key(files: Files, keys: Keys) -> str:
    told = json.dumps([_FORMAT, files.marks(), keys.subject, keys.time, keys.sequence])
    return hashlib.sha256(told.encode()).hexdigest()[:24]


def _make(source: Any, keys: Keys, memory: int, folder: Path) -> Path:
    try:
        if lazy_kind(source) is None:
            files = find_files(source)
        else:
            files = put_into_files(source, folder / "source")
        files = check_files(files, keys.names)
        with interruptible():
            facts = Sorter(files, keys, folder, memory).run()
        shutil.rmtree(folder / "spill", ignore_errors=True)
        shutil.rmtree(folder / "source", ignore_errors=True)
        facts |= {"subject": keys.subject, "time": keys.time, "sequence": keys.sequence}
        facts["files"] = {
            path.name: _mark(path) for path in folder.iterdir() if path.name != "lock"
        }
        (folder / _FACTS).write_text(json.dumps(facts, default=str), encoding="utf-8")
    except OSError as error:
        remove(folder)
        raise FileError(
            f"Cannot write the sorted rows into {str(folder)!r}: {error.strerror or error}. Make "
            "room, or give another folder as cache=."
        ) from error
    except BaseException:
        remove(folder)
        raise
    return folder


@contextmanager
def _alone(lock: Path) -> Iterator[None]:
    """While no other process makes the same folder."""
    try:
        opened = open(lock, "ab")  # noqa: SIM115, closed below
    except OSError as error:
        raise FileError(
            f"Cannot write into the folder {str(lock.parent)!r}: {error.strerror}. Give another "
            "one as cache=."
        ) from error
    with opened as file:
        while try_lock(file) is False:
            time.sleep(_WAIT)
        yield


def _unfinished(root: Path) -> Path:
    folder = root / f"{PREFIX}{uuid.uuid4().hex}.tmp"
    folder.mkdir()
    _hold(folder)
    return folder


# --- folders that end with their process ----------------------------------------------------------

_held: dict[Path, Any] = {}


def temporary_folder(purpose: str, root: Path | None = None) -> Path:
    """A new folder that is removed with this process, or, if that is killed, by a later one."""
    root = Path(tempfile.gettempdir()) if root is None else root
    folder = root / f"{PREFIX}{purpose}-{uuid.uuid4().hex}.tmp"
    try:
        folder.mkdir(parents=True)
    except OSError as error:
        raise FileError(f"Cannot make the folder {str(folder)!r}: {error.strerror}.") from error
    _hold(folder)
    return folder


def _hold(folder: Path) -> None:
    file = open(folder / "lock", "ab")  # noqa: SIM115, held until the folder goes
    try_lock(file)
    _held[folder] = file


def _let_go(folder: Path) -> None:
    file = _held.pop(folder, None)
    if file is not None:
        file.close()


def remove(folder: Path) -> None:
    """Remove a temporary folder."""
    _let_go(folder)
    shutil.rmtree(folder, ignore_errors=True)


def removed_with(owner: object, folder: Path) -> None:
    """Remove a temporary folder once its owner is gone, at the latest when the process ends."""
    if folder in _held and folder.name.endswith(".tmp"):
        weakref.finalize(owner, remove, folder)


def clean(root: Path) -> None:
    """Remove what processes that were killed have left in a folder."""
    with suppress(OSError):
        for entry in list(os.scandir(root)):
            if not (entry.name.startswith(PREFIX) and entry.name.endswith(".tmp")):
                continue
            folder = Path(entry.path)
            if folder in _held:
                continue
            with suppress(OSError), open(folder / "lock", "r+b") as file:
                if try_lock(file):
                    shutil.rmtree(folder, ignore_errors=True)
