"""What `pip install 'avem[scale]'` brings, imported when it is asked for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
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


@contextmanager
def interruptible() -> Iterator[None]:
    """Ctrl-C while DuckDB works, of which it makes an error of its own."""
    try:
        yield
    except Exception as error:
        if "interrupted" in str(error).lower() and type(error).__name__ in _INTERRUPTED:
            raise KeyboardInterrupt from None
        raise


_INTERRUPTED = ("RuntimeError", "InterruptException")
