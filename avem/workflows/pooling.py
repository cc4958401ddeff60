"""Fits to several completed versions of a table, pooled by Rubin's rules."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import permutations
from typing import Any

import numpy as np
from scipy.special import expit, logit, ndtri, stdtrit

from avem.components.param_info import check_level
from avem.errors import ModelError
from avem.fits.fit import Fit
from avem.fits.naming import named_states
from avem.fits.uncertainty import intervals, scales_of
from avem.fits.words import Errors, errors_word
from avem.inference.stop import Stop
from avem.workflows.same_data import need_fits

_MOST_STATES = 6
"""Of which all orders are tried."""
_CLOSER = 0.25
"""Share of its distance from the first fit that another order of the states leaves, to be it."""


@dataclass(frozen=True, eq=False, repr=False)
class Pooled:
    """Several fits of one model, each to a table completed in its own way; `pool` makes it.

    Attributes
    ----------
    fits : tuple of Fit
        The fits.

    Examples
    --------
    >>> pooled = avem.pool([fit, fit])
    >>> pooled.standard_errors().columns[-6:].tolist()
    ['se', 'lower', 'upper', 'df', 'fmi', 'note']
    """

    fits: tuple[Fit, ...]

    def standard_errors(self, level: float = 0.95, errors: Errors = "observed") -> Any:
        """Pooled estimates with total standard errors, intervals, and what was missing.

        Estimates are averaged where each is free: variances by their logarithms, probabilities by
        their log odds, others as they are. The total variance is the mean of the fits' own plus
        (1 + 1/m) times the variance between their estimates.

        Parameters
        ----------
        level : float
            Probability of the intervals.
        errors : {"observed", "sandwich"}
            Where the errors of each fit come from, as in `Fit.standard_errors`.

        Returns
        -------
        DataFrame
            As `Fit.standard_errors` gives it, with ``df``, the degrees of freedom, and ``fmi``, the
            fraction of the information on a parameter that is missing for want of the values.

        Examples
        --------
        >>> pooled = avem.pool([fit, fit])
        >>> bool((pooled.standard_errors()["fmi"].dropna() == 0).all())
        True
        """
        check_level(level)
        word = errors_word(errors)
        tables = [fit._standard_errors(word) for fit in self.fits]
        first = self.fits[0]
        kinds = scales_of(tables[0], first.model.param_info())
        estimate = np.array([table["estimate"].to_numpy(float) for table in tables])
        se = np.array([table["se"].to_numpy(float) for table in tables])
        units = first._n_units - 1 if first.model.n_effects else np.inf
        found = rubin(*_freed(estimate, se, kinds), units)
        middle, half = _natural(found.estimate, found.se, kinds)
        reach = ndtri(0.5 + level / 2) * np.ones(len(middle))
        few = np.isfinite(found.df)
        reach[few] = stdtrit(found.df[few], 0.5 + level / 2)
        known = np.isfinite(half)
        middle = np.where(known, middle, estimate.mean(0))
        lower, upper = intervals(middle, reach * half, kinds)
        notes = [table["note"].to_numpy(object) for table in tables]
        note = np.array([next((str(n) for n in of if n), "") for of in zip(*notes, strict=True)])
        columns = {"estimate": middle, "se": half, "lower": lower, "upper": upper}
        columns |= {"df": np.where(known, found.df, np.nan), "fmi": found.fmi, "note": note}
        table = tables[0].drop(columns=["estimate", "se", "lower", "upper", "note"])
        return first._own_kind(named_states(first, table.assign(**columns)))

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader should know: of fits that did not converge.

        Examples
        --------
        >>> avem.pool([fit, fit]).notes
        ()
        """
        bad = [str(i) for i, fit in enumerate(self.fits) if fit.stop is not Stop.CONVERGED]
        if not bad:
            return ()
        return (f"Of {len(self.fits)} fits, number {', '.join(bad)} did not converge.",)

    @cached_property
    def _text(self) -> str:
        first = self.fits[0]
        head = f"{len(self.fits)} fits of {first.model.spec.text!r}, pooled by Rubin's rules"
        return "\n".join([head, str(self.standard_errors()), *self.notes])

    def __repr__(self) -> str:
        return self._text


