"""What is asked of a fit that goes on from files: a checkpoint, and sorted rows of a scan."""

from __future__ import annotations

import tempfile
import warnings
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import avem
from tools.fuzz.case import NotFinite, Wrong

_CHECKPOINT = "checkpoint"


@cache
def _folder() -> Path:
    return Path(tempfile.mkdtemp(prefix="avem-fuzz-"))


def _checkpoint() -> Path:
    return _folder() / _CHECKPOINT


def _fit(**options: Any) -> Any:
    from tools.fuzz.frame_questions import sound

    model = avem.MixedHMM("y ~ x + (1 | id)", 2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", avem.AvemWarning)  # that it was stopped
        return model.fit(sound(), time="time", n_starts=1, refine=None, **options)


def _scan() -> avem.Scan:
    source = _folder() / "rows.parquet"
    if not source.exists():
        from tools.fuzz.frame_questions import sound

        sound().to_parquet(source)
    return avem.Panel.scan(source, "id", time="time", cache=_folder() / "cache", memory="200MB")


@cache
def _whole() -> tuple[dict[str, bytes], Any]:
    """All that is kept, and the fit that comes of it."""
    _fit(checkpoint=_checkpoint(), callback=lambda iteration: iteration.number >= 6)
    kept = {_CHECKPOINT: _checkpoint().read_bytes()}
    kept |= {path.name: path.read_bytes() for path in _scan().folder.iterdir()}
    return kept, _fit().params


def part(name: str) -> bytes:
    """The bytes of one of the files."""
    return _whole()[0][name]


def check_going_on(data: bytes, name: str, same: bool) -> None:
    """Raise unless a damaged file is refused, or made again, or leads to what it did.

    `same`: to that and nothing else; otherwise numbers may be others that could be a fit's.
    """
    if name != _CHECKPOINT:
        _check_scan(data, name)
        return
    _checkpoint().write_bytes(data)
    found = _fit(checkpoint=_checkpoint()).params
    for key, value in _whole()[1].items():
        if not np.isfinite(found[key]).all():
            raise NotFinite(key, found[key])
        if same and not np.allclose(found[key], value, rtol=1e-3, atol=1e-4):
            raise Wrong("another fit", key, found[key], value)


def _check_scan(data: bytes, name: str) -> None:
    kept = _whole()[0]
    folder = _scan().folder
    for own, content in kept.items():
        if own != _CHECKPOINT:
            (folder / own).write_bytes(data if own == name else content)
    found = _scan()
    if (found.n_subjects, found.n_rows, found.n_lanes) != (4, 32, 4):
        raise Wrong("another panel", repr(found))
    made = {path.name: path.read_bytes() for path in found.folder.iterdir()}
    for own in ("rows.parquet", "lane_subject.npy", "lane_length.npy"):
        if made[own] != kept[own]:
            raise Wrong("other rows", own)
