"""Two nested models on the same data: whether the larger one is better than by chance."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from avem.errors import AvemWarning, ModelError
from avem.fits.hmm_fit import HMMFit
from avem.fits.notebook import paragraphs
from avem.fits.words import count
from avem.inference.stop import Stop
from avem.workflows.nesting import nesting_doubts, reference, tail
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

    Both must be maximum likelihood fits to the same data, with the same numbers of states and of
    clusters. By default a fit is refined to maximum likelihood only where that matters: of two fits
    one may be and the other not. A warning then says which, with the code that goes on to its
    maximum; fitting both with ``refine="adaptive"`` avoids it.

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
    _check_sizes(smaller, larger)
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


def _check_sizes(smaller: HMMFit, larger: HMMFit) -> None:
    one, other = smaller.model, larger.model
    for what, k, m, instead in (
        ("states", one.n_states, other.n_states, "avem.select"),
        ("clusters", one.n_clusters, other.n_clusters, "avem.select(..., clusters=range(1, 4))"),
    ):
        if k != m:
            raise ModelError(
                f"The fits have {k} and {m} {what}. That is no regular test: with fewer {what}, "
                "the parameters of the others are not defined, and no chi-squared distribution "
                f"holds. Compare numbers of {what} with {instead}."
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
