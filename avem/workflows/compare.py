"""Fits of different models to the same data, side by side."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import combinations
from typing import Any, Literal

import numpy as np
import pandas as pd
from scipy.special import stdtrit

from avem.components.param_info import check_level
from avem.data import Panel
from avem.errors import AvemError, ModelError
from avem.fits.fit import Fit
from avem.fits.questions.keys import check_keys
from avem.inference.progress_of_fits import Rounds, speaking_of
from avem.mixed import Mixed
from avem.workflows.compared import Comparison, Frames
from avem.workflows.cross_validation import CrossValidation
from avem.workflows.folds import parts_of, run_folds
from avem.workflows.naming import names_of
from avem.workflows.recipe import front_of, refit_options
from avem.workflows.same_data import check_has_data, check_same_data, check_same_measure, need_fits
from avem.workflows.selection import CRITERIA, Criterion, criteria_of

_ALONE = "one subject: no spread to judge by"


def compare(
    fits: Mapping[str, Fit] | Iterable[Fit],
    *,
    folds: int | None = None,
    by: Literal["subjects", "time"] = "subjects",
    criterion: Criterion | None = None,
    level: float = 0.95,
    seed: int = 0,
    **fit_options: Any,
) -> Comparison:
    """Different models of the same data: criteria, held-out scores, and differences by subject.

    Fits to other rows or outcomes are refused. A degenerate fit is marked, and never recommended.

    Parameters
    ----------
    fits : dict of str to HMMFit or SSMFit, or list of them
        The fits by name; those of a list are named by what tells them apart.
    folds : int, optional
        Cross-validate: every model is fitted again to all folds but one, in the way in which its
        fit was made, and scored on that one; the folds are the same for all. Without it,
        differences are those of the fits' own log likelihoods: in-sample.
    by : {"subjects", "time"}
        What is held out, as in `cross_validate`.
    criterion : {"aic", "bic", "icl", "held_out"}, optional
        What the best fit is chosen by; by default ``"held_out"`` with `folds`, else ``"bic"``.
    level : float
        Probability of the intervals of differences.
    seed : int
        For dealing out the subjects, and for the fits.
    **fit_options
        Options of `fit` for the folds, in place of those of the fits. Their fits begin near the
        fit's own parameters; ``n_starts=`` lets them search.

    Returns
    -------
    Comparison
        ``table``, ``differences``, ``by_subject`` and ``best``.

    Examples
    --------
    >>> found = avem.compare({"one": selection.fits[1], "two": selection.fits[2]})
    >>> found.preferred("bic")
    'two'
    """
    named = _named(fits)
    check_level(level)
    first = next(iter(named.values()))
    names = list(named)
    for name in names[1:]:
        try:
            check_same_data(first, named[name])
            check_same_measure(first, named[name])
        except AvemError as error:
            words = f"{names[0]!r} and {name!r} cannot be compared. {error}"
            raise type(error)(words) from error
    chosen = _checked_criterion(criterion, named, folds)
    scores: dict[str, CrossValidation] = {}
    if folds is not None:
        scores = _cross_validated(named, folds, by, seed, fit_options)
    elif fit_options:
        raise ModelError(f"{', '.join(fit_options)}: options of fits are for folds=; give folds=5.")
    by_subject = _by_subject(named, scores if folds is not None else None)
    frames = Frames(_table(named, scores), _differences(by_subject, level), by_subject)
    return Comparison(named, chosen, scores, folds, by, frames)


def _named(fits: Any) -> dict[str, Fit]:
    """The fits by name, or an error that says what is wanted."""
    wanted = "two or more fits are wanted: {'a': fit, 'b': other}, or a list of them"
    if not isinstance(fits, Mapping | Iterable):
        raise ModelError(f"compare got a {type(fits).__name__}; {wanted}.")
    values = list(fits.values() if isinstance(fits, Mapping) else fits)
    need_fits(values, "compare", f" among the fits; {wanted}.")
    for fit in values:
        check_has_data(fit)
    if len(values) < 2:
        raise ModelError(f"compare got {len(values)}; {wanted}.")
    names = [str(key) for key in fits] if isinstance(fits, Mapping) else names_of(values)
    if len(set(names)) < len(names):
        raise ModelError(f"Two fits have the same name: {', '.join(names)}.")
    check_keys([str(values[0].columns["subject"])], names)
    return dict(zip(names, values, strict=True))


def _own_criteria(fit: Fit) -> tuple[str, ...]:
    return front_of(fit).own_criteria


def _checked_criterion(criterion: Any, fits: Mapping[str, Fit], folds: int | None) -> str:
    """What the best fit is chosen by."""
    without = [name for name, fit in fits.items() if "icl" not in _own_criteria(fit)]
    if criterion is None:
        return "bic" if folds is None else "held_out"
    if criterion not in CRITERIA:
        raise ModelError(f"criterion is {criterion!r}; available: {', '.join(CRITERIA)}.")
    if criterion == "held_out" and folds is None:
        raise ModelError("criterion='held_out' needs cross-validation: give folds=5, say.")
    if criterion == "icl" and without:
        raise ModelError(f"criterion='icl': {without[0]!r} has none, only hidden Markov models do.")
    return criterion


# --- held out -------------------------------------------------------------------------------------


def _cross_validated(
    fits: Mapping[str, Fit], folds: int, by: str, seed: int, given: Mapping[str, Any]
) -> dict[str, CrossValidation]:
    """The scores of the models that were reached before an interruption."""
    models = {name: front_of(fit) for name, fit in fits.items()}
    parts = _same_parts(fits, models, folds, by, seed)  # what cannot be is said before all fits
    scores: dict[str, CrossValidation] = {}
    with Rounds(given.get("progress")) as rounds:
        for name, fit in fits.items():
            options = refit_options(fit)
            if "n_starts" not in given:
                options["init"] = fit._start_for_replicates()
            plan = {"folds": folds, "by": by, "seed": seed, "parts": parts[name]}
            with speaking_of(name, depth=2):
                panel = fit._panel(None)
                done = run_folds(models[name], panel, **{**options, **given, **plan})
            if done.interrupted:
                break
            scores[name] = done
            rounds.tell(f"{name}: {done.per_value:.4f} per held-out value")
            if rounds.interrupted:
                break
    return scores


def _same_parts(
    fits: Mapping[str, Fit], models: Mapping[str, Mixed], folds: int, by: str, seed: int
) -> dict[str, list[np.ndarray]]:
    """What is held out of each fit's data, (rows,) bool per fold: the same values for all."""
    parts = {
        name: parts_of(models[name], fit._panel(None), folds, by, seed)
        for name, fit in fits.items()
    }
    if by == "time":  # by a row's place in its sequence alone
        return parts
    name, first = next(iter(fits.items()))
    panel = first._panel(None)
    number = np.zeros(panel.n_subjects, int)
    for fold, held in enumerate(parts[name]):
        number[panel.row_subject[held]] = fold
    return {
        other: _dealt(fit._panel(None), number[_order(panel.subjects, fit.subjects)], folds)
        for other, fit in fits.items()
    }


