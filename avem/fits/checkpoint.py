"""A fit that can be gone on with: its parameters in a file, written every few iterations."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from avem.components.param_info import Params
from avem.data.writing import need_file, replacing
from avem.errors import FileError
from avem.inference.progress import Callback, Iteration
from avem.inference.stages import Guess

_EVERY = 5
"""Iterations, or fewer where these take long."""
_SECONDS = 30.0
_IDENTITY, _STAGE = "identity", "stage"


class Checkpoint:
    """Where a fit is, in a file that is there whole or not at all."""

    def __init__(self, path: str | PathLike[str], model: Any, panel: Any, options: Any) -> None:
        need_file(path, " to write the checkpoint in")
        self._path, self._written = Path(path), time.monotonic()
        told = {
            "model": repr(model.spec.options) + model.spec.text + str(model.size),
            "rows": [panel.n_rows, panel.n_subjects, panel.n_lanes],
            "options": [repr(options.method), repr(options.refinement), options.plain],
        }
        self._identity = json.dumps(told)

    def resumed(self, model: Any, guess: Guess) -> Guess:
        """Where to go on, or where to begin if there is nothing to go on from."""
        if not self._path.exists():
            return guess
        found, stage = self._read()
        params = model.check_params({**found, **guess.params}, "checkpoint")
        return Guess(params, None, stage == "refine")

    def _read(self) -> tuple[Params, str]:
        try:
            with np.load(self._path, allow_pickle=False) as file:
                arrays = {name: file[name] for name in file.files}
            identity, stage = str(arrays.pop(_IDENTITY)), str(arrays.pop(_STAGE))
        except (OSError, ValueError, KeyError) as error:
            raise FileError(
                f"The checkpoint {str(self._path)!r} is damaged, or none: {error}. Remove it to "
                "begin anew."
            ) from error
        if identity != self._identity:
            raise FileError(
                f"The checkpoint {str(self._path)!r} is of another model, other data or other "
                "options. Remove it, or choose another name."
            )
        return arrays, stage

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
        own: Callable[..., None] = np.savez
        with replacing(self._path) as file:
            about = {_IDENTITY: np.array(self._identity), _STAGE: np.array(iteration.stage)}
            own(file, **about, **iteration.params)

    def done(self) -> None:
        """The fit has ended: there is nothing to go on with."""
        self._path.unlink(missing_ok=True)
