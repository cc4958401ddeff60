"""The columns of terms: which levels of a factor get an indicator, so that none is redundant."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations, product
from math import prod
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from avem.data.terms import Term
from avem.errors import ModelError

_MAX_COLUMNS = 5000  # beyond is a mistake, or meant to exhaust the memory
_MAX_CHARACTERS = 10_000_000


class Column(NamedTuple):
    """One column of a design: a product of covariates and of indicators of levels."""

    term: str
    """Of which columns, unmistakably; with the label it fixes the values."""
    label: str
    factors: tuple[tuple[str, int | None], ...]
    """What is multiplied: a label, and the number of the level, or of the column of a basis, or
    None for a covariate itself."""

    @property
    def key(self) -> tuple[str, str]:
        """What fixes the values."""
        return self.term, self.label

    def values(self, ready: Mapping[str, np.ndarray], n_rows: int) -> np.ndarray:
        """Return (rows,) of covariates' values and of the numbers of the rows' levels."""
        found = np.ones(n_rows if len(self.factors) != 1 else 1)
        for label, number in self.factors:
            values = ready[label]
            if number is not None:
                values = values[:, number] if values.ndim == 2 else values == number
            found = found * values
        return found


def columns_of(
    terms: Sequence[Term],
    keys: Mapping[str, str],
    levels: Mapping[str, Sequence[Any]],
    side: str,
    widths: Mapping[str, int] | None = None,
) -> list[Column]:
    """Return the columns of the terms in their order.

    Parameters
    ----------
    terms
        Of one side of a formula.
    keys
        For each label of the terms, what no other column is called.
    levels
        The levels of every label that is categorical.
    side
        What to call it in an error.
    widths
        How many columns every label makes that is a basis.
    """
    widths = widths or {}
    _check_size(terms, levels, side, widths)
    # As pandas keeps them: whole and decimal numbers among each other are all decimal.
    shown = {label: pd.Index(own).tolist() for label, own in levels.items()}
    found = []
    for parts, full in _codings(terms, levels.keys()):
        name = ":".join(keys[label] for label in parts) or "1"
        choices: list[Sequence[tuple[str, str, int | None]]] = []
        for label in parts:
            if label in widths:
                choices.append([(f"{label}[{i + 1}]", label, i) for i in range(widths[label])])
                continue
            if label not in shown:
                choices.append([(label, label, None)])
                continue
            names = [(f"{label}[{level}]", label, i) for i, level in enumerate(shown[label])]
            choices.append(names if label in full else names[1:])
        for chosen in product(*choices):
            label = ":".join(text for text, *_ in chosen) or "Intercept"
            found.append(Column(name, label, tuple((which, i) for _, which, i in chosen)))
    _check_names(found, side)
    return found


def _check_size(
    terms: Sequence[Term],
    levels: Mapping[str, Sequence[Any]],
    side: str,
    bases: Mapping[str, int],
) -> None:
    """Raise before anything is built that would be too much."""
    sizes = {label: len(own) for label, own in levels.items()} | dict(bases)
    widths = {
        label: len(label) + max(len(str(level)) for level in own) for label, own in levels.items()
    }
    n_columns = n_characters = 0
    for term in terms:
        n = prod(sizes.get(label, 1) for label in term)
        n_columns += n
        n_characters += n * sum(widths.get(label, len(label)) for label in term)
    check_number(n_columns, side)
    if n_characters > _MAX_CHARACTERS:
        raise ModelError(
            f"The names of the columns of {side!r} would have {n_characters:,} characters; at most "
            f"{_MAX_CHARACTERS:,} fit. Give the levels shorter names."
        )


def check_number(n_columns: int, side: str) -> None:
    """Raise if these are more columns than a formula may have."""
    if n_columns > _MAX_COLUMNS:
        raise ModelError(
            f"{side!r} would have {n_columns:,} columns, one for every combination of levels; at "
            f"most {_MAX_COLUMNS:,} fit. Leave out a product of factors, or join some levels."
        )


def _check_names(columns: list[Column], side: str) -> None:
    seen: dict[str, str] = {}
    for column in columns:
        if seen.setdefault(column.label, column.term) != column.term or (
            column.label == "Intercept" and column.factors
        ):
            raise ModelError(
                f"Two terms of {side!r} have the same name, {column.label!r}. Rename a column."
            )


def _codings(terms: Sequence[Term], factors: Iterable[str]) -> list[tuple[Term, frozenset[str]]]:
    """Return (what is multiplied, which factors have all their levels), one or more for each term.

    A factor that is not in full has no indicator of its first level. Terms with the same numeric
    columns share one space; what smaller terms already span is left out, as in patsy.
    """
    known = set(factors)
    spanned: dict[frozenset[str], set[frozenset[str]]] = {}
    found: dict[Term, list[tuple[Term, frozenset[str]]]] = {}
    for term in sorted(terms, key=lambda term: len(known.intersection(term))):
        own = [label for label in term if label in known]
        numeric = tuple(label for label in term if label not in known)
        before = spanned.setdefault(frozenset(numeric), set())
        subsets = [frozenset(some) for n in range(len(own) + 1) for some in combinations(own, n)]
        fresh = [some for some in subsets if some not in before]
        before.update(fresh)
        found[term] = []
        for coding in _absorbed([frozenset((label, False) for label in some) for some in fresh]):
            used = {label for label, _ in coding}
            parts = term if used == set(own) else (*(x for x in own if x in used), *numeric)
            found[term].append((parts, frozenset(label for label, full in coding if full)))
    return [coding for term in terms for coding in found[term]]


def _absorbed(codings: list[frozenset[tuple[str, bool]]]) -> list[frozenset[tuple[str, bool]]]:
    """Join two codings that differ by one factor into one with that factor in full."""
    short = 0
    while short < len(codings):
        small = codings[short]
        for long in range(short + 1, len(codings)):
            if len(codings[long]) == len(small) + 1 and small < codings[long]:
                ((extra, _),) = codings[long] - small
                codings[long] = small | {(extra, True)}
                del codings[short]
                short = 0
                break
        else:
            short += 1
    return codings
