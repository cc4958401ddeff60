"""Where compiled code is kept from one process to the next."""

from __future__ import annotations

import os
import platform
import sys
from pathlib import Path


def cache_folder() -> Path | None:
    """This user's folder for compiled code, or None where there is none that is only theirs.

    Each machine has its own: a home shared by machines with different processors would otherwise
    hand code compiled for one to another.
    """
    try:
        folder = _user_cache() / "avem" / (platform.node() or "here")
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if folder.is_symlink() or not _belongs_to_us(folder):
            return None
        folder.chmod(0o700)  # code that others could put there would run
    except (OSError, RuntimeError):  # RuntimeError: there is no home folder
        return None
    return folder if os.access(folder, os.W_OK) else None


def is_own(path: Path) -> bool:
    """Whether a file was written by this user, and no one else can change it."""
    others = 0 if sys.platform == "win32" else path.lstat().st_mode & 0o022
    return path.is_file() and not path.is_symlink() and _belongs_to_us(path) and not others


def _belongs_to_us(path: Path) -> bool:
    return sys.platform == "win32" or path.lstat().st_uid == os.geteuid()


def _user_cache() -> Path:
    if sys.platform == "win32" and os.environ.get("LOCALAPPDATA"):
        return Path(os.environ["LOCALAPPDATA"])
    if os.environ.get("XDG_CACHE_HOME"):
        return Path(os.environ["XDG_CACHE_HOME"])
    return Path.home() / ("Library/Caches" if sys.platform == "darwin" else ".cache")
