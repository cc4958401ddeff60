"""Ways to damage a saved fit or monitor: a zip of one JSON text and arrays.

Places are shares of the whole.
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable
from typing import Any

import numpy as np

Members = dict[str, bytes]
__all__ = [
    "copy_part",
    "cut_member",
    "flip",
    "garble_json",
    "in_array",
    "in_header",
    "in_json",
    "insert",
    "nested",
    "np",
    "of_zeros",
    "packed",
    "remove",
    "rename_key",
    "renamed",
    "reshaped",
    "swapped",
    "twice",
    "without_key",
    "without_member",
    "write",
]

# --- bytes ---------------------------------------------------------------------------------------


def flip(data: bytes, at: float, bit: int) -> bytes:
    """One bit the other way round."""
    i = int(at * len(data))
    return data[:i] + bytes([data[i] ^ (1 << bit)]) + data[i + 1 :]


def write(data: bytes, at: float, new: bytes) -> bytes:
    """Other bytes in place of those there."""
    i = int(at * len(data))
    return data[:i] + new + data[i + len(new) :]


def insert(data: bytes, at: float, new: bytes) -> bytes:
    """More bytes."""
    i = int(at * len(data))
    return data[:i] + new + data[i:]


def remove(data: bytes, at: float, n: int) -> bytes:
    """Fewer bytes."""
    i = int(at * len(data))
    return data[:i] + data[i + n :]


def copy_part(data: bytes, to: float, start: float, n: int) -> bytes:
    """Bytes of one place in another."""
    i = int(start * len(data))
    return write(data, to, data[i : i + n])


# --- members -------------------------------------------------------------------------------------


def members_of(data: bytes) -> Members:
    """Of the archive, by name."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def archived(members: Members | list[tuple[str, bytes]], how: int = zipfile.ZIP_DEFLATED) -> bytes:
    """A sound archive of these members."""
    stream = io.BytesIO()
    pairs = list(members.items()) if isinstance(members, dict) else members
    with zipfile.ZipFile(stream, "w", how) as archive:
        for name, content in pairs:
            archive.writestr(name, content)
    return stream.getvalue()


def _changed(data: bytes, name: str, change: Callable[[bytes], bytes]) -> bytes:
    members = members_of(data)
    return archived(members | {name: change(members[name])})


def _name(data: bytes, at: float, only: str = "") -> str:
    names = [name for name in members_of(data) if name.endswith(only)]
    return names[int(at * len(names))]


def without_member(data: bytes, at: float) -> bytes:
    """One member less."""
    members = members_of(data)
    del members[_name(data, at)]
    return archived(members)


def swapped(data: bytes, at: float, other: float) -> bytes:
    """Two members with each other's contents."""
    members, one, two = members_of(data), _name(data, at), _name(data, other)
    members[one], members[two] = members[two], members[one]
    return archived(members)


def renamed(data: bytes, at: float, name: str) -> bytes:
    """A member under another name."""
    old = _name(data, at)
    pairs = [(name if it == old else it, content) for it, content in members_of(data).items()]
    return archived(pairs)


def twice(data: bytes, at: float) -> bytes:
    """A member that is there two times."""
    members, name = members_of(data), _name(data, at)
    return archived([*members.items(), (name, members[name])])


def packed(data: bytes, how: int) -> bytes:
    """Compressed in another way."""
    return archived(members_of(data), how)


def cut_member(data: bytes, at: float, length: float) -> bytes:
    """A member that ends too early."""
    return _changed(data, _name(data, at), lambda b: b[: int(length * len(b))])


def of_zeros(data: bytes, at: float, n: int) -> bytes:
    """A member that unpacks to very much."""
    return _changed(data, _name(data, at), lambda b: b + bytes(n))


# --- JSON ----------------------------------------------------------------------------------------


def nested(depth: int) -> Any:
    """A list in a list in a list; the deepest are told by a word, which becomes them as text."""
    if depth > 500:
        return f"deep {depth}"
    return [] if depth == 0 else [nested(depth - 1)]


def _dumped(record: Any) -> bytes:
    text = json.dumps(record)
    for depth in (100_000,):
        text = text.replace(f'"deep {depth}"', "[" * depth + "]" * depth)
    return text.encode("ascii")


def _holders(found: Any) -> list[tuple[Any, Any]]:
    """Every (list or object, place in it), from the outside in."""
    places = found.items() if isinstance(found, dict) else enumerate(found)
    mine = [(found, key) for key, _ in places]
    inner = [value for _, value in mine and _pairs(found) if isinstance(value, dict | list)]
    return mine + [place for value in inner for place in _holders(value)]


def _pairs(found: Any) -> list[tuple[Any, Any]]:
    return list(found.items() if isinstance(found, dict) else enumerate(found))


def _in_record(data: bytes, at: float, change: Callable[[Any, Any], None]) -> bytes:
    def edit(text: bytes) -> bytes:
        record = json.loads(text)
        places = _holders(record)
        change(*places[int(at * len(places))])
        return _dumped(record)

    return _changed(data, _name(data, 0.0, ".json"), edit)


def in_json(data: bytes, at: float, value: Any) -> bytes:
    """Another value somewhere in the record."""
    return _in_record(data, at, lambda holder, key: holder.__setitem__(key, value))


def without_key(data: bytes, at: float) -> bytes:
    """One entry less in the record."""
    return _in_record(data, at, lambda holder, key: holder.__delitem__(key))


def rename_key(data: bytes, at: float, name: str) -> bytes:
    """An entry of the record under another name."""
    return _in_record(data, at, lambda holder, key: holder.__setitem__(name, holder.pop(key)))


def garble_json(data: bytes, at: float, piece: str) -> bytes:
    """The record with a piece too much."""
    return _changed(data, _name(data, 0.0, ".json"), lambda text: insert(text, at, piece.encode()))


# --- arrays --------------------------------------------------------------------------------------


def _array(content: bytes) -> np.ndarray:
    return np.load(io.BytesIO(content), allow_pickle=False)


def _npy(array: np.ndarray) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array, allow_pickle=False)
    return stream.getvalue()


def in_array(data: bytes, at: float, where: float, value: float) -> bytes:
    """Another number in an array."""

    def edit(content: bytes) -> bytes:
        array = _array(content)
        array.flat[int(where * array.size)] = value
        return _npy(array)

    return _changed(data, _name(data, at, ".npy"), edit)


def reshaped(data: bytes, at: float, shape: tuple[int, ...]) -> bytes:
    """The same numbers in another shape, or none of them."""

    def edit(content: bytes) -> bytes:
        array = _array(content)
        return _npy(array[:0].reshape(shape) if 0 in shape else array.reshape(shape))

    return _changed(data, _name(data, at, ".npy"), edit)


def in_header(data: bytes, at: float, old: str, new: str) -> bytes:
    """Another word in the header of an array, whose length remains."""

    def edit(content: bytes) -> bytes:
        head, rest = content[:128], content[128:]
        made = head.replace(old.encode(), new.encode(), 1)
        excess = len(made) - len(head)
        made = made[:-1].rstrip(b" ").ljust(127) + b"\n" if excess else made
        return made + rest

    return _changed(data, _name(data, at, ".npy"), edit)
