"""What is around the commands: warnings in one line, and compiled code kept between runs."""

from __future__ import annotations

import os
import re
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import typer

from avem.errors import AvemError, AvemWarning
from avem.kernels.folder import cache_folder

_DAMAGED = re.compile("Error (?:reading|writing) persistent compilation cache entry for '(.+?)'")
"""What JAX warns of when a process was killed while it wrote compiled code, or the disk is full."""


@contextmanager
def plain_warnings() -> Iterator[None]:
    """Show avem's warnings as one line, without the place in the code where they arose."""
    with warnings.catch_warnings():
        warnings.simplefilter("always", AvemWarning)
        shown = warnings.showwarning

        def show(message: Warning | str, category: type[Warning], *rest: Any) -> None:
            if issubclass(category, AvemWarning):
                typer.echo(f"avem: warning: {message}", err=True)
            elif found := _DAMAGED.match(str(message)):
                _forget(found[1])
            else:
                shown(message, category, *rest)

        warnings.showwarning = show
        yield


def _forget(name: str) -> None:
    """Remove what is kept of a program: JAX compiles it again, but never replaces an entry."""
    import jax

    folder = jax.config.jax_compilation_cache_dir  # pyright: ignore[reportAttributeAccessIssue]
    with suppress(OSError):
        for entry in Path(folder or ".").glob(f"{name}-*-cache"):
            entry.unlink()


def say(text: str) -> None:
    """Print to stdout; if nobody reads it any more, as in `avem fit ... | head`, work goes on."""
    try:
        typer.echo(text)
    except BrokenPipeError:
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115


def set_up_jax(no_cache: bool) -> None:
    """Keep compiled code between runs: a command is short, and compiling is most of it."""
    import jax

    folder = None if no_cache else cache_folder()
    if folder is None:
        return
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)


def find_studies() -> Any:
    """The module of the source that runs the studies; they are not installed with the package."""
    places = [Path(__file__).resolve().parents[2], Path.cwd()]
    root = next((place for place in places if (place / "studies" / "command.py").exists()), None)
    if root is None:
        raise AvemError(
            "The studies are a part of avem's source, which is not here: get the source, and run "
            "`avem study` in its folder. They are in its folder studies/."
        )
    if find_spec("studies") is None:
        sys.path.insert(0, str(root))
    return import_module("studies.command")
