"""The estimates of a fit as titled tables, with a column per state.

A section says, beside its numbers, how their intervals are made, whether 0 is a value to test them
against, and how its cells are called when they stand one below the other.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

from avem.components.base import Row
from avem.components.clusters import SHARES
from avem.components.duration import families_of
from avem.components.emission import Emission
from avem.components.lines import Line
from avem.components.located_durations import COEFS, SHAPE
from avem.families.base import Family
from avem.fits.predict.at import at_words, average_moves, average_predictors, stays_at
from avem.fits.questions.clock import average_rates, time_words
from avem.models.hmm import HMMModel, by_spec

if TYPE_CHECKING:
    from avem.fits.hmm_fit import HMMFit


_SCALES = {"standard deviation)": "log", "correlation)": "atanh"}
"""Of tables that a family has of its own, by the end of their titles."""


class Section(NamedTuple):
    """One table."""

    title: str
    frame: pd.DataFrame
    chances: bool
    """The numbers are probabilities."""
    axes: tuple[str, ...] = ()
    """What the levels of columns and rows are, in the order in which a list of cells has them."""
    rows_first: bool = False
    """In such a list, a row follows a row, not a column a column."""
    scale: Any = ""
    """Where intervals are made, for all cells or each: `uncertainty.intervals` has the words."""
    tested: bool = False
    """They are coefficients, and may be 0."""
    ratio: str = ""
    """What exp of a coefficient is: "odds ratio", "rate ratio"; empty where it is nothing."""
    reference: int | None = None
    """The column that others are compared with, all 0 by definition."""


def frames(fit: HMMFit) -> list[Section]:
    """All of them: emissions, transitions, first state, effects."""
    found = [section for pieces in by_spec(fit.model) for section in emission_frames(fit, pieces)]
    found += [*shares_frame(fit), *chain_frames(fit)]
    return [*found, effects_frame(fit)] if fit.model.n_effects else found


def emission_names(pieces: list[Emission]) -> list[str]:
    """The parameters of the pieces of one formula, without their prefix."""
    family, lines = pieces[0].family, pieces[0].lines if pieces[0].family.location else ()
    return [*dict.fromkeys(line.param_name for line in lines), *family.own_params]


# --- emissions ----------------------------------------------------------------------------------


def emission_frames(fit: HMMFit, pieces: list[Emission]) -> Iterator[Section]:
    """The tables of the outcomes of one formula."""
    prefix, family = pieces[0].prefix, pieces[0].family
    links = {parameter.name: parameter.link.name for parameter in family.parameters}
    states = _states(fit)

    def section(title: str, values: Any, index: Any, **more: Any) -> Section:
        title = f"{prefix[:-1]}: {title}" if prefix else title[0].upper() + title[1:]
        frame = pd.DataFrame(values, index=index, columns=states, dtype=float)
        frame.iloc[:, list(fit.model.silent)] = np.nan  # copies of another state's
        axes = ("state", *(index.names if isinstance(index, pd.MultiIndex) else ("outcome",)))
        return Section(title, frame, more.pop("chances", False), axes, **more)

    params = {name: fit.params[prefix + name] for name in emission_names(pieces)}
    lines = [line for piece in pieces for line in piece.lines]
    outcomes = [name for piece in pieces for name in piece.outcomes]
    for name, value in params.items():
        if name in family.own_params:
            continue
        if name == "coef":
            own = [line for line in lines if not line.parameter]
            scales = dict.fromkeys(piece.family.coef_scale for piece in pieces)
            scale = f" ({'; '.join(scales)})" if family.coef_scale else ""
            ratio = location_ratio(family)
            yield section(
                f"coefficients{scale}", _flat(value), _labels(own), tested=True, ratio=ratio
            )
        elif value.ndim == 2:
            whose = list(fit.model.param_info()[prefix + name].names)
            link = links.get(name, "")
            yield section(name, value.T, whose, scale=_free_where(link), chances=link == "logit")
        else:
            own = [line for line in lines if line.param_name == name]
            word = name.removesuffix("_coef")
            yield section(
                f"coefficients of {word} (link scale)",
                _flat(value),
                _labels(own),
                tested=True,
                ratio=ratio_of(word, links.get(word, "")),
            )
    for title, values, index in family.tables({n: params[n] for n in family.own_params}, outcomes):
        yield section(title, values, index, scale=_SCALES.get(title.rpartition(" (")[2], ""))
    for title, rows, chances in natural_scale(fit, pieces):
        link = links.get(title.partition(" at ")[0], "")
        yield section(
            title,
            np.array(list(rows.values())),
            list(rows),
            chances=chances,
            scale="logit" if chances else _free_where(link),
        )


def natural_scale(
    fit: HMMFit, pieces: list[Emission]
) -> Iterator[tuple[str, dict[str, np.ndarray], bool]]:
    """What has a formula, on the scale people think in: (title, rows, are they probabilities)."""
    if not pieces[0].family.parameters:
        return
    families: list[Any] = [piece.family for piece in pieces]
    etas = [average_predictors(fit, piece) for piece in pieces]
    first, outcomes = families[0], [piece.outcomes[0] for piece in pieces]
    rows: dict[str, np.ndarray] = {}
    for family, outcome, eta in zip(families, outcomes, etas, strict=True):
        rows |= family.natural_location(outcome, eta)
    locations = [line for piece in pieces for line in piece.lines if not line.parameter]
    own = [eta[0] for eta in etas]
    if len(rows) != len(own) or not np.allclose(list(rows.values()), own, rtol=1e-8):
        word = "probabilities" if first.chances else first.location
        yield word + at_words(locations), rows, first.chances
    # Locations differ in number where outcomes differ in levels; further parameters do not.
    for i, parameter in list(enumerate(first.parameters))[first.n_location :]:
        lines = [piece.lines[i] for piece in pieces]
        if lines[0].parameter and lines[0].part >= 0:
            values = [parameter.link.to_natural(eta[i]) for eta in etas]
            yield parameter.name + at_words(lines), dict(zip(outcomes, values, strict=True)), False


def ratios_by_parameter(model: HMMModel) -> dict[str, str]:
    """By parameter that holds coefficients, what exp of one of them is."""
    found: dict[str, str] = {"transition_coef": "odds ratio", "initial_coef": "odds ratio"}
    found["rate_coef"] = "hazard ratio"
    if model.duration is not None:
        found[COEFS] = model.duration.ratio
    for piece in model.emissions:
        found[f"{piece.prefix}coef"] = location_ratio(piece.family)
        for parameter in piece.family.parameters:
            name = f"{piece.prefix}{parameter.name}_coef"
            found[name] = ratio_of(parameter.name, parameter.link.name)
    return {name: kind for name, kind in found.items() if kind}


def location_ratio(family: Family) -> str:
    """What exp of a coefficient of the location is; empty where it is nothing people know."""
    if family.levels is not None:
        return "odds ratio"
    first = family.parameters[:1]
    link = first[0].link.name if first else ""
    if link == "log":
        return "rate ratio" if family.discrete else "ratio of means"
    return ratio_of("", link)


def ratio_of(word: str, link: str) -> str:
    """What exp of a coefficient is, by the link and the parameter's name."""
    return {"logit": "odds ratio", "log": f"ratio of {word}s" if word else "ratio"}.get(link, "")


