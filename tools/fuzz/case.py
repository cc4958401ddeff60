"""What is tried, and what came of it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

REFUSED, ANSWERED = "refused", "answered"
FINDINGS = (
    "crash",
    "hang",
    "memory",
    "foreign error",
    "foreign warning",
    "printed",
    "not finite",
    "wrong answer",
)


class Wrong(Exception):
    """An answer that is not the known one; the first argument is a word for the kind of it."""


class NotFinite(Exception):
    """NaN or an infinity where a number was asked for."""


@dataclass(frozen=True)
class Case:
    """A script in three parts: what is sound, edits that may do harm, and a question.

    An edit is one statement. Those that cannot be done are left out; warnings and errors count only
    in the question.
    """

    area: str
    number: int
    before: str
    edits: tuple[str, ...]
    after: str

    @property
    def script(self) -> str:
        """It can be run as it is."""
        return "\n".join([self.before, *self.edits, self.after]) + "\n"

    def with_edits(self, edits: list[str]) -> Case:
        """The same with other edits."""
        return replace(self, edits=tuple(edits))


class Verdict(NamedTuple):
    """What came of a case."""

    kind: str
    """`REFUSED` by one of avem's errors, `ANSWERED`, or one of `FINDINGS`."""
    place: str = ""
    """Of a finding: what it is known by, so that the same one is listed once."""
    words: str = ""
    edits: tuple[str, ...] | None = None
    """Those that could be done."""

    @property
    def is_finding(self) -> bool:
        """Whether someone has to look at it."""
        return self.kind in FINDINGS
