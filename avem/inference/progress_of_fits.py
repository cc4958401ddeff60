"""Watching several fits, one after the other: a line for each, and Ctrl-C that keeps the rest."""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType

from avem.errors import AvemError, AvemWarning
from avem.inference.progress import QUIET_SECONDS, Watch, somebody_looks
from avem.inference.stop import Stop


class Rounds:
    """Watches several fits from the outside; tell it of each one.

    After two seconds it writes a line for each to stderr; `show` None means only where a person is
    looking. The fits have watches of their own: a Ctrl-C ends the one at hand, and this one sees it
    by how that ended. A Ctrl-C between fits ends the round after the work at hand.
    """

    def __init__(self, show: bool | None) -> None:
        self._show = somebody_looks() if show is None else show
        self._began = time.perf_counter()
        self._between = Watch(False, 1)
        self._stopped = False

    def __enter__(self) -> Rounds:
        self._between.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._between.__exit__(kind, error, trace)

    @property
    def interrupted(self) -> bool:
        """Whether the user has asked to stop."""
        return self._stopped or self._between.interrupted

    def ended(self, stop: Stop) -> bool:
        """A fit ended like this; whether the user has asked to stop."""
        self._stopped |= stop is Stop.INTERRUPTED
        return self.interrupted

    def tell(self, line: str) -> None:
        """Show a line, if it is time to."""
        if self._show and time.perf_counter() - self._began >= QUIET_SECONDS:
            print(line, file=sys.stderr, flush=True)


@contextmanager
def speaking_of(what: str, depth: int) -> Iterator[None]:
    """Errors and warnings of avem from inside begin with these words: one fit of several.

    Warnings point `depth` calls above the one that uses this: at the user's own line.
    """
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", AvemWarning)
        try:
            yield
        except AvemError as error:
            raise type(error)(f"{what}: {error}") from error
    for seen in caught:
        if issubclass(seen.category, AvemWarning):
            # This function and contextlib are two calls more.
            warnings.warn(f"{what}: {seen.message}", AvemWarning, stacklevel=3 + depth)
        else:
            warnings.warn_explicit(seen.message, seen.category, seen.filename, seen.lineno)
