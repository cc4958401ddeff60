"""The panel's columns as a design reads them: outcomes, covariates, levels and moments."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from avem.data.expressions import Atom, evaluate
from avem.data.frames import column, examples, numbers
from avem.data.panel import Panel
from avem.errors import DataError
from avem.numerics.rounding import exact_sum
from avem.numerics.rows import largest

MAX_LEVELS = 1000
"""A column with more is an identifier, not a covariate."""
ColumnParts = Callable[[], Iterable[pd.Series]]
"""Every call goes through a column, part by part."""
LARGEST = 1e75
"""Units beyond this, or below its inverse, overflow: a slope's variance is (y / x) squared."""


def learn_levels(values: pd.Series, label: str) -> list[Any]:
    """Return the levels that occur, as plain Python values, in the order of their columns."""
    what = f"The covariate {label!r}"
    levels = _plain_values(values, what, " Convert dates to numbers first.")
    if not 2 <= len(levels) <= MAX_LEVELS:
        raise DataError(
            f"The categorical covariate {label!r} has {len(levels)} level(s); from 2 to "
            f"{MAX_LEVELS} are wanted. Drop it from the formula."
        )
    if isinstance(values.dtype, pd.CategoricalDtype) and values.dtype.ordered:
        return _in_category_order(values.dtype, levels)
    return _sorted(levels, what)


def is_levels(levels: Any) -> bool:
    """Whether these can be what `learn_levels` returned."""
    plain = (
        isinstance(levels, list)
        and 2 <= len(levels) <= MAX_LEVELS
        and all(isinstance(level, str | int | float) and level == level for level in levels)
    )
    return plain and len(set(levels)) == len(levels)


def _plain_values(values: pd.Series, what: str, advice: str = "") -> list[Any]:
    """Return the different values as plain Python ones, or say that they cannot be levels."""
    try:
        found = values.dropna().unique()
    except TypeError:  # lists and the like
        found = [None]
    levels = [level.item() if isinstance(level, np.generic) else level for level in found]
    if not all(isinstance(level, str | int | float) for level in levels):
        raise DataError(
            f"{what} is {values.dtype}; numbers, booleans, text or categories are wanted.{advice}"
        )
    return levels


def _in_category_order(dtype: pd.CategoricalDtype, levels: list[Any]) -> list[Any]:
    return [level for level in dtype.categories.tolist() if level in set(levels)]


def _sorted(levels: list[Any], what: str) -> list[Any]:
    try:
        return sorted(levels)
    except TypeError:
        raise DataError(f"{what} mixes numbers and text. Make it one.") from None


def learn_moments(parts: ColumnParts, function: str, label: str) -> list[float]:
    """Return [mean, divisor] of a column that comes part by part, where it is known."""
    known, n, size = _finite(parts, label), 0, 0.0
    for x in known():
        n, size = n + len(x), max(size, largest(x))
    if not n:
        raise DataError(f"The column of {label} has no values.")
    # A power of 2, which rounds nothing: so that no sum and no square overflows.
    unit = 2.0 ** (int(np.frexp(size)[1]) - 1)
    mean = exact_sum(x / unit for x in known()) / n
    sd = float(np.sqrt(exact_sum((x / unit - mean) ** 2 for x in known()) / n))
    mean, sd = mean * unit, sd * unit
    if function == "center":
        return [mean, 1.0]
    if sd <= 1e-12 * max(abs(mean), np.finfo(float).tiny):  # rounding leaves a constant some sd
        raise DataError(f"The column of {label} is constant, so it cannot be scaled. Drop it.")
    return [mean, sd]


def learn_basis(parts: ColumnParts, atom: Atom) -> list[float]:
    """Return what the basis of an atom needs of a column, which comes part by part."""
    assert atom.basis is not None
    return atom.basis.learn(_finite(parts, atom.label), atom.label)


def _finite(parts: ColumnParts, label: str) -> Callable[[], Iterator[np.ndarray]]:
    def finite() -> Iterator[np.ndarray]:
        arrays = (_numeric(part, label) for part in parts())
        return (array[np.isfinite(array)] for array in arrays)

    return finite


def _numeric(values: pd.Series, use: str) -> np.ndarray:
    array = numbers(values)
    if array is None:
        raise DataError(
            f"Column {values.name!r} is {values.dtype}, but {use} needs numbers. "
            f"Use the column on its own or as C({values.name}) if it is categorical."
        )
    return array


def outcome_values(
    panel: Panel, name: str, use: str = "an outcome", infinite: bool = False
) -> np.ndarray:
    """Return (rows,) an outcome, NaN where missing; it may be `infinite`, or must not."""
    values = column(panel.table, name, use)
    array = numbers(values)
    if array is None:
        known = values.dropna().drop_duplicates().tolist()
        bad = [value for value in known if not _reads_as_number(value)]
        hint = "Convert the column first"
        if len(bad) == len(known) <= 20 and all(isinstance(value, str) for value in known):
            family = "bernoulli" if len(known) == 2 else "categorical"
            hint = f"MixedHMM takes labels with family={family!r}. Or convert the column first"
        raise DataError(
            f"The outcome {name!r} is {values.dtype}; numbers or booleans are wanted. Not numbers: "
            f"{examples(bad or known)}. {hint}; for decimal commas read the file with "
            "decimal=',', for missing codes with na_values."
        )
    if largest(array) > LARGEST:
        if np.isinf(array).any() and not infinite:
            raise DataError(
                f"The outcome {name!r} is infinite at {panel.source.name_rows(np.isinf(array))}. "
                "Use a missing value where there is no measurement."
            )
        refuse_beyond(array[~np.isinf(array)], f"Outcome {name!r}")
    return array


