"""Whether what was given are fits, and of the same data, so that they can be compared."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd

from avem.data.frames import examples
from avem.errors import DataError, ModelError
from avem.fits.fit import Fit


def need_fits(given: Iterable[Any], who: str, wanted: str) -> None:
    """Raise unless all of them are fits: `who` got something else, and `wanted` ends the error."""
    for one in given:
        if not isinstance(one, Fit):
            raise ModelError(f"{who} got a {type(one).__name__}{wanted}")


def check_has_data(fit: Fit) -> None:
    """Raise unless the fit has its data."""
    if fit.panel is None:
        raise DataError(
            "A fit that was loaded from a file has no data, and so no likelihood. Put them "
            "back: fit.with_data(frame)."
        )


def check_same_data(first: Fit, second: Fit) -> None:
    """Raise unless two fits explain the same values of the same rows, in whatever order."""
    advice = "Fit both models to the same data."
    one, other = (pd.Index(fit.subjects) for fit in (first, second))
    apart = one.symmetric_difference(other, sort=False)
    if len(apart):
        raise DataError(
            f"The fits have {len(one)} and {len(other)} subjects; only one of them has "
            f"{examples(apart.tolist())}. {advice}"
        )
    if first.info.n_rows != second.info.n_rows:
        raise DataError(
            f"The fits have {first.info.n_rows:,} and {second.info.n_rows:,} rows. {advice}"
        )
    weights = [(fit.info.weights, fit.info.weights_kind) for fit in (first, second)]
    if weights[0] != weights[1]:
        raise DataError(
            f"The fits have different weights of subjects: {weights[0][0]!r} and "
            f"{weights[1][0]!r}. Give both the same weights=."
        )
    names, others = sorted(first.model.outcomes), sorted(second.model.outcomes)
    if names != others:
        raise DataError(
            f"The fits have the outcomes {', '.join(names)} and {', '.join(others)}. Likelihoods "
            f"of different outcomes cannot be compared. {advice}"
        )
    marks = [" and ".join(map(repr, fit.model.marks)) for fit in (first, second)]
    if marks[0] != marks[1]:
        raise DataError(
            f"What is known of the states of rows counts in the likelihood: one fit knows of it by "
            f"{marks[0] or 'nothing'}, the other by {marks[1] or 'nothing'}. Give both the same "
            "known= and event=."
        )
    if first.info.n_sequences != second.info.n_sequences:
        raise DataError(
            f"The fits have {first.info.n_sequences:,} and {second.info.n_sequences:,} sequences: "
            "their rows were put together differently. Give both the same time= and sequence=."
        )
    if _scanned_alike(first, second):
        return
    of_one, of_other = _values(first, one), _values(second, one)
    seen, other_seen = (int((~np.isnan(v[:, 2:])).sum()) for v in (of_one, of_other))
    if seen != other_seen:
        raise DataError(
            f"The fits explain {seen:,} and {other_seen:,} observed values. {advice} A lag() "
            "leaves out rows that have nothing to look back to: make them missing for both."
        )
    if not np.allclose(of_one, of_other, rtol=1e-12, atol=0, equal_nan=True):
        raise DataError(f"The observed values of the two fits differ. {advice}")


def _scanned_alike(first: Fit, second: Fit) -> bool:
    """Whether both are of one scan, and explain equally many of every subject's values."""
    panels: list[Any] = [first._panel(None), second._panel(None)]
    if any(panel.in_memory for panel in panels) or panels[0].folder != panels[1].folder:
        return False
    counts = [fit._own_data.n_seen[:, fit.model.outcome_columns] for fit in (first, second)]
    return np.array_equal(*(count.sum(1) for count in counts))


def check_same_measure(first: Fit, second: Fit) -> None:
    """Raise where one fit has probabilities of an outcome's values and the other a density."""
    kinds, others = _measures(first), _measures(second)
    for name in kinds.keys() & others.keys():
        if kinds[name] != others[name]:
            raise DataError(
                f"{name!r} has a {kinds[name]} in one fit and a {others[name]} in the other: their "
                "likelihoods are in different units, and cannot be compared."
            )


def _measures(fit: Fit) -> dict[str, str]:
    """By outcome, what its likelihood is; of a custom outcome, only its author knows."""
    found = dict.fromkeys(fit.model.outcomes, "density")  # as in all state-space models
    for part in fit.model.parts:
        family: Any = getattr(part, "family", None)
        if family is None:
            continue
        for name in part.outcomes:
            if family.emission == "custom":
                del found[name]
            else:
                found[name] = family.measure
    return found


def _values(fit: Fit, subjects: pd.Index) -> np.ndarray:
    """(rows, 2 + outcomes) subject, step and outcomes, in an order that only they decide."""
    panel, model = fit._panel(None), fit.model
    columns = [c for _, c in sorted(zip(model.outcomes, model.outcome_columns, strict=True))]
    y = model.read(panel).Y[:, columns]
    place = subjects.get_indexer(pd.Index(panel.subjects))[panel.row_subject]
    rows = np.column_stack([place, panel.row_step, y])
    return rows[np.lexsort(rows.T[::-1])]