def _free_where(link: str) -> str:
    return link if link in ("log", "logit") else ""


def _labels(lines: list[Line]) -> pd.MultiIndex:
    rows = [(line.label, term) for line in lines for term in line.terms]
    return pd.MultiIndex.from_tuples(rows, names=["outcome", "term"])


def _flat(value: np.ndarray) -> np.ndarray:
    return value.reshape(len(value), -1).T


# --- states and effects -------------------------------------------------------------------------


def shares_frame(fit: HMMFit) -> Iterator[Section]:
    """How many subjects are of each type, where there are several."""
    if fit.model.n_clusters > 1:
        names = [f"cluster {c}" for c in range(fit.model.n_clusters)]
        frame = pd.DataFrame([fit.params[SHARES]], index=[""], columns=names)
        yield Section(
            "Clusters: share of the subjects", frame, True, ("cluster", ""), scale="logit"
        )


def chain_frames(fit: HMMFit, durations: bool = True) -> Iterator[Section]:
    """Durations, moves and the first state, of every type of subjects."""
    if fit.model.n_clusters == 1:
        stays = duration_frames(fit) if durations else ()
        yield from (*stays, *move_frames(fit), *start_frames(fit))
        return
    for c in range(fit.model.n_clusters):
        for section in chain_frames(fit._of_cluster(c), durations):
            title = section.title
            yield section._replace(title=f"Cluster {c}: {title[0].lower()}{title[1:]}")