def refuse_beyond(values: np.ndarray, what: str, limit: float = LARGEST) -> None:
    """Raise where numbers are too large to compute with."""
    size = largest(values)
    if size > limit:
        raise DataError(
            f"{what} reaches {size:g}, beyond what double precision can square. Change its unit."
        )


def outcome_labels(panel: Panel, name: str, ordered: bool = False) -> list[Any]:
    """Return the different values of an outcome, as plain Python values, in order.

    Where the order matters, words must have one: that of an ordered categorical.
    """
    values, what = column(panel.table, name, "an outcome"), f"The outcome {name!r}"
    levels = _plain_values(values, what)
    dtype: Any = values.dtype
    categorical = isinstance(dtype, pd.CategoricalDtype)
    in_order = categorical and dtype.ordered
    if ordered and not in_order and any(isinstance(level, str) for level in levels):
        raise DataError(
            f"{what} has the levels {examples(levels)}, and nothing says which is higher. Give "
            "their order, lowest first, as in avem.Ordinal(levels=('low', 'middle', 'high')), or "
            "make the column an ordered categorical."
        )
    if in_order or (categorical and not ordered):
        return _in_category_order(dtype, levels)
    return _sorted(levels, what)


def outcome_codes(panel: Panel, name: str, levels: Sequence[Any]) -> np.ndarray:
    """Return (rows,) the number of each row's level, NaN where missing."""
    unknown = f"The outcome {name!r} has values that the model does not know"
    codes = _level_codes(column(panel.table, name, "an outcome"), levels, unknown)
    return np.where(codes < 0, np.nan, codes)


def atom_values(
    atom: Atom, panel: Panel, state: Mapping[str, Any], needed: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return an atom's values with every gap filled by something harmless, and where gaps were.

    The values of a categorical one are the numbers of its levels; a basis has (rows, columns).
    """
    table, levels = panel.table, state["levels"].get(atom.label)
    use = "a covariate" if atom.tree is None else atom.label
    series = {name: column(table, name, use) for name in atom.columns}
    if levels is not None:
        (values,) = series.values()
        unknown = f"The covariate {atom.label!r} has levels that the design does not know"
        codes = _level_codes(values, levels, unknown)
        gap = codes < 0
        _refuse_gaps(panel, str(values.name), "missing", gap & needed)
        return np.where(gap, 0, codes), gap
    data = {name: _numeric(values, use) for name, values in series.items()}
    gap = np.zeros(panel.n_rows, dtype=bool)
    for name, array in data.items():
        if name in atom.lagged:
            continue
        _refuse_gaps(panel, name, "missing", np.isnan(array) & needed)
        _refuse_gaps(panel, name, "infinite", np.isinf(array) & needed)
        gap |= ~np.isfinite(array)
    if atom.tree is None:
        return np.where(gap, 0.0, data[atom.label]), gap
    if (basis := atom.basis) is not None:
        ((name, x),) = data.items()
        learned = state["bases"][atom.label]
        outside = ~gap & basis.outside(x, learned)
        if (outside & needed).any():
            raise DataError(
                f"{atom.label} was learned from {name} between {learned[0]:g} and {learned[1]:g}; "
                f"it is beyond at {panel.source.name_rows(outside & needed)}, where a spline says "
                "nothing. Leave these rows out, or use poly()."
            )
        gap = gap | outside
        return np.where(gap[:, None], 0.0, basis.values(x, learned)), gap
    with np.errstate(all="ignore"):
        result = evaluate(atom.tree, atom, data, state["moments"], panel.lag)
    array = np.broadcast_to(np.asarray(result, dtype=np.float64), (panel.n_rows,))
    gap = gap | ~np.isfinite(array)
    if atom.lagged:  # the caller knows what to do where there is nothing to look back to
        return np.where(gap, 0.0, array), gap
    _refuse_gaps(panel, atom.label, "not a finite number", gap & needed)
    return np.where(gap, 0.0, array), gap


def _level_codes(values: pd.Series, levels: Sequence[Any], unknown: str) -> np.ndarray:
    """Return (rows,) the number of each row's level, -1 where missing; or say what is `unknown`."""
    codes, found = pd.factorize(values)
    number = {level: i for i, level in enumerate(levels)}
    unseen = [level for level in found.tolist() if level not in number]
    if unseen:
        raise DataError(f"{unknown}: {examples(unseen)}. It knows {examples(levels)}.")
    # The extra entry at the end is what code -1, missing, picks up.
    return np.array([*(number[level] for level in found.tolist()), -1])[codes]


def _refuse_gaps(panel: Panel, name: str, what: str, gap: np.ndarray) -> None:
    if gap.any():
        raise DataError(
            f"The covariate {name!r} is {what} at {panel.source.name_rows(gap)}, where it is "
            "needed. Fill it in, or drop it from the formula. (On transitions it is needed in "
            "all rows, on an outcome only where that is observed.)"
        )


def _reads_as_number(value: object) -> bool:
    try:
        float(str(value))
    except ValueError:
        return False
    return True
