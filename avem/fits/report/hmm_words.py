"""A model in words and in code, for readers of a report."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from avem.components.durations import Durations
from avem.components.emission import Emission
from avem.components.lines import Line
from avem.components.outcome import Outcome
from avem.fits.report.html import code, listed, words
from avem.fits.report.sentences import call_code, explained, no_effects
from avem.fits.words import count
from avem.models.given_priors import code_of, told
from avem.models.hmm import HMMModel, by_spec
from avem.models.hmm_specification import Specification

if TYPE_CHECKING:
    from avem.fits.hmm_fit import HMMFit

_STRUCTURES = {
    "full": "with their own variances and, within one group of random effects, correlations",
    "block": "with their own variances and, within a formula, correlations",
    "diagonal": "each with its own variance, not correlated",
    "isotropic": "all with the same variance, not correlated",
}


# --- in words -----------------------------------------------------------------------------------


def model_words(model: HMMModel, subject: str) -> list[str]:
    """Paragraphs of HTML: the outcomes, the chain, the effects."""
    texts = [spec.formula.text for spec in model.spec.outcomes]
    begin = (
        f"The formula is {code(texts[0])}." if len(texts) == 1 else "There are several formulas."
    )
    said = [f"{begin} At each time a subject is in one of {count(model.n_states, 'state')}."]
    for pieces, text in zip(by_spec(model), texts, strict=True):
        said.append((f"{code(text)}: g" if len(texts) > 1 else "G") + _emission(pieces))
    return [" ".join(said), *_chain(model), _effects(model, subject), *_restrictions(model)]


def _restrictions(model: HMMModel) -> list[str]:
    """Constraints and priors."""
    said = []
    if model.spec.constraints:
        said.append(f"Constraints: {listed([code(text) for text in model.spec.constraints])}.")
    if model.spec.priors:
        own = [code(f"{name}: {prior.describe()}") for name, prior in told(model)]
        said.append(
            "Estimates are at the maximum of likelihood times priors (maximum a posteriori), not "
            f"at that of the likelihood. The priors: {listed(own)}."
        )
    return said


def _emission(pieces: list[Emission]) -> str:
    family, lines = pieces[0].family, pieces[0].lines
    outcomes = [name for piece in pieces for name in piece.outcomes]
    be = "is" if len(outcomes) == 1 else "are"
    given = f"iven the state, {words(outcomes)} {be}"
    kind, what, levels = family.sentence, family.location, family.levels
    if levels is not None and len(pieces) == 1:
        kind += f" ({words(levels, 'or')})"
        if family.n_location == 1 and not family.ordered:
            what = f"probability of {code(levels[-1])}"
    location = [line for line in lines if not line.parameter] if what else []
    parts = [_own(what, line, f"no fixed part in its {what}") for line in location[:1]]
    parts += [_own(line.parameter, line, "") for line in lines if line.parameter]
    parts += [family.noise_words] if family.noise_words else []
    if not parts:
        parts = [f"its own {words(family.own_params)}"]
    return f"{given} {kind}; each state has {listed(parts)}."


def _own(what: str, line: Line, without: str) -> str:
    covariates = [term for term in line.terms if term != "Intercept"]
    if covariates:
        return f"a {what} that depends on {words(covariates)} in its own way"
    return f"its own {what}" if line.terms else without


def _chain(model: HMMModel) -> list[str]:
    said = []
    moves, start = model.transition.lines, model.initial.lines
    on = _dependence(moves[:1])
    if model.continuous:
        said.append(
            "Time is continuous: from one row to the next the chain moves at rates, over the "
            "interval that lies between them."
        )
        if on:
            text = code(model.spec.transition.formula.text)
            said.append(f"Their logarithms depend on {on}, for each move in its own way: {text}.")
    elif on:
        said.append(
            f"The log odds of moving to another state, against staying, depend on {on}, for each "
            f"pair of states in its own way: {code(model.spec.transition.formula.text)}."
        )
    elif model.transition.describe():
        said.append(f"{model.transition.describe().capitalize()}.")
    if model.duration is not None:
        said.append(_stays(model.duration))
    if model.n_clusters > 1:
        said.append(
            f"Subjects are of {model.n_clusters} types (clusters), each with first states and "
            "moves of its own; nobody knows of which a subject is, and it never changes."
        )
    if model.stationary:
        said.append("The first state follows the stationary distribution of the transitions.")
    elif start:
        said.append(f"The first state depends on {_dependence(start[:1])}.")
    if model.spec.known is not None:
        said.append(
            f"Where the column {code(model.spec.known)} says in which states a row may be, that is "
            "taken as known, also in the likelihood."
        )
    return [" ".join(said)] if said else []


def _stays(stays: Durations) -> str:
    kinds = list(dict.fromkeys(stays.duration.kinds))
    on = _dependence(stays.lines[:1])
    depends = f", with a location that depends on {on}" if on else ""
    ends = {True: "first and last stays", "start": "first stays", "end": "last stays"}
    cut = ends.get(stays.duration.cut)
    return (
        f"How many rows a stay in a state lasts is {' or '.join(kinds)}{depends}: "
        f"{code(repr(stays.duration))}. When it ends, another state follows"
        + (f"; {cut} may be cut off by the ends of a sequence." if cut else ".")
    )


def _dependence(lines: Iterable[Line]) -> str:
    parts = []
    for line in lines:
        covariates = [term for term in line.terms if term != "Intercept"]
        parts += [words(covariates)] if covariates else []
        parts += ["the subject"] if line.z_cols else []
    return " and ".join(parts)


def _effects(model: HMMModel, subject: str) -> str:
    if not model.n_effects:
        return no_effects(subject)
    effects = model.structure.effects
    alike = ", the same in all states" if all(e.state is None for e in effects) else ""
    return (
        f"Each subject (column {code(subject)}) has {count(model.n_effects, 'effect')} of its "
        f"own{alike}: {words(model.effect_labels)}. Over subjects the effects are Gaussian around "
        f"0, {_STRUCTURES[model.effect_covariance]}."
    )


def reading(fit: HMMFit) -> str:
    """What states, effects and the bound are, for those who meet them first."""
    effects = fit.model.structure.effects
    move = "with the same probabilities"
    if any(effect.to_state is not None for effect in effects):
        move = "with probabilities of their own"
    elif {"transition_coef", "rate_coef"} & set(fit.params):
        move = "with the same probabilities at the same covariates"
    state = (
        "<p><strong>A state</strong> is a condition that a subject is in at one time. It is not "
        "observed itself, only through the outcomes. All subjects have the same states and move "
        f"between them {move}. The numbers of the states are only names.</p>"
    )
    alike = ", in every state alike" if all(effect.state is None for effect in effects) else ""
    return explained(fit, state, f"one subject lies from the average subject{alike}")


# --- in code ------------------------------------------------------------------------------------


def model_code(spec: Specification) -> str:
    """Python that makes the model again, beginning with ``avem.MixedHMM(``."""
    only, *others = spec.outcomes
    if not (others or only.parameters or only.family.code_formulas):
        arguments = [repr(only.formula.text), f"n_states={spec.n_states}"]
        arguments.append(f"family={only.family.code()}")
        arguments += ["effects_by_state=True"] if only.effects_by_state else []
    else:
        listed = "".join(f"\n        {_outcome_code(item)}," for item in spec.outcomes)
        arguments = [f"[{listed}\n    ]", f"n_states={spec.n_states}"]
    if moves := spec.transition.code():
        arguments.append(f"transition={moves}")
    if spec.duration is not None:
        arguments.append(f"duration=avem.{spec.duration!r}")
    if spec.initial is None:
        arguments.append("initial='stationary'")
    elif not spec.initial.is_constant:
        arguments.append(f"initial={spec.initial.text!r}")
    arguments.append(f"effect_covariance={spec.effect_covariance!r}")
    arguments += [f"n_clusters={spec.n_clusters}"] if spec.n_clusters > 1 else []
    if spec.known is not None:
        arguments.append(f"known={spec.known!r}")
        arguments += [f"state_names={list(spec.state_names)!r}"] if spec.state_names else []
    arguments += [f"constraints={list(spec.constraints)!r}"] if spec.constraints else []
    arguments += [f"priors={code_of(spec.priors)}"] if spec.priors else []
    return call_code("avem.MixedHMM", arguments)


def _outcome_code(item: Outcome) -> str:
    family = item.family
    parameters = {name: formula.text for name, formula in item.parameters}
    parameters |= {n: text for n, text in family.code_formulas.items() if n not in parameters}
    arguments = [repr(item.formula.text), family.code()]
    arguments += ["effects_by_state=True"] if item.effects_by_state else []
    arguments += [f"{name}={text!r}" for name, text in parameters.items()]
    return f"avem.outcome({', '.join(arguments)})"
