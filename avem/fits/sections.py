"""The estimates of a fit as titled tables, with a column per state."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

from avem.components.structure import Line, Piece
from avem.families import Custom, Gaussian, Normal
from avem.families.base import Family
from avem.fits.predict.at import at_words, average_moves, average_predictors, levels_of
from avem.models.hmm_params import by_spec, param_name

if TYPE_CHECKING:
    from avem.fits.hmm_fit import HMMFit

_NAMES = ("bernoulli", "cauchy", "mises", "poisson", "student")


class Section(NamedTuple):
    """One table."""

    title: str
    frame: pd.DataFrame
    chances: bool
    """The numbers are probabilities."""


def frames(fit: HMMFit) -> list[Section]:
    """All of them: emissions, transitions, first state, effects."""
    found = [section for pieces in by_spec(fit.model) for section in emission_frames(fit, pieces)]
    found += [*move_frames(fit), *start_frames(fit)]
    return [*found, effects_frame(fit)] if fit.model.n_effects else found


def describe_family(family: Any) -> str:
    """A family in words."""
    if isinstance(family, Gaussian):
        return f"Gaussian ({family.covariance})"
    if isinstance(family, Normal):  # a Gaussian whose sd has a formula
        return "Gaussian"
    words = family.name.split("_")
    return " ".join(word.capitalize() if word in _NAMES else word for word in words)


def emission_names(pieces: list[Piece]) -> list[str]:
    """The parameters of the pieces of one formula, without their prefix."""
    family = pieces[0].family
    if isinstance(family, Custom):
        return [name for name, _ in family.params]
    if isinstance(family, Gaussian):
        return ["coef", family.noise_name]
    return list(dict.fromkeys(param_name(line) for line in pieces[0].lines))


# --- emissions ----------------------------------------------------------------------------------


def emission_frames(fit: HMMFit, pieces: list[Piece]) -> Iterator[Section]:
    """The tables of the outcomes of one formula."""
    prefix, family = pieces[0].prefix, pieces[0].family
    states = _states(fit)

    def section(title: str, values: Any, index: Any, chances: bool = False) -> Section:
        title = f"{prefix[:-1]}: {title}" if prefix else title[0].upper() + title[1:]
        return Section(title, pd.DataFrame(values, index=index, columns=states), chances)

    params = {name: fit.params[prefix + name] for name in emission_names(pieces)}
    if isinstance(family, Custom):
        yield section("parameters", np.array(list(params.values())), list(params))
        return
    lines = [line for piece in pieces for line in piece.lines]
    outcomes = [name for piece in pieces for name in piece.outcomes]
    for name, value in params.items():
        if name == "coef":
            own = [line for line in lines if not line.parameter]
            yield section(f"coefficients{_link_words(family)}", _flat(value), _labels(own))
        elif isinstance(family, Gaussian):
            covariance = family.noise_from_params(value, len(outcomes))
            sd = np.sqrt(np.diagonal(covariance, axis1=1, axis2=2))
            yield section("noise (standard deviation)", sd.T, outcomes)
            if family.covariance == "full" and len(outcomes) > 1:
                pairs = [(i, j) for i in range(len(outcomes)) for j in range(i)]
                values = [covariance[:, i, j] / (sd[:, i] * sd[:, j]) for i, j in pairs]
                index = [f"{outcomes[i]} with {outcomes[j]}" for i, j in pairs]
                yield section("noise (correlation)", values, index)
        elif value.ndim == 2:
            yield section(name, value.T, outcomes)
        else:
            own = [line for line in lines if param_name(line) == name]
            word = name.removesuffix("_coef")
            yield section(f"coefficients of {word} (link scale)", _flat(value), _labels(own))
    if isinstance(family, Family):
        for title, rows, chances in _natural(fit, pieces):
            yield section(title, np.array(list(rows.values())), list(rows), chances)


def _natural(fit: HMMFit, pieces: list[Piece]) -> Iterator[tuple[str, dict[str, np.ndarray], bool]]:
    """What has a formula, on the scale people think in: (title, rows, are they probabilities)."""
    first = pieces[0].family
    assert isinstance(first, Family)
    etas = [average_predictors(fit, piece) for piece in pieces]
    chances = first.takes_levels or first.name == "binomial"
    rows: dict[str, np.ndarray] = {}
    for piece, eta in zip(pieces, etas, strict=True):
        rows.update(_location(piece, eta))
    locations = [line for piece in pieces for line in piece.lines if not line.parameter]
    own = [eta[0] for eta in etas]
    if len(rows) != len(own) or not np.allclose(list(rows.values()), own, rtol=1e-8):
        word = "probabilities" if chances else first.parameters[0].name
        yield word + at_words(locations), rows, chances
    # Locations differ in number where outcomes differ in levels; further parameters do not.
    for i, parameter in list(enumerate(first.parameters))[first.n_location :]:
        lines = [piece.lines[i] for piece in pieces]
        if lines[0].parameter and lines[0].part >= 0:
            values = [parameter.link.to_natural(eta[i]) for eta in etas]
            named = zip((piece.outcomes[0] for piece in pieces), values, strict=True)
            yield parameter.name + at_words(lines), dict(named), False


def _location(piece: Piece, etas: tuple[np.ndarray, ...]) -> dict[str, np.ndarray]:
    family, outcome, levels = piece.family, piece.outcomes[0], levels_of(piece)
    assert isinstance(family, Family)
    if levels is None:
        return {outcome: family.parameters[0].link.to_natural(etas[0])}
    if family.name == "bernoulli":
        return {f"{outcome} = {levels[1]}": family.mean(etas)}
    return {f"{outcome} = {level}": p for level, p in family.natural(etas).items()}


def _link_words(family: Gaussian | Family) -> str:
    if isinstance(family, Gaussian):
        return ""
    if family.name == "categorical":
        return " (log odds against the first level)"
    link = family.parameters[0].link.name
    return "" if link in ("identity", "angle") else f" ({link} scale)"


def _labels(lines: list[Line]) -> pd.MultiIndex:
    rows = [(line.label, term) for line in lines for term in line.terms]
    return pd.MultiIndex.from_tuples(rows, names=["outcome", "term"])


def _flat(value: np.ndarray) -> np.ndarray:
    return value.reshape(len(value), -1).T


# --- states and effects -------------------------------------------------------------------------


def move_frames(fit: HMMFit) -> Iterator[Section]:
    """Transitions."""
    states, moves = _states(fit), fit.model.structure.moves
    if "transition_coef" in fit.params:
        pairs = [(k, m) for k, m in product(range(len(states)), repeat=2) if k != m]
        values = [fit.params["transition_coef"][k, m] for k, m in pairs]
        index, terms = [f"{k} -> {m}" for k, m in pairs], list(moves[0].terms)
        frame = pd.DataFrame(values, index=index, columns=terms)
        yield Section("Transitions (log odds against staying)", frame, False)
    frame = pd.DataFrame(average_moves(fit), index=states, columns=states)
    yield Section(f"Transition probabilities{at_words(moves)} (from row to column)", frame, True)


def start_frames(fit: HMMFit) -> Iterator[Section]:
    """The first state; nothing where it is stationary."""
    model, params, states = fit.model, fit.params, _states(fit)
    if "initial" in params:
        frame = pd.DataFrame([params["initial"]], index=[""], columns=states)
        yield Section("Initial probabilities", frame, True)
    elif "initial_coef" in params:
        terms = list(model.structure.start[0].terms)
        frame = pd.DataFrame(params["initial_coef"].T, index=terms, columns=states)
        yield Section("First state (log odds against state 0)", frame, False)


def effects_frame(fit: HMMFit) -> Section:
    """How much subjects differ."""
    sigma, names = fit.params["effect_covariance"], fit.model.effect_names
    sd = np.sqrt(np.diagonal(sigma))
    with np.errstate(invalid="ignore", divide="ignore"):
        correlation = sigma / np.outer(sd, sd)
    frame = pd.DataFrame({"sd": sd}, index=names)
    if fit.model.effect_covariance in ("full", "block"):
        for j, name in enumerate(names[:-1]):
            later = np.arange(len(sd)) > j
            frame[f"corr. {name}"] = np.where(later, correlation[:, j], np.nan)
    return Section(f"Effects between {len(fit.subjects):,} subjects", frame, False)


def _states(fit: HMMFit) -> list[str]:
    return [f"state {k}" for k in range(fit.model.n_states)]
