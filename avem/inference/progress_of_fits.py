"""Watching several fits, one after the other: a line for each, and Ctrl-C that keeps the rest."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from avem.errors import AvemError, AvemWarning
from avem.inference.display import Interruptible, say
from avem.inference.stop import Stop


class Rounds(Interruptible):
    """Watches several fits from the outside; tell it of each one.

    After two seconds it writes a line for each to stderr. The fits have watches of their own: a
    Ctrl-C ends the one at hand, and this one sees it by how that ended. A Ctrl-C between fits ends
    the round after the work at hand.
    """

    def __init__(self, show: bool | None) -> None:
        super().__init__(show, 1)

    def ended(self, stop: Stop) -> bool:
        """A fit ended like this; whether the user has asked to stop."""
        self.to_keep = True
        self.interrupted |= stop is Stop.INTERRUPTED
        return self.interrupted

    def tell(self, line: str) -> None:
        """Show a line about a fit that is done, if it is time to."""
        self.to_keep = True
        if self.is_due():
            say(line)


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
