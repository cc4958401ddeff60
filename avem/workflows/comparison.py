"""Two nested models on the same data: whether the larger one is better than by chance."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from math import comb
from typing import NamedTuple

import numpy as np
from scipy.special import chdtrc

from avem.components.lines import Line
from avem.errors import AvemWarning, ModelError
from avem.fits.hmm_fit import HMMFit
from avem.fits.notebook import paragraphs
from avem.fits.words import count
from avem.inference.stop import Stop
from avem.models.hmm import HMMModel
from avem.workflows.same_data import check_has_data, check_same_data, need_fits

_SLACK = 0.05
"""How far an iteration that has converged may have stopped below its maximum."""


@dataclass(frozen=True, repr=False)
class LRTest:
    """A likelihood ratio test.

    Attributes
    ----------
    statistic : float
        Twice the difference of the log likelihoods; 0 where the larger model gains nothing.
    error : float
        How far `statistic` may be off, from the errors of the log likelihoods.
    df : int
        How many more parameters the larger model has.
    p_value : float
        The probability of such a statistic, or a larger one, if the smaller model is true.
    reference : str
        The distribution that the statistic is compared with, in words.

    Examples
    --------
    >>> avem.LRTest(5.2, 0.01, 1, 0.0226, "a chi-squared distribution")
    Likelihood ratio test: statistic 5.2 (error 0.01), 1 more parameter, p = 0.0226
    Compared with a chi-squared distribution.
    """

    statistic: float
    error: float
    df: int
    p_value: float
    reference: str

    def __repr__(self) -> str:
        return (
            f"Likelihood ratio test: statistic {self.statistic:.4g} (error {self.error:.1g}), "
            f"{count(self.df, 'more parameter')}, p {_p_words(self.p_value)}\n"
            f"Compared with {self.reference}."
        )

    def _repr_html_(self) -> str:
        return paragraphs(repr(self).splitlines())


def likelihood_ratio_test(smaller: HMMFit, larger: HMMFit) -> LRTest:
    """The test of a model against a larger one of which it is a special case.

    Both must be maximum likelihood fits to the same data, with the same number of states. By
    default a fit is refined to maximum likelihood only where that matters: of two fits one may be
    and the other not. A warning then says which, with the code that goes on to its maximum; fitting
    both with ``refine="adaptive"`` avoids it.

    A variance of effects that is 0 in the smaller model lies on the boundary, and the reference is
    a mixture of chi-squared distributions (Self and Liang 1987, Stram and Lee 1994).

    Parameters
    ----------
    smaller : HMMFit
        The fit of the special case.
    larger : HMMFit
        The fit of the model that includes it.

    Returns
    -------
    LRTest

    Examples
    --------
    >>> diary, columns = avem.load_affect(), {"time": "beep", "sequence": "day"}
    >>> small, large = (
    ...     avem.MixedHMM(formula, n_states=1).fit(diary, "person", **columns)
    ...     for formula in ("valence ~ 1", "valence ~ stress")
    ... )
    >>> avem.likelihood_ratio_test(small, large).df
    1
    """
    wanted = "; two fits are wanted, the smaller model's first."
    need_fits((smaller, larger), "likelihood_ratio_test", wanted)
    for fit in (smaller, larger):
        if fit.kind != HMMFit.kind:
            raise ModelError(
                "likelihood_ratio_test knows its distribution for fits of MixedHMM alone. Compare "
                "state-space models by fit.aic(), fit.bic() or avem.cross_validate."
            )
        check_has_data(fit)
        if fit.info.weights_kind == "survey":
            raise ModelError(
                f"The fits have survey weights, {fit.info.weights!r}, and twice a difference of "
                "pseudo-likelihoods has no known distribution. Compare coefficients with their "
                "robust standard errors instead: fit.standard_errors(), fit.contrast()."
            )
        if fit.model.spec.priors:
            raise ModelError(
                "The fits have priors: they are at the maximum of likelihood times priors, and "
                "twice a difference of log likelihoods has no known distribution there. Fit both "
                "without priors=."
            )
    _check_states(smaller, larger)
    check_same_data(smaller, larger)
    df = larger.n_params - smaller.n_params
    if df < 1:
        raise ModelError(
            f"The larger model has {larger.n_params} parameters and the smaller one "
            f"{smaller.n_params}; it must have more. Give the smaller model first; compare models "
            "that are not nested by fit.aic() or fit.bic()."
        )
    doubts = [
        *_unfinished(smaller, "smaller"),
        *_unfinished(larger, "larger"),
        *nesting_doubts(smaller.model, larger.model),
    ]
    if doubts:
        warnings.warn(" ".join(doubts), AvemWarning, stacklevel=2)
    gain, error = _gain(smaller, larger)
    held = "effect_covariance" in larger.info.fixed
    compared = reference(smaller.model, larger.model, df, held)
    statistic = max(2.0 * gain, 0.0)
    return LRTest(statistic, 2.0 * error, df, tail(compared, statistic), compared.words)


def tail(of: Reference, statistic: float) -> float:
    """P(at least this statistic); chi-squared with 0 degrees of freedom is always 0."""
    if statistic <= 0:
        return 1.0
    parts = (w * chdtrc(df, statistic) for w, df in zip(of.weights, of.dfs, strict=True) if df)
    return float(sum(parts))


def _gain(smaller: HMMFit, larger: HMMFit) -> tuple[float, float]:
    """The rise of the log likelihood, and its error."""
    low, high = smaller.loglik(), larger.loglik()
    gain, error = float(high - low), float(np.hypot(low.error, high.error))
    if gain < -error - _SLACK:
        raise ModelError(
            f"The larger model has a log likelihood of {high!r}, the smaller one of {low!r}. The "
            "larger one includes the smaller and cannot be worse: it is not at its maximum, or the "
            "two are not nested. Fit it again, with refine='adaptive' and more starts:\n"
            f"{_code(larger, 'larger', 'n_starts=32')}"
        )
    return gain, error


def _check_states(smaller: HMMFit, larger: HMMFit) -> None:
    k, m = smaller.model.n_states, larger.model.n_states
    if k != m:
        raise ModelError(
            f"The fits have {k} and {m} states. That is no regular test: with fewer states, the "
            "parameters of the others are not defined, and no chi-squared distribution holds. "
            "Compare numbers of states with avem.select."
        )


def _unfinished(fit: HMMFit, which: str) -> Iterator[str]:
    if fit.model.n_effects and not fit.info.at_maximum_likelihood:
        yield (
            f"The {which} model was fitted by method={fit.info.method!r} and not refined; the test "
            "needs the maximum likelihood of both. Go on from this fit to its maximum (data are "
            f"those of both fits):\n{_code(fit, which, f'init={which}')}\n"
        )
    if fit.stop is not Stop.CONVERGED:
        yield f"The fit of the {which} model did not converge. {fit.stop.value}"


def _code(fit: HMMFit, which: str, more: str) -> str:
    """Python that fits a model again, to maximum likelihood."""
    given = [f"{role}={name!r}" for role, name in fit.columns.items() if name is not None]
    if fit.info.fixed:
        held = f"{{name: {which}.params[name] for name in {which}.info.fixed}}"
        given.append(f"fixed={held}")
    arguments = ", ".join(["data", *given, "refine='adaptive'", more])
    return f"{which} = {fit._parts().code()}.fit({arguments})"


def _p_words(p: float) -> str:
    return "< 0.0001" if p < 1e-4 else f"= {p:.4f}"


# --- how one model lies within another, and what follows for their likelihood ratio ---------------


class Reference(NamedTuple):
    """A mixture of chi-squared distributions."""

    weights: tuple[float, ...]
    dfs: tuple[int, ...]
    words: str


def reference(smaller: HMMModel, larger: HMMModel, df: int, held: bool = False) -> Reference:
    """What twice the rise of the log likelihood is compared with, for `df` more parameters.

    `held` says that the larger model's effect covariance is not estimated.

    An effect that only the larger model has adds a variance, which is 0 on the boundary, and
    perhaps covariances with other effects. When it is the only new one among those it may be
    correlated with, the covariances are free near the boundary and half of all directions are
    allowed: half of the time the variance is estimated as 0 (Stram and Lee 1994). Several such
    effects are taken as estimated independently of each other (Self and Liang 1987).
    """
    regular = f"chi-squared with {_degrees(df)}"
    new = _new_variances(smaller, larger)
    if held or not new:
        return Reference((1.0,), (df,), regular)
    r = len(new)
    if max(new.values()) > 1 or r > df:
        return Reference(
            (1.0,),
            (df,),
            f"{regular}, which is conservative (the p-value is too large rather than too small): "
            "several variances lie on their boundary, 0, together with their covariances",
        )
    weights = tuple(comb(r, j) / 2**r for j in range(r + 1))
    dfs = tuple(df - r + j for j in range(r + 1))
    parts = ", ".join(f"{w:g} x {k}" for w, k in zip(weights, dfs, strict=True))
    variances = "variance lies on its" if r == 1 else "variances lie on their"
    return Reference(
        weights,
        dfs,
        f"a mixture of chi-squared distributions (weight x degrees of freedom: {parts}): in the "
        f"smaller model {r} {variances} boundary, 0",
    )


def _degrees(df: int) -> str:
    return f"{df} degree{'' if df == 1 else 's'} of freedom"


def _new_variances(smaller: HMMModel, larger: HMMModel) -> Counter[int]:
    """The new effects' variances, counted by the effects that they may be correlated with."""
    known = set(smaller.effect_names)
    new = [i for i, name in enumerate(larger.effect_names) if name not in known]
    if larger.effect_covariance == "isotropic":  # one variance for all
        return Counter() if smaller.n_effects or not new else Counter([0])
    if larger.effect_covariance == "diagonal":
        return Counter(new)
    return Counter(int(larger.effect_blocks[i]) for i in new)


