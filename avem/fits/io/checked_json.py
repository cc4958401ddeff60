"""JSON that may come from a stranger: bounded before it is read, and checked field by field."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import MISSING, fields
from types import UnionType
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from avem.errors import FileError

_MAX_DEPTH = 20
_MAX_WHOLE = 10**100
T = TypeVar("T")


def read_json(data: bytearray, name: str) -> Any:
    """What the text holds; see `size_of` first."""
    try:
        found = json.loads(data.decode("ascii"))
    except RecursionError:
        found, deep = None, True
    else:
        deep = _depth(found) > _MAX_DEPTH
    if deep:
        raise FileError(f"its {name} is damaged: it is nested too deeply.")
    return found


def size_of(data: bytearray) -> int:
    """About how many bytes of memory the text and what is in it take, at most.

    Braces and commas inside of strings are counted too; there are few in a saved fit.
    """
    n_lists, n_dicts, n_texts = data.count(b"["), data.count(b"{"), data.count(b'"') // 2
    n_values = data.count(b",") + data.count(b":") + n_lists + n_dicts
    widest = 4 if data.count(b"\\u") else 1  # bytes of a character
    text = len(data) * (1 + widest)
    objects = 100 * n_lists + 260 * n_dicts + 56 * n_texts + 32 * max(n_values - n_texts, 0)
    return text + objects + 8 * n_values


def _depth(found: Any) -> int:
    """How deeply lists and objects are nested, as far as it matters."""
    level, depth = [found], 0
    while level and depth <= _MAX_DEPTH:
        nested = [item for item in level if isinstance(item, dict | list)]
        inner = (item.values() if isinstance(item, dict) else item for item in nested)
        level = [part for parts in inner for part in parts if isinstance(part, dict | list)]
        depth += 1
    return depth


def typed(kind: type[T], found: Mapping[str, Any], where: str) -> T:
    """The dataclass `kind` from a JSON object, every value checked against its annotation."""
    if not isinstance(found, Mapping):
        raise FileError(f"its {where} is damaged: it is {str(found)[:40]!r}.")
    values = {}
    hints = get_type_hints(kind)
    for field in fields(kind):  # pyright: ignore[reportArgumentType]
        if field.name not in found:
            if field.default is MISSING:
                raise FileError(f"its {where} lacks {field.name!r}.")
            continue
        value = found[field.name]
        if not _has_type(value, hints[field.name]):
            wanted = getattr(hints[field.name], "__name__", str(hints[field.name]))
            raise FileError(
                f"its {where} has {field.name} = {str(value)[:40]!r}; {wanted} is wanted."
            )
        values[field.name] = tuple(value) if get_origin(hints[field.name]) is tuple else value
    return kind(**values)


def _has_type(value: Any, hint: Any) -> bool:
    if hint is Any:
        return isinstance(value, str | int | float)
    if isinstance(hint, UnionType):
        return any(_has_type(value, part) for part in get_args(hint))
    if get_origin(hint) is tuple:
        return isinstance(value, list) and all(_has_type(x, get_args(hint)[0]) for x in value)
    if get_origin(hint) is Literal:  # which words there are, the class checks itself
        return isinstance(value, tuple({type(word) for word in get_args(hint)}))
    if hint in (int, float):  # a bool is an int to Python, and an int is a float to JSON
        whole = isinstance(value, int) and not isinstance(value, bool) and abs(value) < _MAX_WHOLE
        return whole or (hint is float and isinstance(value, float))
    return isinstance(value, hint)
