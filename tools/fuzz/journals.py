"""What work that was ended is gone on from: journals, checkpoints and sorted rows, damaged."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

import avem
from tools.fuzz.case import Case, Wrong
from tools.fuzz.files import of_bytes, of_contents

_BEFORE = """\
from tools.fuzz.damage import insert, write
from tools.fuzz.journals import check, finished, joined
"""
_OF_FILES = """\
from tools.fuzz.damage import *
from tools.fuzz.kept_questions import check_going_on, part
"""
_N = 3
_BYTES = b"\0\xff"  # never in JSON: lines have no checksum, and another digit could not be told
_LINES = (
    b"",
    b"{}",
    b"null",
    b"[]",
    b"[" * 100_000,
    b'{"number": 0}',
    b'{"number": 99, "stop": "CONVERGED", "reason": "", "bound": 0.0, "params": null}',
    b'{"number": -1, "stop": "x", "reason": 1, "bound": "x", "params": {}}',
    b"\xff\xfe",
    b"\0" * 5000,
)


def make(rng: Random, number: int) -> Case:
    """The journal of a finished bootstrap, a checkpoint or a cache, spoilt."""
    if rng.random() < 0.5:
        return _of_files(rng, number)
    edits = [_edit(rng) for _ in range(rng.choice([1, 1, 2, 4]))]
    before = f"{_BEFORE}data = finished()"
    return Case("journals", number, before, tuple(edits), "check(data)")


def _of_files(rng: Random, number: int) -> Case:
    name = rng.choice(["checkpoint", "checkpoint", "scan.json", "rows.parquet", "subjects.parquet"])
    name = rng.choice([name, name, "lane_subject.npy", "lane_length.npy"])
    inside = name == "checkpoint" and rng.random() < 0.4
    edits = [(of_contents if inside else of_bytes)(rng) for _ in range(rng.choice([1, 1, 2]))]
    before = f"{_OF_FILES}data = part({name!r})"
    after = f"check_going_on(data, {name!r}, same={not inside})"
    return Case("journals", number, before, tuple(edits), after)


def _edit(rng: Random) -> str:
    at, length = f"{rng.random():.6f}", rng.choice([1, 3, 50])
    one, two = rng.randrange(4), rng.randrange(4)
    return rng.choice(
        [
            f"data = data[: int({at} * len(data))]",
            f"data = insert(data, {at}, {_BYTES * length!r})",
            f"data = write(data, {at}, {_BYTES * length!r})",
            f"data = insert(data, {at}, b'\\n')",
            f"data = joined(data, {rng.sample(range(4), 4)})",
            f"data = joined(data, {[0, *rng.choices(range(1, 4), k=5)]})",
            f"data = joined(data, {sorted({0, one, two})})",
            f"data = data + {rng.choice(_LINES)[:200]!r} + b'\\n'",
            f"data = joined(data, [0]) + {rng.choice(_LINES)[:200]!r} + b'\\n' + data",
            "data = data.replace(b'\\n', b'\\r\\n')",
            "data = data.rstrip(b'\\n')",
        ]
    )


@cache
def _bootstrapped() -> tuple[Any, Path, Any]:
    """A fit, the journal of its bootstrap, and the bootstrap."""
    from tools.fuzz.frame_questions import known

    folder = Path(tempfile.mkdtemp(prefix="avem-fuzz-"))
    fit, path = known(1), folder / "journal.jsonl"
    return fit, path, avem.bootstrap(fit, n=_N, path=path)


@cache
def finished() -> bytes:
    """The bytes of a finished journal."""
    return _bootstrapped()[1].read_bytes()


def joined(data: bytes, numbers: list[int]) -> bytes:
    """Some of the lines, in this order."""
    lines = data.splitlines(keepends=True)
    return b"".join(lines[number] for number in numbers)


def check(data: bytes) -> None:
    """Raise unless the journal is refused, or the bootstrap goes on to the same result."""
    fit, path, original = _bootstrapped()
    damaged = path.with_name("damaged.jsonl")
    damaged.write_bytes(data)
    found = avem.bootstrap(fit, n=_N, path=damaged)
    for one, other in zip(found.done, original.done, strict=True):
        if (one.number, one.stop) != (other.number, other.stop):
            raise Wrong("another replicate", one, other)
        if not np.isclose(one.bound, other.bound, rtol=1e-9):
            raise Wrong("another bound", one.bound, other.bound)
        for name, value in (other.params or {}).items():
            if not np.allclose((one.params or {})[name], value, rtol=1e-6, atol=1e-9):
                raise Wrong("another estimate", name, one.params, value)
