"""The file of a bootstrap: a line that says whose it is, then one for each finished replicate."""

from __future__ import annotations

import math
from dataclasses import asdict, fields
from os import PathLike
from typing import Any, Self

import numpy as np

from avem.components.param_info import Params
from avem.data.line_file import LineFile, parsed
from avem.errors import FileError
from avem.inference.stop import Stop
from avem.workflows.bootstrap_table import FAILED, Replicate

_FORMAT = {"format": "avem bootstrap", "version": 1}
_KEYS = {field.name for field in fields(Replicate)}
_STOPS = {*Stop.__members__, FAILED} - {Stop.INTERRUPTED.name}
_ADVICE = "Delete the line, and its replicate is made again; or choose another path."


class Journal:
    """The open file of one bootstrap.

    Parameters
    ----------
    path
        The file; it is made when there is none.
    identity
        What tells this bootstrap from others; a file of another one is refused.
    like
        Parameters with the shapes that a replicate's have.
    """

    def __init__(self, path: str | PathLike[str], identity: dict[str, Any], like: Params) -> None:
        self.found: dict[int, Replicate] = {}
        """The replicates that an earlier run has finished."""
        self._file = LineFile(path, " to keep the replicates in")
        try:
            self._begin(_FORMAT | identity)
            for place, line in enumerate(self._file.lines[1:], 2):
                self._add(line, place, like)
            self._file.drop_torn()
        except BaseException:
            self._file.close()
            raise

    def append(self, replicate: Replicate) -> None:
        """Write one more replicate."""
        record = asdict(replicate)
        if replicate.params is not None:
            record["params"] = {name: value.tolist() for name, value in replicate.params.items()}
        self._file.append(record)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def _begin(self, head: dict[str, Any]) -> None:
        file = self._file
        if file.lines:
            self._check(parsed(file.lines[0]), head)
        elif not file.torn or _starts_like(file.torn, head):  # new, or killed in its first line
            file.drop_torn()
            file.append(head)
        else:
            self._check(parsed(file.torn), head)

    def _check(self, found: Any, head: dict[str, Any]) -> None:
        path = str(self._file.path)
        if not isinstance(found, dict) or found.get("format") != _FORMAT["format"]:
            raise FileError(
                f"{path!r} was not written by avem.bootstrap, and is left as it is. Choose another "
                "path."
            )
        if found.get("version") != _FORMAT["version"]:
            raise FileError(
                f"{path!r} has format version {found.get('version')}; this avem writes version "
                f"{_FORMAT['version']}. Choose another path."
            )
        if found.get("fit") != head["fit"]:
            raise FileError(
                f"{path!r} holds the bootstrap of another fit, or of other settings: "
                f"{_words(found)}; this one is {_words(head)}. Choose another path, or delete "
                "the file to start again."
            )

    def _add(self, line: bytes, place: int, like: Params) -> None:
        record = parsed(line)
        why = _problem(record, like)
        if not why and record["number"] in self.found and line not in self._file.lines[: place - 1]:
            why = f"replicate {record['number']} is there already, with other numbers"
        if why:
            raise self._file.refuse(place, f"is not what a bootstrap writes: {why}", _ADVICE)
        params = record["params"]
        if params is not None:
            record["params"] = {name: np.array(params[name], float) for name in like}
        self.found[record["number"]] = Replicate(**record)


def _starts_like(torn: bytes, head: dict[str, Any]) -> bool:
    return LineFile.line(head).startswith(torn)


def _words(head: dict[str, Any]) -> str:
    size = head.get("n_states", head.get("n_latent"))
    return (
        f"{head.get('model')!r} with {size} states on {head.get('n_rows')} rows, "
        f"seed {head.get('seed')}"
    )


def _problem(record: Any, like: Params) -> str:
    """What is wrong with the record of a replicate; empty where nothing is."""
    if not isinstance(record, dict) or set(record) != _KEYS:
        return f"a JSON object with {', '.join(sorted(_KEYS))} is wanted"
    number, stop, params = record["number"], record["stop"], record["params"]
    if type(number) is not int or number < 0:
        return f"its number is {number!r}; 0, 1, ... is wanted"
    if not isinstance(stop, str) or stop not in _STOPS:
        return f"its stop is {stop!r}; one of {', '.join(sorted(_STOPS))} is wanted"
    if not isinstance(record["reason"], str):
        return f"its reason is {record['reason']!r}; a text is wanted"
    if stop == FAILED:
        return "" if params is None else "it failed, and yet has parameters"
    if not _is_number(record["bound"]):
        return f"its bound is {record['bound']!r}; a finite number is wanted"
    if not isinstance(params, dict) or set(params) != set(like):
        return f"parameters {', '.join(like)} are wanted"
    for name, value in like.items():
        if not _has_shape(params[name], value.shape):
            return f"its {name!r} is no array of finite numbers of the shape {value.shape}"
    return ""


def _has_shape(value: Any, shape: tuple[int, ...]) -> bool:
    if not shape:
        return _is_number(value)
    if not isinstance(value, list) or len(value) != shape[0]:
        return False
    return all(_has_shape(part, shape[1:]) for part in value)


def _is_number(value: Any) -> bool:
    try:
        return type(value) in (int, float) and math.isfinite(value)
    except OverflowError:  # a whole number beyond all floating-point ones
        return False