def _dealt(panel: Panel, fold_of: np.ndarray, folds: int) -> list[np.ndarray]:
    return [fold_of[panel.row_subject] == fold for fold in range(folds)]


def _order(subjects: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Where each of the others is among the subjects."""
    return pd.Index(subjects).get_indexer(pd.Index(others))


# --- tables ---------------------------------------------------------------------------------------


def _table(fits: Mapping[str, Fit], scores: Mapping[str, CrossValidation]) -> pd.DataFrame:
    rows = []
    for name, fit in fits.items():
        row = {"model": name, **criteria_of(fit, _own_criteria(fit))}
        if name in scores:
            row |= {"held_out": scores[name].per_value, "held_out_se": scores[name].se}
        rows.append(row)
    numbers = ["loglik", "error", "aic", "bic", "icl", "held_out", "held_out_se"]
    found = [name for name in numbers if any(name in row for row in rows)]
    columns = ["model", "n_params", *found, "stop", "degenerate"]
    return pd.DataFrame(rows, columns=columns).astype(dict.fromkeys(found, float))


def _by_subject(
    fits: Mapping[str, Fit], scores: Mapping[str, CrossValidation] | None
) -> pd.DataFrame:
    """A row per subject of the first fit: the log score that each model gives its values."""
    first = next(iter(fits.values()))
    table = {str(first.columns["subject"]): np.asarray(first.subjects)}
    for name, fit in fits.items():
        if scores is None:
            own = fit.loglik().by_subject
        elif name in scores:
            own = scores[name].by_subject["loglik"].to_numpy(float)
        else:
            continue
        table[name] = own[_order(fit.subjects, first.subjects)]
    return pd.DataFrame(table)


def _differences(by_subject: pd.DataFrame, level: float) -> pd.DataFrame:
    """Of every pair of models: the total of the subjects' differences, and its standard error."""
    names = list(by_subject.columns[1:])
    scores = by_subject[names].to_numpy(float)
    seen = (scores != 0).any(axis=1)  # who has no values has the score 0 in every model
    n, rows = int(seen.sum()), []
    for one, other in combinations(range(len(names)), 2):
        apart = scores[seen, one] - scores[seen, other]
        total = float(apart.sum())
        se = float(np.sqrt(n) * apart.std(ddof=1)) if n > 1 else np.nan
        half = stdtrit(n - 1, 0.5 + level / 2) * se if n > 1 else np.nan
        better, worse = int((apart > 0).sum()), int((apart < 0).sum())
        ends = {"lower": total - half, "upper": total + half}
        row = {"model": names[one], "other": names[other], "difference": total, "se": se, **ends}
        note = "" if n > 1 else _ALONE
        rows.append({**row, "better": better, "worse": worse, "subjects": n, "note": note})
    columns = ["model", "other", "difference", "se", "lower", "upper", "better", "worse"]
    return pd.DataFrame(rows, columns=[*columns, "subjects", "note"])
