"""Zip archives of a JSON text and arrays, which may come from a stranger.

Nothing in them is executed: there is no pickle. Sizes are checked before anything is read, and
again while it is, since headers can lie. All members together may take `room_for` bytes.
"""

from __future__ import annotations

import io
import math
import re
import stat
import zipfile
from collections.abc import Mapping
from typing import Any, BinaryIO

import numpy as np

from avem.errors import FileError
from avem.fits.io.checked_json import read_json, size_of

_PIECE = 1 << 20
_MAX_MEMBERS = 10_000
_MAX_HEADER = 4096  # of an .npy member; those written here are 128 bytes
_COMPRESS_UP_TO = 1 << 22
_HARMLESS_FLAGS = 0x080E  # names in UTF-8, sizes after the data, how hard it was compressed
# As NumPy writes it, for numbers, truth values, dates and text.
_HEADER = re.compile(
    rb"\{'descr': '([<>|][biufMmU]\d{1,9}(?:\[\w{1,9}\])?)', 'fortran_order': (True|False), "
    rb"'shape': \(([\d, ]{0,200})\), \} *\n"
)


def room_for(n_bytes: int) -> int:
    """How many bytes of memory the members of a file of this size may take."""
    return 70_000_000 + 16 * n_bytes


def write_archive(file: Any, members: Mapping[str, bytes]) -> None:
    """Write the members.

    Large ones are not compressed: `Archive` has room in proportion to the file.
    """
    large = sum(map(len, members.values())) > _COMPRESS_UP_TO
    how = zipfile.ZIP_STORED if large else zipfile.ZIP_DEFLATED
    with zipfile.ZipFile(file, "w", how) as archive:
        for name, data in members.items():
            # A fixed date: the same fit gives the same bytes.
            info = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            info.compress_type = how
            info.external_attr = 0o644 << 16
            archive.writestr(info, data)


def npy(array: np.ndarray) -> bytes:
    """The bytes of an array's member."""
    stream = io.BytesIO()
    np.save(stream, array, allow_pickle=False)
    return stream.getvalue()


class Archive:
    """The members of a zip file, within a limited room."""

    def __init__(self, file: BinaryIO, n_bytes: int):
        self._zip = zipfile.ZipFile(file)
        self._members = self._zip.infolist()
        self.room = room_for(n_bytes)
        """Bytes that may still be taken."""
        if len(self._members) > _MAX_MEMBERS:
            raise FileError(
                f"it has {len(self._members):,} members; a saved fit has at most {_MAX_MEMBERS:,}."
            )

    @property
    def names(self) -> list[str]:
        """Of all members."""
        return [info.filename for info in self._members]

    def member(self, name: str, limit: float = math.inf) -> bytearray:
        """The bytes of a member, at most `limit`; its checksum is checked."""
        found = [info for info in self._members if info.filename == name]
        if len(found) != 1:
            raise FileError(f"its member {name!r} is missing or there twice.")
        info = found[0]
        if info.flag_bits & 1:
            raise FileError(f"its member {name!r} is encrypted, which avem does not do.")
        if info.flag_bits & ~_HARMLESS_FLAGS or stat.S_ISLNK(info.external_attr >> 16):
            raise FileError(f"its member {name!r} is no plain file.")
        if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise FileError(f"its member {name!r} is compressed in a way that avem does not use.")
        if info.file_size > min(limit, self.room):
            raise FileError(
                f"its member {name!r} has {info.file_size:,} bytes; at most "
                f"{min(limit, self.room):,} fit."
            )
        data = bytearray()
        with self._zip.open(info) as stream:
            # Piece by piece: read() as a whole would unpack more than the header says.
            while piece := stream.read(_PIECE):
                data += piece
        if len(data) != info.file_size:
            raise FileError(f"its member {name!r} is damaged: it ends too early.")
        self.reserve(len(data), f"member {name!r}")
        return data

    def reserve(self, n_bytes: int, what: str) -> None:
        """Take so many bytes of the room, or say that there are not as many."""
        if n_bytes > self.room:
            raise FileError(
                f"its {what} would take {n_bytes:,} bytes of memory, and {self.room:,} are left "
                "for a file of its size. A saved fit is not like that."
            )
        self.room -= n_bytes

    def json(self, name: str) -> Any:
        """What a member of JSON holds."""
        data = self.member(name)
        self.reserve(size_of(data), name)
        return read_json(data, name)

    def numbers(self, name: str, shape: tuple[int, ...], finite: bool = True) -> np.ndarray:
        """The numbers of an .npy member that must have this shape."""
        size = 8 * math.prod(shape)
        if size > self.room:
            raise FileError(
                f"its member {name!r} would have shape {shape}, which is more than a file of its "
                "size can hold."
            )
        values = self.array(name, shape, "f", size + _MAX_HEADER)
        if values.dtype != np.float64 or (finite and not np.isfinite(values).all()):
            raise FileError(
                f"its member {name!r} holds values that are not finite float64 numbers."
            )
        return values

    def array(
        self, name: str, shape: tuple[int, ...], kinds: str, limit: float = math.inf
    ) -> np.ndarray:
        """The array of an .npy member of this shape and of one of these kinds of dtype."""
        data = self.member(name, limit)
        dtype, order, found, start = _header(data, name)
        if found != shape or dtype.kind not in kinds:
            raise FileError(f"its member {name!r} has shape {found} of {dtype}; {shape} is wanted.")
        n_items = math.prod(shape)
        if dtype.itemsize == 0:
            raise FileError(f"its member {name!r} is damaged: its items, {dtype}, have no size.")
        if len(data) != start + n_items * dtype.itemsize:
            raise FileError(
                f"its member {name!r} is damaged: it has {len(data):,} bytes, and its header says "
                f"{start + n_items * dtype.itemsize:,}."
            )
        values = np.frombuffer(data, dtype, n_items, start).reshape(shape, order=order)
        _check_items(values, name)
        return values


def _header(data: bytearray, name: str) -> tuple[np.dtype, Any, tuple[int, ...], int]:
    """dtype, order, shape and length of the header of an .npy array; nothing in it is run."""
    match = _HEADER.match(data, 10)
    length = int.from_bytes(data[8:10], "little")
    if data[:8] != b"\x93NUMPY\x01\x00" or match is None or match.end() != 10 + length:
        raise FileError(
            f"its member {name!r} is no .npy array of version 1.0 of numbers, dates or text, which "
            "is wanted."
        )
    try:
        dtype = np.dtype(match[1].decode("ascii"))
    except TypeError:
        raise FileError(f"its member {name!r} is of the unknown dtype {match[1]!r}.") from None
    shape = tuple(int(n) for n in match[3].decode("ascii").split(",") if n.strip())
    return dtype, "F" if match[2] == b"True" else "C", shape, match.end()


def _check_items(values: np.ndarray, name: str) -> None:
    """Raise where bytes are no truth value, or no character."""
    bad = False
    if values.dtype.kind == "b":
        bad = (values.view(np.uint8) > 1).any()
    elif values.dtype.kind == "U" and values.size:
        code = np.dtype(np.uint32).newbyteorder(values.dtype.byteorder)
        bad = (np.ascontiguousarray(values).view(code) > 0x10FFFF).any()
    if bad:
        raise FileError(f"its member {name!r} is damaged: it holds what no {values.dtype} can be.")
