"""Does anchoring hold for this fit? In numbers, per subject and effect, and in words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from avem.fits.notebook import paragraphs
from avem.inference.after.diagnose import fails_above
from avem.inference.after.marginal import Anchoring
from avem.inference.tuning import BIAS

if TYPE_CHECKING:
    from avem.fits.fit import Fit

HARD_TO_TELL = "The states are hard to tell apart"
HARD_TO_SEE = "The states are seen only through noise"
_UNSURE = 0.1
"""Share of rows whose most probable state is expected to be another, where that is hard to tell."""


@dataclass(frozen=True, eq=False, repr=False)
class Diagnosis:
    """What one anchor per subject loses.

    Attributes
    ----------
    subjects : pandas.DataFrame
        Per subject: log likelihood, bound, and the two parts of their difference. The anchoring
        gap is lost by running the local pass at one value of the effect; the Gaussian gap by
        taking the effect's posterior to be Gaussian. Neither is negative but for numerical error.
    effects : pandas.DataFrame
        Per effect: the share of information lost by not seeing the states, which q_i ignores; and
        of the effect's posterior variance, what lies between modes (the states have other names
        there), which counts as lost, too.
    advice : str
        What follows, in a sentence or two.

    Examples
    --------
    >>> list(fit.diagnose().subjects.columns[:4])
    ['person', 'loglik', 'bound', 'anchoring_gap']
    """

    subjects: pd.DataFrame
    effects: pd.DataFrame
    advice: str

    def __repr__(self) -> str:
        total = self.subjects[["loglik", "bound", "anchoring_gap", "gaussian_gap"]].sum()
        lines = [
            f"log likelihood {total['loglik']:.3f} = bound {total['bound']:.3f} + anchoring gap "
            f"{total['anchoring_gap']:.3f} + Gaussian gap {total['gaussian_gap']:.3f}"
        ]
        lines += [
            f"{effect}: {lost:.0%} of the information lost, sd between subjects {sd:.3g}"
            for effect, lost, sd in self.effects[["effect", "lost", "sd"]].itertuples(index=False)
        ]
        return "\n".join([*lines, self.advice])

    def _repr_html_(self) -> str:
        return paragraphs(repr(self).splitlines())


def diagnose(fit: Fit, found: Anchoring, sd: np.ndarray, why: str) -> Diagnosis:
    """The tables and the advice; ``sd`` (d,) of the effects, ``why`` information may be lost."""
    names = fit.model.effect_labels
    offset = fit.subject_jacobian
    table = pd.DataFrame(
        {
            str(fit.columns["subject"]): fit.subjects,
            "loglik": found.loglik + offset,
            "bound": found.bound + offset,
            "anchoring_gap": found.structured - found.bound,
            "gaussian_gap": found.loglik - found.structured,
            "effective_nodes": found.quality,
        }
    )
    with np.errstate(divide="ignore", invalid="ignore"):
        of_subject = 1.0 - found.observed / found.complete
    for name, lost in zip(names, of_subject, strict=True):
        table[f"lost: {name}"] = lost
    complete, observed = found.complete.sum(1), found.observed.sum(1)
    lost = 1.0 - found.within * observed / np.maximum(complete, 1e-300)
    effects = pd.DataFrame(
        {
            "effect": names,
            "information_complete": complete,
            "information_observed": observed,
            "between_modes": 1.0 - found.within,
            "lost": lost,
            "sd": sd,
        }
    )
    # What a refined fit keeps of it was found before it was refined, at other parameters.
    bias = None if fit.info.refined else fit.info.bias
    return Diagnosis(table, effects, advice(names, lost, bias, fit.info.refined, why))


def why_lost(unsure: float) -> str:
    """What makes information on effects be lost, from how unsure the states of rows are.

    Empty where the states are plain to see: then it is lost for another reason.
    """
    return HARD_TO_TELL if unsure > _UNSURE else ""


def far(bias: float) -> str:
    """How far anchored estimates are off, in words."""
    return f"{bias:.1f} standard errors" if bias < 10 else "more than 10 standard errors"


def advice(names: list[str], lost: np.ndarray, bias: float | None, refined: bool, why: str) -> str:
    """What follows for the fit: by what anchoring would change, where that is known.

    Otherwise by the share of information lost.
    """
    if not len(names):
        return "The model has no effects: nothing is anchored, and the likelihood is exact."
    limit, pairs = fails_above(len(names)), list(zip(names, lost, strict=True))
    holds = max(lost) <= limit if bias is None else bias < BIAS
    most = f"at most {max(lost.max(), 0.0):.0%} of the information on an effect is lost"
    if holds and bias is None:
        return f"Anchoring holds: {most}."
    if holds:
        return (
            f"Anchoring holds: integrating the effects would move no combination of the parameters "
            f"by a tenth of its standard error, and {most}."
        )
    bad = [f"{name} ({share:.0%})" for name, share in pairs if share > limit]
    said = [f"much of the information on {', '.join(bad)} is lost by not seeing the states"]
    said = said if bad else []
    if bias is not None:
        said.append(f"with one anchor per subject, estimates would be {far(bias)} off")
    text = "; ".join(said)
    words = f"{why}: {text}." if why and bad else f"{text[0].upper()}{text[1:]}."
    if refined:
        return words + " This fit is refined, so its estimates do not suffer from it."
    return words + (
        " Variances between subjects are likely too small and their effects too certain: use "
        "refine='adaptive'."
    )
