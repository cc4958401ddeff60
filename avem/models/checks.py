"""Can these data carry this model? Asked before anything is computed, answered in words."""

from __future__ import annotations

import numpy as np

from avem.data import Design, DesignData, Panel
from avem.errors import DataError, ModelError

_LARGEST = 1e75
"""Units beyond this, or below its inverse, overflow: a slope's variance is (y / x) squared."""


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
        largest = np.abs(values).max()
        spread = values.max() / 2 - values.min() / 2  # halved first: the difference may overflow
        if not spread > 1e-13 * largest:
            raise DataError(
                f"Outcome {name!r} is constant: all {len(values)} observed values are "
                f"{values[0]:g}. It says nothing about states; leave it out of the formula."
            )
        if largest > _LARGEST or spread < 1 / _LARGEST:
            raise DataError(
                f"Outcome {name!r} reaches {largest:g} and varies by {spread:g} around its middle, "
                "beyond what double precision can square. Change its unit."
            )


def _check_times(panel: Panel, n_states: int) -> None:
    if n_states > 1 and panel.lane_length.max() < 2:
        label = panel.subjects[0]
        raise DataError(
            f"Every sequence has 1 time point (subject {label!r}, for one); transitions need at "
            "least 2. If the rows of a subject belong together, check subject= and sequence=."
        )


def _check_terms(design: Design, data: DesignData, observed: np.ndarray) -> None:
    sizes = np.abs(data.A[observed.any(1)]).max(0, initial=0.0)
    for name, size in zip(design.columns, sizes, strict=True):
        if size > _LARGEST or 0 < size < 1 / _LARGEST:
            raise DataError(
                f"The covariate {name!r} reaches {size:g}, beyond what double precision can "
                "square. Change its unit."
            )
    # Each outcome has coefficients of its own, so each needs rows that tell its terms apart.
    for j, outcome in enumerate(design.outcomes):
        x = data.A[observed[:, j]][:, list(design.x_cols)]
        dependent = _dependent_column(x)
        if dependent is None:
            continue
        name, before = design.terms[dependent], ", ".join(design.terms[:dependent])
        where = f"where the outcome {outcome!r} is observed ({len(x)} row(s))"
        if not x[:, dependent].any():
            raise ModelError(f"The fixed term {name!r} is 0 {where}. Leave it out of the formula.")
        raise ModelError(
            f"The fixed term {name!r} is a combination of the terms before it ({before}) {where}, "
            "so its coefficient is not identified. Leave one of them out."
        )


def _dependent_column(x: np.ndarray) -> int | None:
    """The first column that the ones before it determine, or None."""
    size = np.abs(x).max(0, initial=0.0)
    if (size == 0).any():
        return int(np.argmax(size == 0))
    r = np.abs(np.diagonal(np.linalg.qr(x / size, mode="r")))
    low = r < 1e-8 * np.sqrt(len(x))
    if low.any():
        return int(np.argmax(low))
    return len(r) if len(r) < x.shape[1] else None


def _check_effects(panel: Panel, design: Design, data: DesignData, observed: np.ndarray) -> None:
    if panel.n_subjects < 2:
        raise ModelError(
            f"There is 1 subject ({panel.subjects[0]!r} in column {panel.subject!r}); the spread "
            "of effects between subjects needs at least 2, better 10 or more. Drop the "
            f"(... | {panel.subject}) term and give subject={panel.subject!r} to fit()."
        )
    e = len(design.z_cols)
    for j, outcome in enumerate(design.outcomes):
        rows = observed[:, j]
        subject = panel.row_subject[rows]
        enough = np.bincount(subject, minlength=panel.n_subjects) > e
        if enough.sum() < 2:
            raise ModelError(
                f"Effects are not identified: {e} effect term(s) on {outcome!r} need subjects with "
                f"more than {e} observed row(s), and {enough.sum()} of {panel.n_subjects} subjects "
                "have that many. Use fewer effect terms, or none."
            )
        full_rank = _full_rank(data.A[rows][:, list(design.z_cols)], subject, panel.n_subjects)
        if (full_rank & enough).sum() < 2:
            raise ModelError(
                f"Effects on {outcome!r} are not identified: within each subject the effect terms "
                f"{', '.join(design.effect_terms)} are proportional to each other or 0 (does a "
                "covariate never change within a subject?). Keep only (1 | subject), or terms that "
                "vary over time; center(x) helps when x varies little compared with its size."
            )


def _full_rank(z: np.ndarray, subject: np.ndarray, n_subjects: int) -> np.ndarray:
    """(subjects,) bool: the columns of the subject's rows of `z` (rows, e) are independent."""
    size = np.abs(z).max(0, initial=0.0)
    z = z / np.where(size > 0, size, 1.0)
    e = z.shape[1]
    products = np.zeros((n_subjects, e, e))
    for i in range(e):
        for j in range(e):
            products[:, i, j] = np.bincount(subject, z[:, i] * z[:, j], n_subjects)
    # Unit diagonal: a covariate that is small in one subject is not a constant one.
    size = np.sqrt(np.diagonal(products, axis1=1, axis2=2))
    products /= np.maximum(size[:, :, None] * size[:, None], 1e-300)
    values = np.linalg.eigvalsh(products)
    return (values[:, 0] > 1e-9) & (size > 0).all(1)


def _check_states(
    data: DesignData, observed: np.ndarray, design: Design, n_states: int, n_noise: int
) -> None:
    n_cells = int(observed.sum())
    per_state = len(design.outcomes) * len(design.terms) + n_noise + n_states
    if n_cells < n_states * per_state:
        raise ModelError(
            f"{n_states} states have {n_states * per_state} parameters, and the data have "
            f"{n_cells} observed values. Use fewer states or a simpler formula."
        )
    for name, count in zip(design.outcomes, observed.sum(0), strict=True):
        wanted = n_states * (len(design.terms) + 1)
        if count < wanted:
            raise ModelError(
                f"Outcome {name!r} has {count} observed value(s); {n_states} states need at least "
                f"{wanted}. Use fewer states, or leave the outcome out of the formula."
            )
    rows = np.nan_to_num(data.Y[observed.any(1)], nan=np.inf)
    # Sorting millions of rows takes seconds; nearly always a few show that there are enough.
    distinct = len(np.unique(rows[:1000], axis=0))
    if distinct < n_states:
        distinct = len(np.unique(rows, axis=0))
    if distinct < n_states:
        raise ModelError(
            f"The outcomes take {distinct} distinct values, too few for {n_states} states. "
            f"Use at most {distinct} states."
        )
