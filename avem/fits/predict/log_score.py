"""How probable data are that a fit has not seen, given those that it has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from avem.data import Panel
from avem.data.folds import with_rows
from avem.data.join import joined
from avem.errors import DataError
from avem.fits.common import marginal_of_new, positions

if TYPE_CHECKING:
    from avem.fits.fit import Fit


class HeldOut(NamedTuple):
    """Per subject of a panel."""

    loglik: np.ndarray
    """log p(its values), given those known before."""
    n_values: np.ndarray
    """How many of its values that is of."""
    n_rows: np.ndarray
    """In how many rows."""


def held_out(fit: Fit, panel: Any, given: Panel | None = None) -> HeldOut:
    """Log p(all values of each subject), less that of those in `given`, the same subjects' data.

    At the fit's parameters, the effects integrated: p(all) / p(given) is the probability of the
    rest with the effects, and the states, as `given` tells them.
    """
    if not panel.in_memory:
        encoded = fit._encode(None if panel is fit.panel else panel)
        n_seen = encoded.n_seen[:, fit.model.outcome_columns].sum(1)
        loglik = marginal_of_new(fit, encoded).loglik + fit._jacobian(encoded)
        return HeldOut(loglik, n_seen.astype(np.int64), encoded.rows_seen.astype(np.int64))
    loglik, (n_values, n_rows) = fit.loglik(panel).by_subject, _count(fit.model, panel)
    if given is None:
        return HeldOut(loglik, n_values, n_rows)
    before = _count(fit.model, given)
    return HeldOut(loglik - fit.loglik(given).by_subject, n_values - before[0], n_rows - before[1])


def score(fit: Fit, data: Any = None) -> float:
    """Mean log predictive density of the observed rows of `data`; see `Fit.score`."""
    panel = fit._panel(data)
    if data is None:
        found, weights = held_out(fit, panel), panel.subject_weights
        if weights is not None:
            found = HeldOut(found.loglik * weights, found.n_values, found.n_rows * weights)
        return _per_row([found])
    known = positions(fit, panel)
    new = (known < 0)[panel.row_subject]
    parts = [held_out(fit, with_rows(panel, new))] if new.any() else []
    if not new.all():
        if fit.panel is None:
            who = panel.subjects[known >= 0].tolist()[0]
            raise DataError(
                f"Subject {who!r} is one of the fit's, and its rows are scored given those of the "
                "fit, which a file does not hold. Put them back, fit = fit.with_data(frame), or "
                "rename the subjects to score them as new ones."
            )
        of_fit = np.isin(fit.panel.row_subject, known[known >= 0])
        given = with_rows(fit.panel, of_fit)
        parts.append(
            held_out(fit, joined(given, with_rows(panel, ~new), fit.model.outcomes), given)
        )
    return _per_row(parts)


def _per_row(parts: list[HeldOut]) -> float:
    n_rows = sum(float(part.n_rows.sum()) for part in parts)
    if not n_rows:
        raise DataError("There is nothing to score: no row has an outcome that the model explains.")
    return sum(float(part.loglik.sum()) for part in parts) / n_rows


def _count(model: Any, panel: Panel) -> tuple[np.ndarray, np.ndarray]:
    """(subjects,) observed outcome values that the model explains, and rows with any."""
    seen = ~np.isnan(model.read(panel).Y)[:, model.outcome_columns]
    counts = (seen.sum(axis=1), seen.any(axis=1))
    values, rows = (np.bincount(panel.row_subject, n, panel.n_subjects) for n in counts)
    return values.astype(np.int64), rows.astype(np.int64)
