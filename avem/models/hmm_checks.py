"""Can these data carry this model? Asked before anything is computed, answered in words."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from avem.components.lines import Line
from avem.data import Panel, frames
from avem.data.columns import LARGEST
from avem.errors import DataError, ModelError
from avem.models.encoded import PanelData
from avem.models.hmm import HMMModel
from avem.numerics.rows import (
    any_seen,
    bounds,
    count_by,
    largest,
    seen,
    selection,
    sum_by,
    take_columns,
    triangle,
)

_NO_STEP = "in first rows of sequences alone, which no step leads into"


def check_data(model: HMMModel, panel: Panel, data: PanelData) -> None:
    """Raise an error that says what is wrong and what to try, or return nothing."""
    for name in model.marks:
        frames.column(panel.table, name, "known=" if name == model.spec.known else "event=")
    if model.n_states > 1:
        check_times(panel)
    if model.n_clusters > panel.n_subjects:
        raise DataError(
            f"n_clusters is {model.n_clusters}, and there are {panel.n_subjects} subjects. Choose "
            "fewer."
        )
    if model.n_effects:
        check_subjects(
            panel,
            f"Drop the (... | {panel.subject}) term and give subject={panel.subject!r} to fit().",
        )
    told: set[tuple[int, ...]] = set()  # columns that are apart where every outcome is observed
    for piece in model.emissions:
        for name, column in zip(piece.outcomes, piece.y_cols, strict=False):
            y = data.Y[:, column]
            # Each outcome has its own coefficients, so each needs rows that tell its terms apart.
            rows = seen(y)
            some = selection(rows)
            check_outcome(name, y[some], data.n_without_past)
            everywhere = isinstance(some, slice)
            place = f"where the outcome {name!r} is observed ({rows.sum()} row(s))"
            lines = [line for line in piece.lines if line.has_formula]
            lines = [line for line in lines if line.outcome in (name, "+".join(piece.outcomes))]
            for line in lines:
                if everywhere and (columns := (*line.x_cols, -1, *line.z_cols)) in told:
                    continue
                check_terms(take_columns(data.A, line.x_cols)[some], line.terms, place)
                if line.z_cols:
                    _check_line_effects(model, panel, data.A, rows, line, f"on {line.label!r}")
                if everywhere:
                    told.add(columns)
    later, first = panel.row_step > 0, panel.row_step == 0
    if model.transition.lines:
        line = model.transition.lines[0]
        x = take_columns(data.A, line.x_cols)
        check_terms(x, line.terms, "where the chain moves", later)
        if line.z_cols:
            _check_line_effects(model, panel, data.A, later, line, "on the transitions")
    if model.duration is not None and model.duration.lines:
        line, every = model.duration.lines[0], np.ones(panel.n_rows, bool)
        check_terms(data.A[:, list(line.x_cols)], line.terms, "where stays may end")
        if line.z_cols:
            _check_line_effects(model, panel, data.A, every, line, "on the durations")
    if model.initial.lines:
        line = model.initial.lines[0]
        check_terms(data.A[first][:, list(line.x_cols)], line.terms, "where sequences start")
        if line.z_cols:
            _check_starts(panel)
            _check_line_effects(model, panel, data.A, first, line, "on the first state")
    _check_states(model, data)


def check_outcome(name: str, values: np.ndarray, n_without_past: int) -> None:
    """Raise unless the observed values of an outcome vary, within what can be squared."""
    if len(values) == 0 and n_without_past:
        raise DataError(
            f"Wherever the outcome {name!r} is observed, lag() in its formula looks back to "
            "nothing: the sequences are too short for it, or its column is empty. Go back fewer "
            "rows, or leave lag() out."
        )
    if len(values) == 0:
        raise DataError(f"Outcome {name!r} has no observed value. Leave it out of the formula.")
    low, high = bounds(values)
    largest = max(abs(low), abs(high))
    spread = high / 2 - low / 2  # halved first: the difference may overflow
    if not spread > 1e-13 * largest:
        raise DataError(
            f"Outcome {name!r} is constant: all {len(values)} observed values are "
            f"{values[0]:g}. It says nothing about states; leave it out of the formula."
        )
    if largest > LARGEST or spread < 1 / LARGEST:
        raise DataError(
            f"Outcome {name!r} reaches {largest:g} and varies by {spread:g} around its middle, "
            "beyond what double precision can square. Change its unit."
        )


def check_times(panel: Panel) -> None:
    """Raise if nothing ever moves."""
    if panel.lane_length.max() < 2:
        label = frames.as_python(panel.subjects[0])
        raise DataError(
            f"Every sequence has 1 time point (subject {label}, for one); transitions need at "
            "least 2. If the rows of a subject belong together, check subject= and sequence=."
        )


def check_terms(
    x: np.ndarray, terms: Sequence[str], where: str, later: np.ndarray | None = None
) -> None:
    """Raise unless the columns (rows, terms) can be told apart, in rows that steps lead into."""
    every, x = x, x if later is None else x[later]
    sizes = np.array([largest(column) for column in x.T])
    for name, size in zip(terms, sizes, strict=True):
        if size > LARGEST or 0 < size < 1 / LARGEST:
            raise DataError(
                f"The covariate {name!r} reaches {size:g}, beyond what double precision can "
                "square. Change its unit."
            )
    dependent = _dependent_column(x, sizes)
    if dependent is None:
        return
    name, before = terms[dependent], ", ".join(terms[:dependent])
    if not x[:, dependent].any():
        advice = ". Leave it out of the formula."
        if np.nan_to_num(every[:, dependent]).any():
            advice = (
                f": it has other values {_NO_STEP}. Leave it out of the formula, or give these "
                "rows another value, in a column of its own."
            )
        raise ModelError(f"The fixed term {name!r} is 0 {where}{advice}")
    if factor := _lacks_first_level(every, x, terms[: dependent + 1]):
        raise ModelError(
            f"The first level of {factor!r} occurs {_NO_STEP}. Its column is 0 for all steps, so "
            "that the columns of the other levels add up to 1 and their coefficients are not "
            "identified. Give these rows another of its levels, in a column of its own."
        )
    raise ModelError(
        f"The fixed term {name!r} is a combination of the terms before it ({before}) {where}, "
        "so its coefficient is not identified. Leave one of them out."
    )


def _lacks_first_level(every: np.ndarray, x: np.ndarray, terms: Sequence[str]) -> str:
    """The last term's factor if some of all rows have its first level and none of `x`; or ""."""
    factor, bracket, _ = terms[-1].partition("[")
    own = [n for n, term in enumerate(terms) if term.startswith(factor + bracket)]
    indicators = np.isin(every[:, own], (0.0, 1.0)).all()
    others, every_other = x[:, own].sum(1) == 1, every[:, own].sum(1) == 1
    return factor if bracket and indicators and others.all() and not every_other.all() else ""


