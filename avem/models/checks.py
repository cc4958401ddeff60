"""Can these data carry this model? Asked before anything is computed, answered in words."""

from __future__ import annotations

import numpy as np

from avem.data import Design, DesignData, Panel
from avem.errors import DataError, ModelError


def check_data(panel: Panel, design: Design, data: DesignData, n_states: int, n_noise: int) -> None:
    """Raise an error that says what is wrong and what to try, or return nothing."""
    observed = ~np.isnan(data.Y)
    _check_outcomes(design, data, observed)
    _check_times(panel, n_states)
    _check_terms(design, data, observed)
    if design.effect_terms:
        _check_effects(panel, design, data, observed)
    _check_states(data, observed, design, n_states, n_noise)


def _check_outcomes(design: Design, data: DesignData, observed: np.ndarray) -> None:
    for j, name in enumerate(design.outcomes):
        values = data.Y[observed[:, j], j]
        if len(values) == 0:
            raise DataError(f"Outcome {name!r} has no observed value. Leave it out of the formula.")
        spread = np.abs(values - values.mean()).max()
        if values.min() == values.max() or not spread > 1e-13 * np.abs(values).max():
            raise DataError(
                f"Outcome {name!r} is constant: all {len(values)} observed values are {values[0]:g}. "
                "It says nothing about states; leave it out of the formula."
            )
        if not np.isfinite(spread) or spread > 1e150 or spread < 1e-150:
            raise DataError(
                f"Outcome {name!r} spreads over {spread:g} units, beyond what double precision can "
                "square. Change its unit."
            )


def _check_times(panel: Panel, n_states: int) -> None:
    if n_states > 1 and panel.lane_length.max() < 2:
        label = panel.subjects[0]
        raise DataError(
            f"Every sequence has 1 time point (subject {label!r}, for one); transitions need at "
            "least 2. If the rows of a subject belong together, check subject= and sequence=."
        )


def _check_terms(design: Design, data: DesignData, observed: np.ndarray) -> None:
    x = data.A[observed.any(1)][:, list(design.x_cols)]
    dependent = _dependent_column(x)
    if dependent is not None:
        raise ModelError(
            f"The fixed term {design.terms[dependent]!r} is a combination of the terms before it "
            f"({', '.join(design.terms[:dependent]) or 'it is 0 everywhere'}), so its coefficient "
            "is not identified. Leave one of them out."
        )


def _dependent_column(x: np.ndarray) -> int | None:
    """The first column that the ones before it determine, or None."""
    size = np.abs(x).max(0, initial=0.0)
    if (size == 0).any():
        return int(np.argmax(size == 0))
    r = np.abs(np.diagonal(np.linalg.qr(x / size, mode="r")))
    if len(r) < x.shape[1]:
        return len(r)
    low = r < 1e-8 * np.sqrt(len(x))
    return int(np.argmax(low)) if low.any() else None


def _check_effects(
    panel: Panel, design: Design, data: DesignData, observed: np.ndarray
) -> None:
    if panel.n_subjects < 2:
        raise ModelError(
            f"There is 1 subject ({panel.subjects[0]!r} in column {panel.subject!r}); the spread of "
            "effects between subjects needs at least 2, better 10 or more. Drop the "
            f"(... | {panel.subject}) term and give subject={panel.subject!r} to fit()."
        )
    # Within-subject rank of the effect columns, from each subject's cross products.
    rows = observed.any(1)
    z = data.A[rows][:, list(design.z_cols)]
    size = np.abs(z).max(0, initial=0.0)
    z = z / np.where(size > 0, size, 1.0)
    subject = panel.row_subject[rows]
    e = z.shape[1]
    products = np.zeros((panel.n_subjects, e, e))
    for i in range(e):
        for j in range(e):
            products[:, i, j] = np.bincount(subject, z[:, i] * z[:, j], panel.n_subjects)
    n_rows = np.bincount(subject, minlength=panel.n_subjects)
    values = np.linalg.eigvalsh(products)
    full_rank = (values[:, 0] > 1e-9 * np.maximum(values[:, -1], 1e-300)) & (n_rows > e)
    if full_rank.sum() >= 2:
        return
    if (n_rows > e).sum() < 2:
        raise ModelError(
            f"Effects are not identified: {e} effect term(s) per outcome need subjects with more "
            f"than {e} observed rows, and {int((n_rows > e).sum())} subject(s) have that many. "
            "Use fewer effect terms, or none."
        )
    raise ModelError(
        f"Effects are not identified: within each subject the effect terms "
        f"{', '.join(design.effect_terms)} are proportional to each other or 0 (does a covariate "
        "never change within a subject?). Keep only (1 | subject), or terms that vary over time."
    )


def _check_states(
    data: DesignData, observed: np.ndarray, design: Design, n_states: int, n_noise: int
) -> None:
    n_cells = int(observed.sum())
    per_state = len(design.outcomes) * len(design.terms) + n_noise + n_states
    if n_cells < n_states * per_state:
        raise ModelError(
            f"{n_states} states have {n_states * per_state} parameters, and the data have {n_cells} "
            "observed values. Use fewer states or a simpler formula."
        )
    distinct = len(np.unique(np.nan_to_num(data.Y[observed.any(1)], nan=np.inf), axis=0))
    if distinct < n_states:
        raise ModelError(
            f"The outcomes take {distinct} distinct values, too few for {n_states} states. "
            f"Use at most {distinct} states."
        )