def duration_frames(fit: HMMFit) -> Iterator[Section]:
    """How long stays last, of a model with durations."""
    stays, states, params = fit.model.duration, _states(fit), fit.params
    if stays is None:
        return
    if COEFS in params:
        own: dict[str, Any] = {"tested": True, "ratio": stays.ratio}
        frame = pd.DataFrame(params[COEFS].T, index=list(stays.lines[0].terms), columns=states)
        yield Section("Durations: location (log scale)", frame, False, ("state", "term"), **own)
    if SHAPE in params:
        families = families_of(stays.duration, fit.model.n_states)
        shown = np.array([bool(family.shape) for family in families])
        words = "/".join(dict.fromkeys(family.shape for family in families if family.shape))
        frame = pd.DataFrame([np.where(shown, params[SHAPE], np.nan)], index=[""], columns=states)
        yield Section(f"Durations: {words}", frame, False, ("state", ""), scale="log")
    mean = stays_at(fit.model, params, fit.model.averages[None]).mean
    frame = pd.DataFrame(mean, index=[""], columns=states)
    title = f"Mean stay{at_words(stays.lines[:1])} (rows)"
    yield Section(title, frame, False, ("state", ""), scale="log above 1")


def move_frames(fit: HMMFit) -> Iterator[Section]:
    """Transitions."""
    states, moves = _states(fit), fit.model.transition.lines
    name = "rate_coef" if fit.model.continuous else "transition_coef"
    if name in fit.params:
        everywhere = [(k, m) for k, m in product(range(len(states)), repeat=2) if k != m]
        there = {(row.where["state"], row.where["to_state"]) for row in _move_rows(fit, name)}
        pairs = [pair for pair in everywhere if pair in there]
        values = [fit.params[name][k, m] for k, m in pairs]
        called, terms = fit.state_names or range(len(states)), list(moves[0].terms)
        index = [f"{called[k]} -> {called[m]}" for k, m in pairs]
        frame = pd.DataFrame(values, index=index, columns=terms)
        title = "Transitions (log odds against staying)"
        if fit.model.continuous:
            title = f"Rates of moves (logarithms, per {time_words(fit, 1)})"
        ratio = ratios_by_parameter(fit.model)[name]
        yield Section(title, frame, False, ("move", "term"), True, tested=True, ratio=ratio)
    over = ""
    if fit.model.continuous:
        rates = average_rates(fit)
        frame = pd.DataFrame(np.where(rates > 0, rates, np.nan), index=states, columns=states)
        kept = ~frame.isna().all(axis=1).to_numpy()
        title = f"Rates per {time_words(fit, 1)}{at_words(moves)} (from row to column)"
        yield Section(title, frame.loc[kept], False, ("from", "to"), True, "log")
        over = f" over 1 {time_words(fit, 1)}"
    frame = pd.DataFrame(average_moves(fit), index=states, columns=states)
    what = "Transition probabilities" if fit.model.duration is None else "Moves when a stay ends"
    title = f"{what}{over}{at_words(moves)} (from row to column)"
    yield Section(title, frame, True, ("from", "to"), True, "logit")


def _move_rows(fit: HMMFit, name: str) -> Iterator[Row]:
    return fit.model.transition.rows(name, fit.params[name])


def start_frames(fit: HMMFit) -> Iterator[Section]:
    """The first state; nothing where it is stationary."""
    model, params, states = fit.model, fit.params, _states(fit)
    if "initial" in params:
        frame = pd.DataFrame([params["initial"]], index=[""], columns=states)
        yield Section("Initial probabilities", frame, True, ("state", ""), scale="logit")
    elif "initial_coef" in params:
        terms = list(model.initial.lines[0].terms)
        frame = pd.DataFrame(params["initial_coef"].T, index=terms, columns=states)
        title = f"First state (log odds against {states[0]})"
        own: dict[str, Any] = {"tested": True, "ratio": "odds ratio", "reference": 0}
        yield Section(title, frame, False, ("state", "term"), **own)


def effects_frame(fit: HMMFit) -> Section:
    """How much subjects differ."""
    sigma, names = fit.params["effect_covariance"], fit.model.effect_labels
    sd = np.sqrt(np.diagonal(sigma))
    with np.errstate(invalid="ignore", divide="ignore"):
        correlation = sigma / np.outer(sd, sd)
    frame = pd.DataFrame({"sd": sd}, index=names)
    if fit.model.effect_covariance in ("full", "block"):
        for j, name in enumerate(names[:-1]):
            later = np.arange(len(sd)) > j
            frame[f"corr. {name}"] = np.where(later, correlation[:, j], np.nan)
    title = f"Effects between {len(fit.subjects):,} subjects"
    scale = np.array(["log"] + ["atanh"] * (frame.shape[1] - 1), dtype=object)
    return Section(title, frame, False, ("", "effect"), scale=scale)


def _states(fit: HMMFit) -> list[str]:
    return list(fit.state_labels)
