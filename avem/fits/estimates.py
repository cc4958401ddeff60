"""The estimates of a fit, section by section, with what is known of their errors.

Every number of a section follows from the parameters, so its standard error comes from theirs by
the delta method: that of a coefficient is the one in `fit.standard_errors()`, and a standard
deviation or a probability at average covariates has one of its own.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from avem.components.param_info import Params, check_level
from avem.errors import AvemError, ModelError
from avem.fits.sections import Section
from avem.fits.uncertainty import (
    at_boundary,
    errors_are_cheap,
    intervals,
    parameter_delta,
    quantile,
    wald,
)
from avem.fits.words import ERRORS, check_word

if TYPE_CHECKING:
    from avem.fits.fit import Fit


class Cell(NamedTuple):
    """One number of a section."""

    where: tuple[str, ...]
    """Its levels, in the order of the section's axes."""
    estimate: float
    se: float = np.nan
    lower: float = np.nan
    upper: float = np.nan
    z: float = np.nan
    p: float = np.nan
    ratio: bool = False
    """exp of it is a ratio."""
    by_definition: bool = False
    """It is not estimated."""


class Estimates(NamedTuple):
    """One section, cell by cell, gaps left out."""

    section: Section
    cells: list[Cell]


class Told(NamedTuple):
    """All sections, and whether there are errors or why there are none."""

    parts: list[Estimates]
    level: float
    """Of the intervals; 0 where there are no errors."""
    why: str = ""
    errors: str = "observed"
    """Where they come from."""


def estimates(fit: Fit, errors: bool | str | None, level: float) -> Told:
    """All sections of a fit: with errors, without, or with them where they are cheap (None)."""
    check_level(level)
    sections = [section for section in fit._sections() if section.frame.size]
    word = "observed" if errors in (None, True) else errors
    wanted = errors_are_cheap(fit) if errors is None else bool(errors)
    if not wanted:
        why = "" if errors is not None else _left_out(fit)
        return Told([_cells(section, {}) for section in sections], 0.0, why)
    check_word("errors", word, ERRORS)
    try:
        known = _with_errors(fit, sections, str(word), level)
    except AvemError as error:
        if errors is not None:
            raise
        why = f"Standard errors could not be computed: {error}"
        return Told([_cells(section, {}) for section in sections], 0.0, why)
    pairs = zip(sections, known, strict=True)
    return Told([_cells(section, own) for section, own in pairs], level, errors=str(word))


def check_errors(errors: Any) -> bool | str | None:
    """What a user gave for `errors`, where True and False are words, too."""
    if errors is None or isinstance(errors, bool | np.bool_):
        return None if errors is None else bool(errors)
    if errors not in ERRORS:
        words = ", ".join(map(repr, ERRORS))
        raise ModelError(f"errors is {errors!r}; choose one of True, False, {words}.")
    return errors


def _left_out(fit: Fit) -> str:
    if fit.panel is None:
        return "Standard errors need the data: fit.with_data(frame)."
    return "Standard errors take a while here: summary(errors=True) computes them."


def _with_errors(
    fit: Fit, sections: Sequence[Section], errors: str, level: float
) -> list[dict[str, np.ndarray]]:
    """By section, se, lower, upper, z and p in the shape of its frame."""
    shapes = [section.frame.shape for section in sections]
    gaps = np.isnan(_numbers(sections))

    def numbers(params: Params) -> np.ndarray:
        return np.where(gaps, 0.0, _numbers(replace(fit, params=params)._sections()))

    estimate = numbers(fit.params)
    se, _ = parameter_delta(fit, numbers, fit._curvature, errors)
    scales = [np.broadcast_to(s.scale, s.frame.shape).ravel() for s in sections]
    scale = np.concatenate(scales).astype(object)
    lower, upper = intervals(estimate, quantile(fit, level) * se, scale)
    z, p = wald(fit, estimate, se)
    tested = np.concatenate([np.full(s.frame.size, s.tested) for s in sections])
    known = ~gaps & np.isfinite(se) & ~np.isnan(lower) & ~np.isnan(upper)
    known &= ~at_boundary(estimate, se, scale)
    columns = {
        "se": np.where(known, se, np.nan),
        "lower": np.where(known, lower, np.nan),
        "upper": np.where(known, upper, np.nan),
        "z": np.where(known & tested, z, np.nan),
        "p": np.where(known & tested, p, np.nan),
    }
    ends = np.cumsum([0, *(section.frame.size for section in sections)])
    return [
        {name: values[a:b].reshape(shape) for name, values in columns.items()}
        for a, b, shape in zip(ends[:-1], ends[1:], shapes, strict=True)
    ]


def _numbers(sections: Iterable[Section]) -> np.ndarray:
    return np.concatenate([section.frame.to_numpy(float).ravel() for section in sections])


def _cells(section: Section, known: dict[str, np.ndarray]) -> Estimates:
    """The cells in the order in which a list has them."""
    values = section.frame.to_numpy(float)
    n_rows, n_columns = values.shape
    places = [(i, j) for j in range(n_columns) for i in range(n_rows)]
    if section.rows_first:
        places.sort()
    cells = []
    for i, j in places:
        if np.isnan(values[i, j]):
            continue
        row, column = section.frame.index[i], str(section.frame.columns[j])
        rest = tuple(map(str, row)) if isinstance(row, tuple) else (str(row),)
        where = (*rest, column) if section.rows_first else (column, *rest)
        own = {name: float(array[i, j]) for name, array in known.items()}
        ratio = bool(section.ratio) and compares(where[-1], _terms(section, i))
        by_definition = section.reference == j
        cells.append(
            Cell(
                where,
                values[i, j],
                **own,
                ratio=ratio and not by_definition,
                by_definition=by_definition,
            )
        )
    return Estimates(section, cells)


def compares(term: str | None, formula: Collection[str | None]) -> bool:
    """Whether exp of a coefficient is a ratio, by its term and all terms of its formula.

    That of an intercept is none, nor that of a level in a formula without an intercept.
    """
    if term is None or term == "Intercept":
        return False
    return "[" not in term or "Intercept" in formula


def _terms(section: Section, row: int) -> list[str]:
    """The terms of the formula that a row belongs to."""
    if section.rows_first:
        return [str(column) for column in section.frame.columns]
    index = section.frame.index
    if index.nlevels == 1:
        return [str(label) for label in index]
    return [str(label[-1]) for label in index if label[0] == index[row][0]]
