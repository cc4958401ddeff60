"""The terms of a formula's side: what + - * / : and ** make of its columns, as in R."""

import re
from collections.abc import Iterable
from itertools import combinations, product
from math import comb
from typing import NamedTuple, NoReturn

from avem.data.tokens import Token, join
from avem.errors import ModelError

Term = tuple[str, ...]
"""The labels of the columns that are multiplied; () is the intercept."""

_MAX_TERMS = 1000  # beyond is a mistake, or meant to take minutes
_MAX_WAYS = 9
_MAX_DEPTH = 100
_POWERS = ("2", "3", "4", "5", "6")
_SHIELDED = re.compile(r"^I\((\w+)\)$")


class _Sum(NamedTuple):
    """Terms in the order in which they were written, and what was said of the intercept."""

    terms: dict[frozenset[str], Term]
    intercept: bool | None = None
    """True after a 1, False after a 0, None when nothing was said."""


def expand(tokens: list[Token], side: str) -> tuple[Term, ...]:
    """Return the terms of a side, the intercept first; every column is a quoted token.

    The intercept is implied: only 0 or -1 takes it away. x:z and z:x are one term.
    """
    reader = _Reader(tokens, side)
    found = reader.total()
    if reader.next() is not None:
        reader.refuse_missing()
    first = [()] if found.intercept is not False else []
    return (*first, *found.terms.values())


