"""A state-space model in words and in code, for readers of a report."""

from __future__ import annotations

from typing import TYPE_CHECKING

from avem.fits.questions.clock import time_words
from avem.fits.report.html import code, listed, words
from avem.fits.report.sentences import call_code, explained, no_effects
from avem.fits.words import count
from avem.models.ssm import SSMModel
from avem.models.ssm_specification import RANDOM, SSMSpecification

if TYPE_CHECKING:
    from avem.fits.ssm_fit import SSMFit

_KINDS = {
    "transition": "transitions",
    "drift": "drifts",
    "loading": "loadings",
    "coef": "coefficients of the outcomes",
}


def ssm_model_words(model: SSMModel, subject: str) -> list[str]:
    """Paragraphs of HTML: the outcomes, the states, the effects."""
    q = model.n_latent
    outcomes = [
        f"The formula of the outcomes is {code(model.spec.text)}. At each time "
        f"{words(model.outcomes)} {'reflects' if len(model.outcomes) == 1 else 'reflect'} "
        f"{count(q, 'latent state')} through the loadings, plus Gaussian noise of each outcome's "
        "own."
    ]
    covariates = [term for term in model.terms if term != "Intercept"]
    if covariates:
        outcomes.append(f"Their level depends on {words(covariates)}.")
    how = "from each row to the next by a matrix of transitions, plus Gaussian noise of variance 1"
    if model.continuous:
        how = (
            "in continuous time, with a drift that depends on where "
            f"{'it is' if q == 1 else 'they are'}, plus Gaussian noise of variance 1 per unit of "
            "time"
        )
    states = (
        f"{'The state moves' if q == 1 else 'The states move'} {how}"
        + (" that is independent between states" if q > 1 else "")
        + "."
    )
    if model.drive_cols:
        states += f" Covariates act on them, too: {code(model.spec.state.text)}."
    states += (
        " That variance, loadings that are 0 above the diagonal, and the sign of each state's "
        "first loading give the states their scale, order and sign."
    )
    return [" ".join(outcomes), states, _effects(model, subject)]


def _effects(model: SSMModel, subject: str) -> str:
    if not model.n_effects:
        return no_effects(subject)
    structures: dict[str, str] = dict(
        zip(model.spec.kinds, model.spec.effect_covariance, strict=True)
    )
    parts = [
        f"{_KINDS[kind]} ({'correlated' if structures[kind] == 'full' else 'not correlated'})"
        for kind in dict.fromkeys(model.effect_kinds)
    ]
    return (
        f"Each subject (column {code(subject)}) has {listed(parts)} of its own: "
        f"{count(model.n_effects, 'effect')}, which over subjects are Gaussian around 0. Effects "
        "are deviations from the population's matrices."
    )


def ssm_reading(fit: SSMFit) -> str:
    """What states, effects and the bound are, for those who meet them first."""
    when = f"within one {time_words(fit, 1)}" if fit.model.continuous else "per step"
    state = (
        "<p><strong>A latent state</strong> is a quantity that changes from row to row. It is not "
        f"observed itself, only through the outcomes. Its unit is that of its own noise: {when} "
        "it is pushed by a random amount with sd 1. Bands hold it with a probability "
        "of 95%, given the parameters and the subject's effects.</p>"
    )
    return explained(fit, state, "one entry of a subject's matrices lies from the population's")


def ssm_model_code(spec: SSMSpecification) -> str:
    """Python that makes the model again, beginning with ``avem.MixedSSM(``."""
    arguments = [repr(spec.formula.text), f"n_latent={spec.n_latent}"]
    if spec.state.text.replace(" ", "") != "~0":
        arguments.append(f"state={spec.state.text!r}")
    if spec.random != RANDOM:
        word = spec.kinds[RANDOM.index(spec.random[0])] if spec.random else "none"
        arguments.append(f"random={word!r}")
    if any(structure != "full" for structure in spec.effect_covariance):
        by_kind = dict(zip(spec.kinds, spec.effect_covariance, strict=True))
        arguments.append(f"effect_covariance={by_kind!r}")
    named = ("time_scale", "unit")
    arguments += [f"{name}={code}" for name, code in spec.options.items() if name in named]
    return call_code("avem.MixedSSM", arguments)
