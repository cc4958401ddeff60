"""What is asked of a file that may be damaged."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import avem
from tools.fuzz.case import NotFinite, Wrong

_BRIEF = {"held": 6, "marked": 7, "clock": 9, "stays": 10, "ssm_clock": 12}
"""Kinds of fits that are made by a few iterations, with their model in `frame_questions`."""
_WATCHED = {"monitor": 1, "monitor_clock": 8, "monitor_stays": 10, "monitor_types": 11}


@cache
def _original(kind: str) -> Any:
    """A fit of this kind, or a monitor."""
    from tests.fits.kinds import fit_of, ssm_fit
    from tools.fuzz.frame_questions import known, sound

    if kind in _WATCHED:
        return known(_WATCHED[kind]).monitor(sound().head(5))
    if kind in _BRIEF:
        return known(_BRIEF[kind])
    return ssm_fit() if kind == "ssm" else fit_of(kind)


@cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="avem-fuzz-")


@cache
def saved(kind: str) -> bytes:
    """The bytes of its file."""
    path = Path(_folder().name) / f"{kind}.avem"
    _original(kind).save(path)
    return path.read_bytes()


@cache
def _loaded(kind: str) -> Any:
    path = Path(_folder().name) / "whole.avem"
    path.write_bytes(saved(kind))
    return _read(path, kind)


def _read(path: Path, kind: str) -> Any:
    return avem.Monitor.load(path) if kind in _WATCHED else avem.load(path)


@contextmanager
def _little_memory(n_bytes: int) -> Iterator[None]:
    """Raise when more is taken than a file of this size may; nothing where nobody counts it."""
    peak = Path("/proc/self/clear_refs")
    if not peak.exists():
        yield
        return
    peak.write_text("5")  # the highest is counted from here on
    before = _status("VmRSS")
    yield
    taken = _status("VmHWM") - before
    if taken > 100_000_000 + 20 * n_bytes:
        raise MemoryError(f"{taken:,} bytes for a file of {n_bytes:,}")


def _status(name: str) -> int:
    """Bytes, by the kernel's account of this process."""
    found = re.search(rf"^{name}:\s+(\d+) kB", Path("/proc/self/status").read_text(), re.M)
    return int(found[1]) * 1024 if found else 0


def check(data: bytes, kind: str, same: bool, thorough: bool) -> None:
    """Raise unless the file is refused, gives the fit back, or a fit that answers.

    `same`: no other fit than the original will do.
    """
    path = Path(_folder().name) / "damaged.avem"
    path.write_bytes(data)
    found = _load(path, len(data), kind)
    check_same, check_answers = _check_same, _check_answers
    if kind in _WATCHED:
        check_same, check_answers = _check_same_monitor, _check_monitor
    if same:
        check_same(found, _loaded(kind))
        return
    try:
        check_answers(found)
        found.save(path)
        again = _read(path, kind)
    except avem.AvemError as error:  # what is loaded must be of use
        raise Wrong("it was loaded, and refuses", type(error).__name__) from error
    check_same(again, found)
    if thorough and kind not in _WATCHED:
        found.decode(_rows(kind)) if found.kind == "hmm" else found.states(_rows(kind))
        found.simulate(_rows(kind), seed=1)


def _load(path: Path, n_bytes: int, kind: str) -> Any:
    try:
        with _little_memory(n_bytes):
            return _read(path, kind)
    except avem.AvemError as error:
        if not isinstance(error, avem.FileError):
            raise Wrong("no FileError", type(error).__name__) from error
        raise


def _rows(kind: str) -> pd.DataFrame:
    return _original(kind).panel.table


def _check_same(found: Any, original: Any) -> None:
    for field in fields(original):
        if field.name in ("panel", "model"):
            continue
        if not _equal(getattr(found, field.name), getattr(original, field.name)):
            raise Wrong(f"another {field.name}", getattr(found, field.name))
    if repr(found.model.spec) != repr(original.model.spec):
        raise Wrong("another model", found.model.spec)
    if found.model.param_info().keys() != original.model.param_info().keys():
        raise Wrong("other parameters")


def _equal(one: Any, other: Any) -> bool:
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_equal(one[key], other[key]) for key in one)
    if isinstance(one, np.ndarray):
        if one.dtype.kind in "fc":
            return np.array_equal(one, other, equal_nan=True)
        return one.dtype == other.dtype and one.tolist() == other.tolist()
    if isinstance(one, float):
        return one == other or (one != one and other != other)
    return repr(one) == repr(other)  # NaN may be anywhere inside


def _check_answers(found: Any) -> None:
    """Raise unless everything that needs no data can be said."""
    repr(found)
    str(found.summary())
    for name in ("table", "effects"):
        table = getattr(found, name)()
        values = table.select_dtypes("number").to_numpy(float)
        if np.isinf(values).any():
            raise NotFinite(name)
    if not isinstance(found.n_params, int):
        raise Wrong("n_params", found.n_params)


def _check_same_monitor(found: Any, original: Any) -> None:
    for name in ("params", "columns", "nodes", "enough"):
        if not _equal(getattr(found, name), getattr(original, name)):
            raise Wrong(f"another {name}", getattr(found, name))
    if repr(found) != repr(original) or repr(found.known) != repr(original.known):
        raise Wrong("another past", found.known, original.known)


def _check_monitor(found: Any) -> None:
    """Raise unless it says what is known; rows that follow its own are taken, or refused."""
    repr(found)
    if found.known.now is not None and abs(sum(found.states.values()) - 1) > 1e-5:
        raise Wrong("states", found.states)
    for value in (found.loglik, *found.effects["mean"], *found.effects["sd"]):
        if not np.isfinite(value):
            raise NotFinite("monitor", value)
    row = {"id": found.subject, "y": 1.0, "x": 0.5, "time": 99, "k": "", "e": False}
    try:
        new = found.update(row | {"who": found.subject, "t": 99})
    except avem.AvemError:
        return
    if abs(sum(new.states.values()) - 1) > 1e-5:
        raise Wrong("states of an update", new.states)