class _Reader:
    """Reads tokens from left to right; each method reads one kind of expression."""

    def __init__(self, tokens: list[Token], side: str):
        self.tokens, self.side, self.at, self.depth = tokens, side, 0, 0

    def next(self) -> Token | None:
        return self.tokens[self.at] if self.at < len(self.tokens) else None

    def take(self, *texts: str) -> str | None:
        """The next token if it is one of these operators."""
        token = self.next()
        if token is None or not token.is_op(*texts):
            return None
        self.at += 1
        return token.text

    def text_from(self, start: int) -> str:
        return join([Token("name", token.text) for token in self.tokens[start : self.at]])

    def refuse_missing(self) -> NoReturn:
        token = self.next()
        where = f"before '{token}'" if token else "at the end"
        raise ModelError(f"A term is missing {where} of {self.side!r}. For only an intercept: ~ 1.")

    def sign(self) -> str | None:
        found = self.take("+", "-")
        return self.take("-") or found if found == "+" else found  # "x + -1" is "x - 1"

    def total(self) -> _Sum:
        found, sign = _Sum({}), self.sign() or "+"
        while sign is not None:
            start = self.at
            part = self.product()
            found = self.added(found, part) if sign == "+" else self.without(found, part, start)
            sign = self.sign()
        return found

    def product(self) -> _Sum:
        start, found = self.at, self.interaction()
        while op := self.take("*", "/"):
            other = self.interaction()
            self.check_factors(found, other, start)
            if op == "*":
                both = self.crossed(found.terms, other.terms)
                found = _Sum(_union(found.terms, other.terms, both))
            else:
                above = _merged(found.terms.values())
                below = self.crossed({frozenset(above): above}, other.terms)
                found = _Sum(_union(found.terms, below))
        return found

    def interaction(self) -> _Sum:
        start, found = self.at, self.power()
        while self.take(":"):
            other = self.power()
            self.check_factors(found, other, start)
            found = _Sum(self.crossed(found.terms, other.terms))
        return found

    def power(self) -> _Sum:
        start, found = self.at, self.primary()
        shown = self.text_from(start)
        if not self.take("**"):
            return found
        token = self.next()
        terms = list(found.terms.values())
        if token is None or token.kind != "number" or token.text not in _POWERS:
            raise ModelError(
                f"The power of '{shown}' in {self.side!r} is '{token or ''}'; a whole number from "
                f"2 to 6 is wanted. For arithmetic {_arithmetic(terms, '2')}."
            )
        self.at += 1
        if len(terms) < 2 or found.intercept is not None:
            raise ModelError(
                f"'**' in {self.side!r} would mean interactions, as in (x + z) ** 2, and '{shown}' "
                f"has none. For a power {_arithmetic(terms, token.text)}."
            )
        if self.take("**"):
            raise ModelError(f"Two powers follow each other in {self.side!r}; one is wanted.")
        orders = range(2, int(token.text) + 1)
        self.check_number(len(terms) + sum(comb(len(terms), n) for n in orders))
        made = dict(found.terms)
        for several in (some for n in orders for some in combinations(terms, n)):
            self.add_product(made, several)
        return _Sum(made)

    def primary(self) -> _Sum:
        token = self.next()
        if self.take("("):
            self.depth += 1
            if self.depth > _MAX_DEPTH:
                raise ModelError(f"The parentheses of {self.side[:60]!r}... are nested too deeply.")
            found = self.total()
            if not self.take(")"):
                self.refuse_missing()
            self.depth -= 1
            return found
        if token is None or token.kind == "op":
            self.refuse_missing()
        self.at += 1
        if token.kind == "number":
            if token.text not in ("0", "1"):
                raise ModelError(
                    f"The number {token.text[:40]} in {self.side!r} stands outside a function. "
                    "Write arithmetic inside I(), as in I(x / 2)."
                )
            return _Sum({}, token.text == "1")
        return _Sum({frozenset([token.text]): (token.text,)})

    def added(self, found: _Sum, part: _Sum) -> _Sum:
        if found.intercept is False and part.intercept:
            raise ModelError(
                f"{self.side!r} takes the intercept away and adds it again. Keep one of 0 and 1."
            )
        said = found.intercept if part.intercept is None else part.intercept
        return _Sum(_union(found.terms, part.terms), said)

    def without(self, found: _Sum, part: _Sum, start: int) -> _Sum:
        shown = self.text_from(start)
        if part.intercept is False:
            raise ModelError(
                f"'- {shown}' in {self.side!r} takes nothing away. Write 0 for no intercept, 1 for "
                "one."
            )
        absent = [":".join(term) for key, term in part.terms.items() if key not in found.terms]
        if absent:
            raise ModelError(
                f"'- {shown}' in {self.side!r} takes away {absent[0]!r}, which is not there. For "
                "arithmetic write it inside I(), as in I(x - z)."
            )
        kept = {key: term for key, term in found.terms.items() if key not in part.terms}
        return _Sum(kept, False if part.intercept else found.intercept)

    def check_factors(self, one: _Sum, other: _Sum, start: int) -> None:
        """Raise unless the two can be multiplied."""
        if one.intercept is not None or other.intercept is not None:
            raise ModelError(
                f"0 or 1 is multiplied in '{self.text_from(start)}' of {self.side!r}. The "
                "intercept is a term of its own, as in 0 + x * z; write arithmetic inside I(), as "
                "in I(1 / x)."
            )
        if len(one.terms) == 1 and one.terms.keys() == other.terms.keys():
            (term,) = one.terms.values()
            raise ModelError(
                f"'{self.text_from(start)}' in {self.side!r} would only be {':'.join(term)!r} "
                f"itself. For the square {_arithmetic([term], '2')}."
            )

    def check_number(self, n_terms: int) -> None:
        if n_terms > _MAX_TERMS:
            raise ModelError(
                f"{self.side!r} multiplies too many terms: it would have {n_terms:,}, and at most "
                f"{_MAX_TERMS:,} fit. Leave some out, or compute the products as columns first."
            )

    def crossed(
        self, one: dict[frozenset[str], Term], other: dict[frozenset[str], Term]
    ) -> dict[frozenset[str], Term]:
        """Every term of the one times every term of the other."""
        self.check_number(len(one) * len(other))
        found: dict[frozenset[str], Term] = {}
        for pair in product(one.values(), other.values()):
            self.add_product(found, pair)
        return found

    def add_product(self, found: dict[frozenset[str], Term], terms: Iterable[Term]) -> None:
        """Add the term in which these are multiplied."""
        term = _merged(terms)
        if len(term) > _MAX_WAYS:
            raise ModelError(
                f"{self.side!r} multiplies too many columns with each other: at most {_MAX_WAYS} "
                "are possible. Compute the product as a column first."
            )
        found.setdefault(frozenset(term), term)


def _union(*parts: dict[frozenset[str], Term]) -> dict[frozenset[str], Term]:
    """All terms, each as it was first written."""
    found: dict[frozenset[str], Term] = {}
    for part in parts:
        for key, term in part.items():
            found.setdefault(key, term)
    return found


def _merged(terms: Iterable[Term]) -> Term:
    return tuple(dict.fromkeys(label for term in terms for label in term))


def _arithmetic(terms: list[Term], power: str) -> str:
    """What to write for a power of columns."""
    labels = terms[0] if len(terms) == 1 else ("x",)
    if any(label.startswith("C(") for label in labels):
        return "of a categorical column there is nothing to write"
    names = [_SHIELDED.sub(r"\1", label) for label in labels]
    names = [name if name.isidentifier() or "(" in name else f"`{name}`" for name in names]
    base = " * ".join(names)
    return f"write I({base if len(names) == 1 else f'({base})'} ** {power})"