def _dependent_column(x: np.ndarray, size: np.ndarray) -> int | None:
    """The first column that the ones before it determine, or None; `size` is their largest."""
    if (size == 0).any():
        return int(np.argmax(size == 0))
    if len(size) <= 1:
        return None
    r = np.abs(np.diagonal(triangle(x, size)))
    low = r < 1e-8 * np.sqrt(len(x))
    if low.any():
        return int(np.argmax(low))
    return len(r) if len(r) < x.shape[1] else None


def check_subjects(panel: Panel, advice: str) -> None:
    """Raise unless there are subjects to differ."""
    if panel.n_subjects < 2:
        raise ModelError(
            f"There is 1 subject ({panel.subjects.tolist()[0]!r} in column {panel.subject!r}); the "
            f"spread of effects between subjects needs at least 2, better 10 or more. {advice}"
        )


def _check_starts(panel: Panel) -> None:
    """Raise where no subject has several first states."""
    several = np.bincount(panel.lane_subject) > 1
    if not several.any():
        raise ModelError(
            "Effects on the first state are not identified: every subject has one sequence, and "
            "so one first state, which cannot tell a subject's own chances from luck. Leave the "
            "(... | group) term out of initial=, or say with sequence= where sequences start."
        )


def _check_line_effects(
    model: HMMModel, panel: Panel, A: np.ndarray, rows: np.ndarray, line: Line, where: str
) -> None:
    terms = [model.structure.effects[place].term for place in line.effects[0]]
    check_effects(panel, take_columns(A, line.z_cols), rows, terms, where)


