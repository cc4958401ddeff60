"""How many states, or clusters of subjects? A fit with each number, side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, Protocol, TypeVar

import pandas as pd

from avem.components.param_info import check_count, check_states
from avem.errors import AvemError, ModelError, did_you_mean
from avem.fits.words import count
from avem.inference.methods.names import as_method
from avem.inference.progress_of_fits import Rounds, speaking_of
from avem.inference.stop import Stop
from avem.mixed import Mixed
from avem.mixed_hmm import MixedHMM
from avem.workflows.cross_validation import CrossValidation
from avem.workflows.folds import parts_of, run_folds
from avem.workflows.selection import CRITERIA, NAMES, Criterion, Fit, Selection, criteria_of

Made = TypeVar("Made", covariant=True)

_TYPES = {
    "n_params": "Int64",
    "loglik": float,
    "error": float,
    "aic": float,
    "bic": float,
    "icl": float,
    "starts_agreeing": "Int64",
    "stop": object,
    "degenerate": object,
    "seconds": float,
    "held_out": float,
    "held_out_se": float,
    "problem": object,
}
_OF_FITTING = ("starts_agreeing", "seconds")
_PLAN = ("folds", "by", "seed")
"""Options of the cross-validation."""


class Fits(Protocol[Made]):
    """A model, by what its `fit` returns: `MixedHMM` or `MixedSSM`."""

    @property
    def fit(self) -> Callable[..., Made]:
        """Gives a fit."""
        ...


def select(
    model: Fits[Fit],
    data: Any,
    states: Iterable[int] | None = None,
    *,
    latent: Iterable[int] | None = None,
    clusters: Iterable[int] | None = None,
    criterion: Criterion = "bic",
    cv: int | Literal["subjects", "time"] | Mapping[str, Any] | None = None,
    subject: str | None = None,
    time: str | None = None,
    sequence: str | None = None,
    **fit_options: Any,
) -> Selection[Fit]:
    """Fits with each number of states, their criteria, and the best of them.

    A number of states that cannot be fitted leaves a row that says why. Ctrl-C keeps what there is.

    Parameters
    ----------
    model : MixedHMM or MixedSSM
        The model; its own number of states does not matter.
    data : DataFrame or Panel
        As for `fit`.
    states : iterable of int, optional
        Of a `MixedHMM`, the numbers of states to try (1 to 5).
    latent : iterable of int, optional
        Of a `MixedSSM`, the numbers of latent states to try (1 to 3, or to the number of outcomes
        where that is smaller).
    clusters : iterable of int, optional
        Of a `MixedHMM`, numbers of types of subjects to try, each with the model's own number of
        states.
    criterion : {"bic", "aic", "icl", "held_out"}
        What the best fit is chosen by; ``"icl"`` is for an HMM, ``"held_out"`` needs `cv`.
    cv : int, str or dict, optional
        Cross-validate each number of states as well: a number of folds, ``"subjects"`` or
        ``"time"``, or a dict of options of `cross_validate`: ``{"by": "time", "folds": 4}``.
    subject, time, sequence : str, optional
        Column names, as for `fit`.
    **fit_options
        Further options of `fit`. The criteria are those of a maximum likelihood fit:
        ``refine="adaptive"`` unless something else is given here.

    Returns
    -------
    Selection
        ``table``, ``fits`` and ``best``.

    Examples
    --------
    >>> model = avem.MixedHMM("valence ~ 1", n_states=1)
    >>> diary = avem.load_affect()
    >>> found = avem.select(model, diary, [1, 2], subject="person", time="beep", sequence="day")
    >>> found.n_states
    2
    """
    if not isinstance(model, Mixed):
        raise ModelError(
            f"select got a {type(model).__name__}; a model is wanted: MixedHMM(...) or "
            "MixedSSM(...)."
        )
    vary = _vary(model, states, latent, clusters)
    counts, plan = vary.counts, _plan(cv)
    available = [name for name in CRITERIA if name != "icl" or name in model.own_criteria]
    if criterion not in available:
        hint = did_you_mean(criterion, available)
        raise ModelError(f"criterion is {criterion!r}; available: {', '.join(available)}.{hint}")
    if criterion == "held_out" and plan is None:
        raise ModelError("criterion='held_out' needs cross-validation: give cv=5, say.")
    if not as_method(fit_options.get("method", "avem")).likelihood:
        fit_options.setdefault("refine", "adaptive")
    panel = model._panel(data, subject, time, sequence)
    if plan is not None:
        parts_of(model, panel, **plan)  # what cannot be is said before the first fit
    fits: dict[int, Any] = {}
    scores: dict[int, CrossValidation] = {}
    rows: list[dict[str, Any]] = []
    failures: list[AvemError] = []
    with Rounds(fit_options.get("progress")) as rounds:
        for k in counts:
            row: dict[str, Any] = {vary.name: k, "problem": ""}
            rows.append(row)
            try:
                with speaking_of(count(k, vary.words), depth=1):
                    sized = vary.resized(k)
                    fits[k] = sized.fit(panel, **fit_options)
                    row |= criteria_of(fits[k], model.own_criteria)
                    row |= {name: getattr(fits[k].info, name) for name in _OF_FITTING}
                    if plan is not None and not rounds.ended(fits[k].stop):
                        scores[k] = run_folds(sized, panel, **{**fit_options, **plan})
                        row |= _score(scores[k])
            except AvemError as error:
                failures.append(error)
                row["problem"] = str(error)
            rounds.tell(_line(row, criterion, vary))
            stopped = k in scores and scores[k].interrupted
            if stopped or rounds.ended(fits[k].stop if k in fits else Stop.CONVERGED):
                break
    table = _table(rows, model, vary.name, plan is not None)
    if failures and not table[criterion].notna().to_numpy().any():
        _give_up(failures, vary.words)
    not_fitted = tuple(counts[len(rows) :])
    return Selection(table, fits, criterion, scores, not_fitted, vary.name)


class _Vary(NamedTuple):
    """What differs between the fits."""

    name: str
    """"n_states", "n_latent" or "n_clusters"."""
    words: str
    counts: list[int]
    resized: Callable[[int], Any]


def _vary(model: Mixed, states: Any, latent: Any, clusters: Any) -> _Vary:
    """Numbers of states, or of clusters, to try."""
    if clusters is None:
        found = _counts(model, states, latent)
        return _Vary(model.size_name, model.state_words, found, model.with_size)
    other = states if states is not None else latent
    if not isinstance(model, MixedHMM):
        raise ModelError(f"clusters= is not for a {type(model).__name__}: leave it out.")
    if other is not None:
        raise ModelError(
            "select tries numbers of states= or of clusters=, one after the other. Leave one out: "
            f"clusters= goes with the model's own n_states={model.spec.n_states}."
        )
    listed = _listed("clusters", clusters, "numbers of clusters", "range(1, 4) or [1, 2]")
    for c in listed:
        check_count("clusters", c)
    return _Vary("n_clusters", "cluster", sorted({int(c) for c in listed}), model.with_clusters)


def _counts(model: Mixed, states: Any, latent: Any) -> list[int]:
    """The numbers of states to try, in order, each once."""
    options, name = {"states": states, "latent": latent}, model.size_option
    given = options.pop(name)
    for other, misplaced in options.items():
        if misplaced is not None:
            words = f"{other}= is not for a {type(model).__name__}: use {name}={misplaced!r}."
            raise ModelError(words)
    numbers = model.usual_sizes() if given is None else given
    listed = _listed(name, numbers, "numbers of states", "range(1, 6) or [2, 3]")
    for k in listed:
        check_states(name, k)
    return sorted({int(k) for k in listed})


def _listed(name: str, given: Any, what: str, such_as: str) -> list[Any]:
    """The numbers that were given, at least one."""
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        raise ModelError(f"{name} is {given!r}; several {what} are wanted: {such_as}.")
    listed = list(given)
    if not listed:
        raise ModelError(f"{name} is empty; {what} are wanted: {such_as}.")
    return listed


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


def _score(done: CrossValidation) -> dict[str, Any]:
    if done.interrupted:  # a mean over other folds is not comparable
        return {"problem": "The cross-validation was interrupted."}
    return {"held_out": done.per_value, "held_out_se": done.se}


def _line(row: Mapping[str, Any], criterion: str, vary: _Vary) -> str:
    if criterion not in row:
        return row["problem"] or "Interrupted."
    states = count(row[vary.name], vary.words)
    return f"{states}: {NAMES[criterion]} {row[criterion]:.6g}, {row['seconds']:.1f} s"


def _table(
    rows: Sequence[Mapping[str, Any]], model: Mixed, size: str, with_scores: bool
) -> pd.DataFrame:
    absent = set() if with_scores else {"held_out", "held_out_se"}
    absent |= {"icl"} - set(model.own_criteria)
    types = {size: "int64"} | {n: t for n, t in _TYPES.items() if n not in absent}
    return pd.DataFrame(rows, columns=list(types)).astype(types)


def _give_up(failures: Sequence[AvemError], words: str) -> None:
    """Raise: the one reason, or all of them."""
    if len({str(error.__cause__) for error in failures}) == 1:
        raise failures[0]
    reasons = " ".join(str(error) for error in failures)
    raise ModelError(f"No number of {words}s could be fitted. {reasons}") from failures[0]
