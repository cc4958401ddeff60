"""Chunks in files: each is written once and read as often as it is computed on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import IO, Any, NamedTuple

import numpy as np

from avem.data.layout import Chunk, Pattern, RowList
from avem.errors import FileError

_ALIGNED = 64
_PLAIN = Chunk._fields.index("patterns")
"""Fields of a chunk that are single arrays; weights, which it may lack, are not among them."""


class ChunkFile(NamedTuple):
    """Where a chunk is in a file."""

    path: str
    offset: int
    n_bytes: int
    arrays: tuple[tuple[str, tuple[int, ...], int], ...]
    """Type, shape and offset of each array."""
    n_patterns: int
    weighted: bool = False
    """The last array are weights."""
    hidden: np.ndarray | None = None
    """(lanes,) bool: left out, as if they had no rows."""

    def load(self) -> Chunk:
        """The chunk, read from the file."""
        with open(self.path, "rb") as file:
            file.seek(self.offset)
            buffer = file.read(self.n_bytes)
        if len(buffer) < self.n_bytes:
            raise FileError(f"{self.path!r} ends too early: it was changed while it was in use.")
        found = iter(
            [
                np.frombuffer(buffer, kind, int(np.prod(shape)), offset).reshape(shape)
                for kind, shape, offset in self.arrays
            ]
        )
        chunk = _chunk(found, len(self.arrays), self.n_patterns, self.weighted)
        if self.hidden is None:
            return chunk
        return chunk._replace(valid=chunk.valid & ~self.hidden)

    def without(self, hidden: np.ndarray) -> ChunkFile:
        """The same chunk with these lanes left out."""
        return self._replace(hidden=hidden)


def _chunk(arrays: Iterator[np.ndarray], n_arrays: int, n_patterns: int, weighted: bool) -> Chunk:
    plain = [next(arrays) for _ in range(_PLAIN)]
    patterns = tuple(Pattern(*(next(arrays) for _ in Pattern._fields)) for _ in range(n_patterns))
    left = n_arrays - _PLAIN - n_patterns * len(Pattern._fields) - weighted
    n_lists = left // len(RowList._fields)
    lists = tuple(RowList(*(next(arrays) for _ in RowList._fields)) for _ in range(n_lists))
    return Chunk._make((*plain, patterns, lists, next(arrays) if weighted else None))


def write_chunk(file: IO[bytes], chunk: Chunk) -> ChunkFile:
    """Add a chunk to the end of a file."""
    start, offset, arrays = file.tell(), 0, []
    for value in _arrays(chunk):
        array = np.ascontiguousarray(value)
        arrays.append((array.dtype.str, array.shape, offset))
        file.write(array.tobytes())
        gap = -array.nbytes % _ALIGNED
        file.write(b"\0" * gap)
        offset += array.nbytes + gap
    weighted = chunk.weight is not None
    return ChunkFile(file.name, start, offset, tuple(arrays), len(chunk.patterns), weighted)


def _arrays(chunk: Chunk) -> Iterable[Any]:
    yield from chunk[:_PLAIN]
    for part in (*chunk.patterns, *chunk.lists):
        yield from part
    if chunk.weight is not None:
        yield chunk.weight