def check_effects(
    panel: Panel, z: np.ndarray, rows: np.ndarray, terms: Sequence[str], where: str
) -> None:
    """Raise unless some subjects' ``rows`` tell the effect columns (rows, terms) apart."""
    e, subject = len(terms), panel.row_subject
    enough = count_by(subject, rows, panel.n_subjects) > e
    if enough.sum() < 2:
        raise ModelError(
            f"Effects are not identified: {e} effect term(s) {where} need subjects with "
            f"more than {e} observed row(s), and {enough.sum()} of {panel.n_subjects} subjects "
            "have that many. Use fewer effect terms, or none."
        )
    used = z if isinstance(selection(rows), slice) else np.where(rows[:, None], z, 0.0)
    full_rank = _full_rank(used, subject, panel.n_subjects)
    if (full_rank & enough).sum() < 2:
        raise ModelError(
            f"Effects {where} are not identified: within each subject the effect terms "
            f"{', '.join(terms)} are proportional to each other or 0 (does a "
            "covariate never change within a subject?). Keep only (1 | subject), or terms that "
            "vary over time; center(x) helps when x varies little compared with its size."
        )


def _full_rank(z: np.ndarray, subject: np.ndarray, n_subjects: int) -> np.ndarray:
    """(subjects,) bool: the columns of the subject's rows of `z` (rows, e) are independent."""
    size = np.array([largest(column) or 1.0 for column in z.T])
    e = z.shape[1]
    products = np.zeros((n_subjects, e, e))
    for i in range(e):
        for j in range(i + 1):

            def product(at: slice, i: int = i, j: int = j) -> np.ndarray:
                return (z[at, i] / size[i]) * (z[at, j] / size[j])

            products[:, i, j] = products[:, j, i] = sum_by(subject, product, n_subjects)
    # Unit diagonal: a covariate that is small in one subject is not a constant one.
    size = np.sqrt(np.diagonal(products, axis1=1, axis2=2))
    products /= np.maximum(size[:, :, None] * size[:, None], 1e-300)
    values = np.linalg.eigvalsh(products)
    return (values[:, 0] > 1e-9) & (size > 0).all(1)


def _check_states(model: HMMModel, data: PanelData) -> None:
    k = model.n_states
    counts = {c: np.count_nonzero(~np.isnan(data.Y[:, c])) for c in model.outcome_columns}
    n_cells = n_wanted = 0
    distinct_columns = []
    for piece in model.emissions:
        own = list(piece.y_cols[: len(piece.outcomes)])
        distinct_columns += own
        n_cells += sum(counts[column] for column in own)
        n_wanted += sum(int(np.prod(info.shape)) for info in piece.param_info().values())
        for name, column in zip(piece.outcomes, own, strict=True):
            count, wanted = counts[column], k * piece.n_values_per_state
            if count < wanted:
                raise ModelError(
                    f"Outcome {name!r} has {count} observed value(s); {k} states need at least "
                    f"{wanted}. Use fewer states, or leave the outcome out of the formula."
                )
    n_wanted += k * k
    if n_cells < n_wanted:
        raise ModelError(
            f"{k} states have {n_wanted} parameters, and the data have {n_cells} observed values. "
            "Use fewer states or a simpler formula."
        )
    # Discrete outcomes tell states apart by their frequencies over time, not by their values.
    if not all(emission.by_value for emission in model.emissions):
        return
    # Sorting millions of rows takes seconds; nearly always a few show that there are enough.
    distinct = 0
    for some in (data.Y[:1000], data.Y):
        values = some[any_seen(some, range(some.shape[1]))][:, distinct_columns]
        distinct = len(np.unique(np.nan_to_num(values, nan=np.inf), axis=0))
        if distinct >= k:
            break
    if distinct < k:
        raise ModelError(
            f"The outcomes take {distinct} distinct values, too few for {k} states. "
            f"Use at most {distinct} states."
        )
