"""What stays with shards, within a bound on memory: what does not fit is on disk."""

from __future__ import annotations

import pickle
import uuid
from pathlib import Path
from threading import Lock
from typing import Any

import jax
import numpy as np

from avem.data.scanning.room import writing_into


class Shelf:
    """Values of shards, in memory as far as there is room for them."""

    def __init__(self, room: int, folder: Path) -> None:
        self._room, self._folder, self._lock = room, folder, Lock()
        self._used = 0

    def put(self, value: Any) -> Held:
        """Keep a value, which never changes.

        Where it does not fit, what can be computed again is left out (`lean`); where it then does
        not fit either, it goes to disk.
        """
        size = _size(value)
        if not self._take(size):
            lean = getattr(value, "lean", None)
            value = value if lean is None else lean()
            size = _size(value)
            if not self._take(size):
                return self._write(value)
        return Held(self, size, value)

    def _write(self, value: Any) -> Held:
        path = self._folder / uuid.uuid4().hex
        with writing_into(self._folder), open(path, "wb") as file:
            pickle.dump(jax.tree.map(np.asarray, value), file, pickle.HIGHEST_PROTOCOL)
        return Held(self, 0, None, path)

    def _take(self, size: int) -> bool:
        with self._lock:
            fits = self._used + size <= self._room
            self._used += size if fits else 0
            return fits

    def give_back(self, size: int) -> None:
        """Room that is free again."""
        with self._lock:
            self._used -= size


class Held:
    """A value on a shelf, for as long as somebody has its handle."""

    __slots__ = ("_path", "_shelf", "_size", "_value")

    def __init__(self, shelf: Shelf, size: int, value: Any, path: Path | None = None) -> None:
        self._shelf, self._size, self._value, self._path = shelf, size, value, path

    def get(self) -> Any:
        """The value."""
        if self._path is None:
            return self._value
        with open(self._path, "rb") as file:
            return pickle.load(file)

    def __del__(self) -> None:
        self._shelf.give_back(self._size)
        if self._path is not None:
            self._path.unlink(missing_ok=True)


def _size(value: Any) -> int:
    return sum(getattr(leaf, "nbytes", 64) for leaf in jax.tree.leaves(value))
