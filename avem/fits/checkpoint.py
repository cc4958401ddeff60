"""A fit that can be gone on with: its parameters in a file, written every few iterations."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from pandas.util import hash_pandas_object

from avem.components.param_info import Params
from avem.data.writing import need_file, replacing
from avem.errors import FileError
from avem.fits.io.archive import Archive, npy, write_archive
from avem.fits.io.possible import check_params
from avem.fits.io.saving import param_member, reading
from avem.inference.progress import Callback, Iteration
from avem.inference.stages import Guess

_EVERY = 5
"""Iterations, or fewer where these take long."""
_SECONDS = 30.0
_JSON = "checkpoint.json"


class Checkpoint:
    """Where a fit is, in a file that is there whole or not at all."""

    def __init__(self, path: str | PathLike[str], model: Any, panel: Any, options: Any) -> None:
        need_file(path, " to write the checkpoint in")
        self._path, self._written = Path(path), time.monotonic()
        told = {
            "model": repr(model.spec.options) + model.spec.text + str(model.size),
            "rows": [panel.n_rows, panel.n_subjects, panel.n_lanes],
            "outcomes": _digest(panel, model.outcomes),
            "options": [repr(options.method), repr(options.refinement), options.plain],
        }
        self._identity, self._model = json.dumps(told), model

    def resumed(self, model: Any, guess: Guess) -> Guess:
        """Where to go on, or where to begin if there is nothing to go on from."""
        if not self._path.exists():
            return guess
        try:
            found, stage = reading(self._path, self._read)
        except FileError as error:
            said = f"The checkpoint cannot be used: {error} Remove it to begin anew."
            raise FileError(said) from error
        params = model.check_params({**found, **guess.params}, "checkpoint")
        return Guess(params, None, stage == "refine")

    def _read(self, archive: Archive) -> tuple[Params, str]:
        about = archive.json(_JSON)
        if not (isinstance(about, dict) and about.get("identity") == self._identity):
            raise FileError("it is of another model, other data or other options.")
        params = {
            name: archive.numbers(param_member(name), info.shape)
            for name, info in self._model.param_info().items()
        }
        check_params(params, self._model)
        return params, str(about.get("stage"))

    def watching(self, callback: Callback | None) -> Callback:
        """The user's callback, with a file written every few iterations."""

        def told(iteration: Iteration) -> Any:
            now = time.monotonic()
            if iteration.number % _EVERY == 0 or now - self._written > _SECONDS:
                self._write(iteration)
                self._written = now
            return None if callback is None else callback(iteration)

        return told

    def _write(self, iteration: Iteration) -> None:
        about = {"identity": self._identity, "stage": iteration.stage}
        members = {
            param_member(name): npy(np.asarray(value, dtype="<f8"))
            for name, value in iteration.params.items()
        }
        with replacing(self._path) as file:
            write_archive(file, {_JSON: json.dumps(about).encode("ascii"), **members})

    def done(self) -> None:
        """The fit has ended: there is nothing to go on with."""
        self._path.unlink(missing_ok=True)


def _digest(panel: Any, names: Sequence[str]) -> list[int]:
    """A number for each column, which another value in any row makes another one."""
    hashes: Any = hash_pandas_object
    sums = [
        [hashes(part, index=False).sum() for part in panel.column_parts(name)] for name in names
    ]
    return [int(np.array(of_parts, np.uint64).sum()) for of_parts in sums]
