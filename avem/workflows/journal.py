"""The file of a bootstrap: a line that says whose it is, then a line for each finished replicate.

Lines are JSON. A replicate's line is written at once when it is finished and never changed, so a
run that was killed loses only what it was working on.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from avem.components.param_info import Params
from avem.data.writing import need_file
from avem.errors import FileError
from avem.workflows.bootstrap_table import Replicate

_FORMAT = {"format": "avem bootstrap", "version": 1}


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
        self.path = Path(path)
        self.found: dict[int, Replicate] = {}
        """The replicates that an earlier run has finished."""
        need_file(path, " to keep the replicates in")
        head = _line(_FORMAT | identity)
        try:
            known = self.path.read_bytes() if self.path.exists() else b""
            if head.startswith(known) and known != head:  # new, or killed in its first line
                self.path.write_bytes(head)
                return
            whole = known[: known.rfind(b"\n") + 1]
            first, *lines = whole.split(b"\n")
            self._check(first or known, identity)
            if whole != known:  # killed while writing the last line: the next one starts there
                with open(self.path, "r+b") as file:
                    file.truncate(len(whole))
        except OSError as error:
            raise self._cannot("use", error) from error
        for line in lines:
            replicate = _replicate(line, like)
            if replicate is not None:
                self.found[replicate.number] = replicate

    def append(self, replicate: Replicate) -> None:
        """Write one more replicate."""
        try:
            # Unbuffered, so that the line is one write: it is there, or it is not.
            with open(self.path, "ab", buffering=0) as file:
                file.write(_line(asdict(replicate)))
        except OSError as error:
            raise self._cannot("write", error) from error

    def _check(self, first: bytes, identity: dict[str, Any]) -> None:
        head = _parsed(first)
        if not isinstance(head, dict) or head.get("format") != _FORMAT["format"]:
            raise FileError(
                f"{str(self.path)!r} was not written by avem.bootstrap, and is left as it is. "
                "Choose another path."
            )
        if head.get("version") != _FORMAT["version"]:
            raise FileError(
                f"{str(self.path)!r} has format version {head.get('version')}; this avem writes "
                f"version {_FORMAT['version']}. Choose another path."
            )
        if head.get("fit") != identity["fit"]:
            raise FileError(
                f"{str(self.path)!r} holds the bootstrap of another fit, or of other settings: "
                f"{_words(head)}; this one is {_words(identity)}. Choose another path, or delete "
                "the file to start anew."
            )

    def _cannot(self, do: str, error: OSError) -> FileError:
        return FileError(f"Cannot {do} {str(self.path)!r}: {error.strerror or error}.")


def _words(head: dict[str, Any]) -> str:
    size = head.get("n_states", head.get("n_latent"))
    return (
        f"{head.get('model')!r} with {size} states on {head.get('n_rows')} rows, "
        f"seed {head.get('seed')}"
    )


def _line(record: dict[str, Any]) -> bytes:
    return json.dumps(record, default=np.ndarray.tolist).encode("ascii") + b"\n"


def _parsed(line: bytes) -> Any:
    try:
        return json.loads(line)
    except ValueError:  # what is no JSON is nothing of ours
        return None


def _replicate(line: bytes, like: Params) -> Replicate | None:
    """The replicate of a line; None where the line is damaged, so that it is made again."""
    record = _parsed(line)
    try:
        params = record["params"]
        if params is not None:
            params = {
                name: np.array(params[name], float).reshape(value.shape)
                for name, value in like.items()
            }
        return Replicate(**{**record, "params": params})
    except (KeyError, TypeError, ValueError):
        return None
