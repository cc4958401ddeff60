"""How many states? A fit with each number, side by side."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pandas as pd

from avem.errors import AvemError, ModelError
from avem.inference.methods import MARGINAL
from avem.inference.rounds import Rounds, speaking_of
from avem.inference.stop import Stop
from avem.mixed_hmm import MixedHMM
from avem.models.param_info import check_count
from avem.results._html import count
from avem.results.cross_validation import CrossValidation
from avem.results.hmm_fit import HMMFit
from avem.results.selection import CRITERIA, NAMES, Selection
from avem.selection.folds import run_folds

_TYPES = {
    "n_states": "int64",
    "n_params": "Int64",
    "loglik": float,
    "error": float,
    "aic": float,
    "bic": float,
    "icl": float,
    "starts_agreeing": "Int64",
    "stop": object,
    "seconds": float,
    "held_out": float,
    "held_out_se": float,
    "problem": object,
}
_PLAN = ("folds", "by", "seed")
"""Options of the cross-validation."""


def select(
    model: MixedHMM,
    data: Any,
    states: Iterable[int] = range(1, 6),
    *,
    criterion: str = "bic",
    cv: int | str | Mapping[str, Any] | None = None,
    subject: str | None = None,
    time: str | None = None,
    sequence: str | None = None,
    **fit_options: Any,
) -> Selection:
    """Fits with each number of states, their criteria, and the best of them.

    A number of states that cannot be fitted leaves a row that says why. Ctrl-C keeps what there is.

    Parameters
    ----------
    model
        The model; its own number of states does not matter.
    data, subject, time, sequence
        As for `MixedHMM.fit`.
    states
        The numbers of states to try.
    criterion
        What the best fit is chosen by: ``"bic"``, ``"aic"``, ``"icl"``, or, with `cv`,
        ``"held_out"``.
    cv
        Cross-validate each number of states as well: a number of folds, ``"subjects"`` or
        ``"time"``, or a dict of options of `cross_validate`: ``{"by": "time", "folds": 4}``.
    **fit_options
        Further options of `MixedHMM.fit`. The criteria are those of a maximum likelihood fit:
        ``refine="adaptive"`` unless something else is given here.
    """
    counts, plan = _counts(states), _plan(cv)
    if criterion not in CRITERIA:
        raise ModelError(f"criterion is {criterion!r}; available: {', '.join(CRITERIA)}.")
    if criterion == "held_out" and plan is None:
        raise ModelError("criterion='held_out' needs cross-validation: give cv=5, say.")
    if fit_options.get("method", "avem") not in MARGINAL:
        fit_options.setdefault("refine", "adaptive")
    panel = model._panel(data, subject, time, sequence)
    fits: dict[int, HMMFit] = {}
    scores: dict[int, CrossValidation] = {}
    rows: list[dict[str, Any]] = []
    failures: list[AvemError] = []
    with Rounds(fit_options.get("progress")) as rounds:
        for k in counts:
            row: dict[str, Any] = {"n_states": k, "problem": ""}
            rows.append(row)
            sized = model.with_states(k)
            try:
                with speaking_of(count(k, "state"), depth=1):
                    fits[k] = sized.fit(panel, **fit_options)
                    row |= _criteria(fits[k])
                    if plan is not None and not rounds.ended(fits[k].stop):
                        scores[k] = run_folds(sized, panel, **{**fit_options, **plan})
                        row |= _score(scores[k])
            except AvemError as error:
                failures.append(error)
                row["problem"] = str(error)
            rounds.tell(_line(row, criterion))
            stopped = k in scores and scores[k].interrupted
            if stopped or rounds.ended(fits[k].stop if k in fits else Stop.CONVERGED):
                break
    table = _table(rows, plan is not None)
    if failures and not table[criterion].notna().to_numpy().any():
        _give_up(failures)
    return Selection(table, fits, criterion, scores, tuple(counts[len(rows) :]))


def _counts(states: Any) -> list[int]:
    """The numbers of states to try, in order, each once."""
    if isinstance(states, str | bytes) or not isinstance(states, Iterable):
        raise ModelError(
            f"states is {states!r}; several numbers of states are wanted: range(1, 6) or [2, 3]."
        )
    listed = list(states)
    for k in listed:
        check_count("states", k)
    if not listed:
        raise ModelError("states is empty; numbers of states are wanted: range(1, 6) or [2, 3].")
    return sorted({int(k) for k in listed})


def _plan(cv: Any) -> dict[str, Any] | None:
    """The options of the cross-validation; None for none."""
    if cv is None:
        return None
    if isinstance(cv, str):
        return {"by": cv}
    if not isinstance(cv, Mapping):
        return {"folds": cv}
    unknown = [name for name in cv if name not in _PLAN]
    if unknown:
        raise ModelError(f"cv has {unknown}; its options are {', '.join(_PLAN)}.")
    return dict(cv)


def _criteria(fit: HMMFit) -> dict[str, Any]:
    loglik = fit.loglik()
    return {
        "n_params": fit.n_params,
        "loglik": float(loglik),
        "error": loglik.error,
        "aic": fit.aic(),
        "bic": fit.bic(),
        "icl": fit.icl(),
        "starts_agreeing": fit.info.starts_agreeing,
        "stop": fit.stop.name,
        "seconds": fit.info.seconds,
    }


def _score(done: CrossValidation) -> dict[str, Any]:
    if done.interrupted:  # a mean over other folds is not comparable
        return {"problem": "The cross-validation was interrupted."}
    return {"held_out": done.per_value, "held_out_se": done.se}


def _line(row: Mapping[str, Any], criterion: str) -> str:
    if criterion not in row:
        return row["problem"] or "Interrupted."
    states = count(row["n_states"], "state")
    return f"{states}: {NAMES[criterion]} {row[criterion]:.6g}, {row['seconds']:.1f} s"


def _table(rows: Sequence[Mapping[str, Any]], with_scores: bool) -> pd.DataFrame:
    kinds = {name: kind for name, kind in _TYPES.items() if with_scores or "held_out" not in name}
    return pd.DataFrame(rows, columns=list(kinds)).astype(kinds)


def _give_up(failures: Sequence[AvemError]) -> None:
    """Raise: the one reason, or all of them."""
    if len({str(error.__cause__) for error in failures}) == 1:
        raise failures[0]
    reasons = " ".join(str(error) for error in failures)
    raise ModelError(f"No number of states could be fitted. {reasons}") from failures[0]
