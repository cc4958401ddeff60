"""Zip archives of a JSON text and arrays, which may come from a stranger.

Nothing in them is executed: there is no pickle, and the size of every member is checked before it
is read.
"""

from __future__ import annotations

import io
import math
import zipfile
from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

import numpy as np

from avem.errors import FileError

_MAX_ARRAY = 1 << 32
_MAX_HEADER = 4096  # of an .npy member; those written here are 128 bytes

T = TypeVar("T")


def write_archive(file: Any, members: Mapping[str, bytes], limits: Mapping[str, int]) -> None:
    """Write the members; `limits` are the sizes of those that are not arrays of numbers."""
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            if len(data) > limits.get(name, _MAX_ARRAY):
                raise FileError(f"The fit is too large to save: {name} has {len(data):,} bytes.")
            # A fixed date: the same fit gives the same bytes.
            info = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            info.compress_type = zipfile.ZIP_DEFLATED
            info.external_attr = 0o644 << 16
            archive.writestr(info, data)


def npy(array: np.ndarray) -> bytes:
    """The bytes of an array's member."""
    stream = io.BytesIO()
    np.save(stream, array, allow_pickle=False)
    return stream.getvalue()


def member(archive: zipfile.ZipFile, name: str, limit: int) -> bytes:
    """The bytes of a member that has at most `limit` of them; its checksum is checked."""
    if archive.namelist().count(name) != 1:
        raise FileError(f"its member {name!r} is missing or there twice.")
    info = archive.getinfo(name)
    if info.file_size > limit:
        raise FileError(f"its member {name!r} has {info.file_size:,} bytes; at most {limit:,} fit.")
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise FileError(f"its member {name!r} is compressed in a way that avem does not use.")
    return archive.read(info)


def numbers(
    archive: zipfile.ZipFile, name: str, shape: tuple[int, ...], finite: bool = True
) -> np.ndarray:
    """The numbers of an .npy member that must have this shape."""
    size = 8 * math.prod(shape) + _MAX_HEADER
    if size > _MAX_ARRAY:
        raise FileError(f"its member {name!r} would have shape {shape}, more than avem saves.")
    values = array(member(archive, name, size), name, shape, "f")
    if values.dtype != np.float64 or (finite and not np.isfinite(values).all()):
        raise FileError(f"its member {name!r} holds values that are not finite float64 numbers.")
    return values


def array(data: bytes, name: str, shape: tuple[int, ...], kinds: str) -> np.ndarray:
    """The array of an .npy member; its header is checked before there is room for it in memory."""
    stream = io.BytesIO(data)
    if np.lib.format.read_magic(stream) != (1, 0):
        raise FileError(f"its member {name!r} is no .npy array of version 1.0.")
    found, _, dtype = np.lib.format.read_array_header_1_0(stream, max_header_size=_MAX_HEADER)
    if found != shape or dtype.kind not in kinds:
        raise FileError(f"its member {name!r} has shape {found} of {dtype}; {shape} is wanted.")
    stream.seek(0)
    return np.load(stream, allow_pickle=False)


def typed(kind: type[T], found: Mapping[str, Any], where: str) -> T:
    """The dataclass `kind` from a JSON object, every value checked against its annotation."""
    values = {}
    hints = get_type_hints(kind)
    for field in fields(kind):  # pyright: ignore[reportArgumentType]
        if field.name not in found:
            if field.default is MISSING:
                raise FileError(f"its {where} lacks {field.name!r}.")
            continue
        value = found[field.name]
        if not _has_type(value, hints[field.name]):
            raise FileError(
                f"its {where} has {field.name} = {str(value)[:40]!r}, which is no such."
            )
        values[field.name] = tuple(value) if get_origin(hints[field.name]) is tuple else value
    return kind(**values)


def _has_type(value: Any, hint: Any) -> bool:
    if hint is Any:
        return isinstance(value, str | int | float)
    if get_origin(hint) is tuple:
        return isinstance(value, list) and all(_has_type(x, get_args(hint)[0]) for x in value)
    if get_origin(hint) is Literal:  # which words there are, the class checks itself
        return isinstance(value, tuple({type(word) for word in get_args(hint)}))
    if hint in (int, float):  # a bool is an int to Python, and an int is a float to JSON
        return isinstance(value, int | hint) and not isinstance(value, bool)
    return isinstance(value, hint)