def nesting_doubts(smaller: HMMModel, larger: HMMModel) -> Iterator[str]:
    """What speaks against the smaller model being a special case of the larger one."""
    found = list(_extras(smaller, larger))
    if found:
        yield (
            f"The smaller model has what the larger one has not: {'; '.join(found)}. The test "
            "holds only if it is a special case of the larger one all the same."
        )


def _extras(smaller: HMMModel, larger: HMMModel) -> Iterator[str]:
    kinds, others = (
        {name: type(p.family).__name__ for p in model.emissions for name in p.outcomes}
        for model in (smaller, larger)
    )
    for name, kind in kinds.items():
        # A Gaussian with a formula for its sd is a Normal inside.
        if others[name] not in (kind, "Normal" if kind == "Gaussian" else kind):
            yield f"another family for {name!r}"
    of_larger = {_key(line): line.terms for line in _lines(larger)}
    for line in _lines(smaller):
        # A line that the larger model does not spell out is free, but constant.
        extra = [t for t in line.terms if t not in of_larger.get(_key(line), ("Intercept",))]
        if extra:
            yield f"the terms {', '.join(extra)} of {line.label or line.parameter!r}"
    of_smaller = smaller.spec.constraints
    said = [text for text in larger.spec.constraints if text not in of_smaller]
    if said:
        yield f"freedom where the larger model has constraints ({'; '.join(said)})"
    if larger.stationary and not smaller.stationary:
        yield "a first state of its own"
    effects = [name for name in smaller.effect_names if name not in larger.effect_names]
    if effects:
        yield f"the effects {', '.join(effects)}"
    if _looser(smaller, larger) or (
        larger.effect_covariance == "isotropic" and 0 < smaller.n_effects < larger.n_effects
    ):
        kept = f"{smaller.effect_covariance!r} within {larger.effect_covariance!r}"
        yield f"another structure of the effect covariance ({kept}, {_sizes(smaller, larger)})"


def _looser(smaller: HMMModel, larger: HMMModel) -> bool:
    """Whether the smaller model's effects may vary in ways that the larger one's may not."""
    order = ("isotropic", "diagonal", "block", "full")
    one, other = (order.index(model.effect_covariance) for model in (smaller, larger))
    return one > other and smaller.n_effects > 1


def _sizes(smaller: HMMModel, larger: HMMModel) -> str:
    return f"{smaller.n_effects} within {count(larger.n_effects, 'effect')}"


def _lines(model: HMMModel) -> Iterator[Line]:
    of_emissions = (line for emission in model.emissions for line in emission.lines)
    return chain(of_emissions, model.state_lines)


def _key(line: Line) -> tuple[str, str, str]:
    return line.outcome, line.parameter, line.label
