"""Where compiled code is kept from one process to the next."""

from __future__ import annotations

import os
import platform
import sys
from pathlib import Path


def cache_folder() -> Path | None:
    """This user's folder for compiled code, or None where there is none to write to.

    Each machine has its own: a home shared by machines with different processors would otherwise
    hand code compiled for one to another.
    """
    try:
        folder = _user_cache() / "avem" / (platform.node() or "here")
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError):  # RuntimeError: there is no home folder
        return None
    return folder if os.access(folder, os.W_OK) else None


def _user_cache() -> Path:
    if sys.platform == "win32" and os.environ.get("LOCALAPPDATA"):
        return Path(os.environ["LOCALAPPDATA"])
    if os.environ.get("XDG_CACHE_HOME"):
        return Path(os.environ["XDG_CACHE_HOME"])
    return Path.home() / ("Library/Caches" if sys.platform == "darwin" else ".cache")
