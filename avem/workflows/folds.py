"""Cross-validation: fits to parts of the data, scored on the rest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import pandas as pd

from avem.components.param_info import check_count, check_seed
from avem.data import Panel
from avem.data.folds import subject_folds, subjects_in, time_folds, with_hidden, with_rows
from avem.errors import ModelError, did_you_mean
from avem.fits.predict.log_score import HeldOut, held_out
from avem.inference.progress_of_fits import Rounds, speaking_of
from avem.inference.stop import Stop
from avem.mixed import Mixed
from avem.models.memory import refuse_memory
from avem.workflows.cross_validation import CrossValidation

_BY = ("subjects", "time")

_COLUMNS = (
    "fold",
    "n_subjects",
    "n_rows",
    "n_values",
    "loglik",
    "per_row",
    "per_value",
    "stop",
)

Score = tuple[Stop, HeldOut]
"""How the fit of a fold ended, and what it says of what was held out."""


def cross_validate(
    model: Mixed,
    data: Any,
    *,
    folds: int = 5,
    by: Literal["subjects", "time"] = "subjects",
    subject: str | None = None,
    time: str | None = None,
    sequence: str | None = None,
    seed: int = 0,
    **fit_options: Any,
) -> CrossValidation:
    """Held-out log scores: how well the model predicts values that it was not fitted to.

    Ctrl-C keeps the folds that are done.

    Parameters
    ----------
    model : MixedHMM or MixedSSM
        What to fit to all folds but one.
    data : DataFrame or Panel
        As for `fit`.
    folds : int
        How many parts the data are cut into; each is held out once.
    by : {"subjects", "time"}
        ``"subjects"``: whole subjects are held out, and scored as new ones, their effects
        integrated: log p(all their values). ``"time"``: one stretch of every sequence is held out
        (its outcomes are missing for the fit), and scored given all the other values: log p(all) -
        log p(all but the stretch), at the parameters fitted without it.
    subject, time, sequence : str, optional
        Column names, as for `fit`.
    seed : int
        For dealing out the subjects, and for the fits.
    **fit_options
        Further options of `fit`.

    Returns
    -------
    CrossValidation

    Examples
    --------
    >>> model = avem.MixedHMM("valence ~ 1", n_states=1)
    >>> columns = {"subject": "person", "time": "beep", "sequence": "day"}
    >>> avem.cross_validate(model, avem.load_affect(), folds=2, **columns).table["fold"].tolist()
    [1, 2]
    """
    panel = model._panel(data, subject, time, sequence)
    done = run_folds(model, panel, folds=folds, by=by, seed=seed, **fit_options)
    if not len(done.table):
        raise KeyboardInterrupt("Interrupted before the first fold was done.")
    return done


def run_folds(
    model: Mixed,
    panel: Panel,
    *,
    folds: int = 5,
    by: str = "subjects",
    seed: int = 0,
    parts: Sequence[np.ndarray] | None = None,
    **fit_options: Any,
) -> CrossValidation:
    """The same for a panel; without any fold when it was interrupted in the first.

    ``parts`` are what `parts_of` gives, if the folds are those of another panel.
    """
    parts = parts_of(model, panel, folds, by, seed) if parts is None else parts
    score = _score_stretch if by == "time" else _score_subjects
    rows: list[dict[str, Any]] = []
    total = _nothing(panel)
    with Rounds(fit_options.get("progress")) as rounds:
        for number, held in enumerate(parts, start=1):
            with speaking_of(f"fold {number} of {folds}", depth=2):
                stop, found = score(model, panel, held, {**fit_options, "seed": seed})
            if stop is Stop.INTERRUPTED:
                break
            total = HeldOut(*(old + new for old, new in zip(total, found, strict=True)))
            loglik, n, n_rows = float(found.loglik.sum()), *(int(c.sum()) for c in found[1:])
            rows.append(
                {
                    "fold": number,
                    "n_subjects": int((found.n_values > 0).sum()),
                    "n_rows": n_rows,
                    "n_values": n,
                    "loglik": loglik,
                    "per_row": loglik / n_rows if n_rows else np.nan,
                    "per_value": loglik / n if n else np.nan,
                    "stop": stop.name,
                }
            )
            rounds.tell(f"fold {number} of {folds}: {loglik / max(n, 1):.4f} per held-out value")
            if rounds.interrupted:
                break
    by_subject = {panel.subject: panel.subjects, "n_rows": total.n_rows}
    by_subject |= {"n_values": total.n_values, "loglik": total.loglik}
    table = pd.DataFrame(rows, columns=list(_COLUMNS))
    return CrossValidation(table, pd.DataFrame(by_subject), by, int(folds))


def parts_of(
    model: Mixed, panel: Panel, folds: Any = 5, by: Any = "subjects", seed: Any = 0
) -> list[np.ndarray]:
    """For each fold, (rows,) bool: what is held out."""
    if by not in _BY:
        hint = did_you_mean(by, _BY)
        raise ModelError(f"by is {by!r}; available: {', '.join(_BY)}.{hint}")
    check_count("folds", folds)
    if folds < 2:
        raise ModelError("folds is 1; at least 2 are wanted: one is scored, the others are fitted.")
    check_seed(seed)
    if by == "subjects":
        return subject_folds(panel, folds, seed, n_needed=2 if model.has_effects() else 1)
    if not panel.in_memory:
        raise ModelError("by='time' needs rows in memory; of a scan, use by='subjects'.")
    refuse_memory(model.spec, "by='time' hides stretches of the outcomes", "by='subjects'")
    return time_folds(panel, folds)


def _score_subjects(model: Mixed, panel: Panel, held: np.ndarray, options: Any) -> Score:
    """The held-out subjects as new ones."""
    fit = model.fit(with_rows(panel, ~held), **options)
    if fit.stop is Stop.INTERRUPTED:
        return fit.stop, _nothing(panel)
    new = subjects_in(panel, held)
    # Subjects are independent, and all of them together have the same shape for every fold:
    # to compile the likelihood once costs less than to leave out those that are not wanted.
    found = held_out(fit, panel)
    return fit.stop, HeldOut(*(np.where(new, part, 0 * part) for part in found))


def _score_stretch(model: Mixed, panel: Panel, held: np.ndarray, options: Any) -> Score:
    """The held-out rows given all the others: p(all) / p(the others)."""
    others = with_hidden(panel, sorted(set(model.spec.outcome_names)), held)
    fit = model.fit(others, **options)
    if fit.stop is Stop.INTERRUPTED:
        return fit.stop, _nothing(panel)
    return fit.stop, held_out(fit, panel, others)


def _nothing(panel: Panel) -> HeldOut:
    none = np.zeros(panel.n_subjects, np.int64)
    return HeldOut(none.astype(float), none, none)
