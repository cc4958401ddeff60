"""What `pip install 'avem[scale]'` brings, imported when it is asked for."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from avem.errors import ModelError


def need(name: str, purpose: str) -> Any:
    """A package of the extra, or a word what to install."""
    try:
        return import_module(name)
    except ImportError:
        raise ModelError(
            f"{purpose} needs the package {name.partition('.')[0]}: pip install 'avem[scale]'."
        ) from None
