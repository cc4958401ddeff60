"""Compiled code, kept from one run of the tests to the next where there is a folder for it.

A run works in a folder of its own that begins as links to what earlier runs left, and links back
what it added when it ends. So runs at the same time never see each other's half-written files, and
one that is killed leaves nothing that is read again. The key of an entry is JAX's: what is
compiled, by which version, with which flags.
"""

import os
import platform
import shutil
import tempfile
import time
from pathlib import Path

_MOST_BYTES = 500_000_000
_ONE_DAY = 86_400


def begin() -> Path:
    """A new folder for this run, with what earlier runs of this user on this machine kept."""
    try:
        caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        folder = caches / "avem" / (platform.node() or "here") / "tests"
        (folder / "kept").mkdir(parents=True, exist_ok=True)
        made = Path(tempfile.mkdtemp(prefix="run-", dir=folder))
    except (OSError, RuntimeError):  # RuntimeError: there is no home folder
        return Path(tempfile.mkdtemp(prefix="avem-tests-"))
    for old in folder.glob("run-*"):  # of runs that were killed
        if time.time() - old.stat().st_mtime > _ONE_DAY:
            shutil.rmtree(old, ignore_errors=True)
    link_all(folder / "kept", made)
    return made


def end(folder: Path) -> None:
    """Keep what the run added, unless there is too much, and remove its folder."""
    kept = folder.parent / "kept"
    if kept.is_dir():
        link_all(folder, kept)
        if sum(entry.stat().st_size for entry in os.scandir(kept)) > _MOST_BYTES:
            shutil.rmtree(kept, ignore_errors=True)  # the next run begins anew
    shutil.rmtree(folder, ignore_errors=True)


def link_all(source: Path, target: Path) -> None:
    """Link the entries that `target` lacks; none where the file system has no links."""
    for entry in os.scandir(source):
        try:
            if entry.stat().st_size > 0:
                os.link(entry.path, target / entry.name)
        except OSError:
            continue