def pool(fits: Sequence[Fit]) -> Pooled:
    """Fits to several completed versions of one table, pooled by Rubin's rules.

    Where values of covariates are missing, complete the table several times by draws from what
    they may have been (with software for multiple imputation), fit the model to each, and pool.

    Parameters
    ----------
    fits : list of HMMFit or SSMFit
        At least two, of one model to the same subjects; give the later ones ``init=fits[0]``, so
        that their states have the same order.

    Returns
    -------
    Pooled

    Examples
    --------
    >>> model, keys = avem.MixedHMM.from_spec(fit.model.spec), {"time": "beep", "sequence": "day"}
    >>> tables = [avem.load_affect(), avem.load_affect()]
    >>> pooled = avem.pool([model.fit(table, init=fit, refine=None, **keys) for table in tables])
    >>> len(pooled.fits)
    2
    """
    wanted = "a list of at least two fits is wanted, each to a completed table."
    if not isinstance(fits, list | tuple) or len(fits) < 2:
        raise ModelError(f"pool got {str(fits)[:60]}; {wanted}")
    fits = tuple(fits)
    need_fits(fits, "pool", f" among the fits; {wanted}")
    first = fits[0]
    for number, fit in enumerate(fits[1:], start=1):
        where = f"Fit {number} is not like fit 0"
        if type(fit) is not type(first) or fit.model.param_info() != first.model.param_info():
            raise ModelError(
                f"{where}: it is of {fit.model.spec.text!r} and has other parameters than "
                f"{first.model.spec.text!r}. Pool fits of one model."
            )
        if not np.array_equal(fit.subjects, first.subjects):
            raise ModelError(f"{where}: it has other subjects. Complete the same table each time.")
        if fit.info.fixed != first.info.fixed:
            raise ModelError(f"{where}: other parameters were held (fixed=).")
        orders = {"states": _other_order(first, fit), "types": _other_types(first, fit)}
        for what, order in orders.items():
            if order is not None:
                raise ModelError(
                    f"{where}: its {what} are in another order, {', '.join(map(str, order))} as "
                    "fit 0 has them. Give it init=fits[0]."
                )
    return Pooled(fits)


def _other_order(first: Fit, fit: Fit) -> tuple[int, ...] | None:
    """The order in which its states are clearly more like those of the first; None: its own."""
    model = fit.model
    if model.size > _MOST_STATES or (model.keeps_order and model.orders is None):
        return None
    orders = permutations(range(model.size)) if model.orders is None else model.orders
    return _closer(first, fit, orders, lambda order: model.relabelled(fit.theta, order)[0])


def _other_types(first: Fit, fit: Fit) -> tuple[int, ...] | None:
    """The same of types of subjects."""
    model, n = fit.model, fit.model.n_clusters
    if not 1 < n <= _MOST_STATES:
        return None
    every = permutations(range(n))
    return _closer(first, fit, every, lambda order: model.with_clusters(fit.theta, order))


def _closer(
    first: Fit, fit: Fit, orders: Iterable[Any], renumbered: Callable[[np.ndarray], Any]
) -> tuple[int, ...] | None:
    """The order that brings a fit clearly nearer to the first; None: its own."""
    wanted = first.values_of(first.params)
    unit = np.maximum(np.abs(wanted), 0.1)

    def distance(order: tuple[int, ...]) -> float:
        params = fit.model.params_out(renumbered(np.array(order)))
        return float((((fit.values_of(params) - wanted) / unit) ** 2).sum())

    best = min((tuple(order) for order in orders), key=distance)
    own = tuple(range(len(best)))
    return best if best != own and distance(best) < _CLOSER * distance(own) else None


# --- the rules ------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Combined:
    """What several estimates of numbers say together."""

    estimate: np.ndarray
    se: np.ndarray
    df: np.ndarray
    fmi: np.ndarray
    """Fraction of missing information."""


def rubin(estimate: np.ndarray, se: np.ndarray, complete: float) -> Combined:
    """From estimates and errors (fits, numbers); ``complete`` are the df without anything missing.

    T = W + (1 + 1/m) B, with W the mean of the squared errors and B the variance of the estimates.
    The degrees of freedom are Rubin's (m - 1) / lambda^2, where lambda = (1 + 1/m) B / T, and those
    of complete data less what is missing, complete (1 - lambda), by the sum of their inverses.
    (Barnard and Rubin shrink the second a little more; without that, nothing missing is the same
    as complete data.)
    """
    m, away = len(estimate), estimate - estimate[0]  # exactly 0 where all are the same
    within, between = (se**2).mean(0), (1 + 1 / m) * away.var(0, ddof=1)
    total = within + between
    with np.errstate(divide="ignore", invalid="ignore"):
        share, ratio = between / total, between / within
        repeated = (m - 1) / share**2
        df = 1 / (1 / repeated + 1 / (complete * (1 - share)))
        fmi = (ratio + 2 / (repeated + 3)) / (ratio + 1)
    return Combined(estimate[0] + away.mean(0), np.sqrt(total), df, fmi)


def _freed(
    estimate: np.ndarray, se: np.ndarray, kinds: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Estimates and errors on the scales where they are free."""
    out, error = estimate.copy(), se.copy()
    log, odds = kinds == "log", kinds == "logit"
    with np.errstate(all="ignore"):
        out[:, log], error[:, log] = np.log(estimate[:, log]), se[:, log] / estimate[:, log]
        p = estimate[:, odds]
        out[:, odds], error[:, odds] = logit(p), se[:, odds] / (p * (1 - p))
    return out, error


def _natural(
    estimate: np.ndarray, se: np.ndarray, kinds: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The inverse of `_freed`, of one row each."""
    out, error = estimate.copy(), se.copy()
    log, odds = kinds == "log", kinds == "logit"
    out[log] = np.exp(estimate[log])
    error[log] = se[log] * out[log]
    out[odds] = expit(estimate[odds])
    error[odds] = se[odds] * out[odds] * (1 - out[odds])
    return out, error
