"""What was found by a hidden Markov model: its states, what moves them, how subjects differ."""

from __future__ import annotations

from html import escape
from typing import Any

import numpy as np
import pandas as pd

from avem.components.emission import Emission
from avem.components.lines import Effect, Line
from avem.components.located_durations import COEFS
from avem.components.param_info import Params
from avem.families.univariate import Mean
from avem.fits.hmm_fit import HMMFit
from avem.fits.predict.at import describe_means, means_at, occupancy
from avem.fits.questions.clock import time_words
from avem.fits.questions.dwell import dwell_table
from avem.fits.questions.occupancy import occupancy_table
from avem.fits.report.findings import (
    Fact,
    Influence,
    acts,
    card,
    cards,
    ends,
    estimates_table,
    influence_table,
    interval_words,
    spread_table,
)
from avem.fits.report.numbers import chance, number, percent
from avem.fits.uncertainty import with_intervals


def hmm_findings(fit: HMMFit, level: float | None) -> str:
    """The states, covariates, subjects."""
    found = influences(fit, level)
    parts = [state_cards(fit, level), influence_table(fit, found, level)]
    return "\n".join([*parts, spread_table(fit, level)])


# --- states ---------------------------------------------------------------------------------------


def shares(fit: HMMFit) -> tuple[pd.DataFrame, str]:
    """Per state, and of what they are the shares: one definition on the whole page."""
    if fit.panel is not None:
        return occupancy_table(fit), "of the rows"
    nothing = np.full(fit.model.n_states, np.nan)
    found = pd.DataFrame({"share": occupancy(fit), "lower": nothing, "upper": nothing})
    return found, "of the time in the long run"


def state_means(fit: HMMFit, level: float | None) -> pd.DataFrame:
    """Where each outcome lies in each state, for an average subject at average covariates."""
    model = fit.model.in_user_units()
    pieces = [piece for piece in model.emissions if describe_means(piece)]
    kinds = [(piece, mean) for piece in pieces for mean in describe_means(piece)]
    states = np.arange(model.n_states)

    def values(params: Params) -> np.ndarray:
        theta = model.params_in(params)
        a = np.tile(model.averages, (len(states), 1))
        none = np.zeros((len(states), model.n_effects))
        found = [means_at(piece, theta, a, states, none) for piece in pieces]
        return np.concatenate(found, axis=1).ravel() if found else np.zeros(0)

    keys = pd.DataFrame(
        {
            "state": np.repeat(states, len(kinds)),
            "what": [_mean_words(*kind) for kind in kinds] * len(states),
            "kind": [_kind(*kind) for kind in kinds] * len(states),
        }
    )
    scales = np.array([mean.scale for _, mean in kinds] * len(states), dtype=object)
    if not kinds:
        return keys.assign(estimate=0.0, lower=0.0, upper=0.0)
    found = with_intervals(fit, keys, values, scales, level)
    return found if level is not None else found.assign(lower=np.nan, upper=np.nan)


def _kind(piece: Emission, mean: Mean) -> str:
    """Of a number: how it is told."""
    return "angle" if piece.family.angular else "chance" if mean.scale == "logit" else "number"


def _mean_words(piece: Emission, mean: Mean) -> str:
    family = piece.family
    if family.levels is not None:
        level = mean.label.removeprefix(f"{mean.outcome}[").removesuffix("]")
        return f"{mean.outcome}: probability of {level if level != mean.outcome else 1}"
    if family.extras:
        return f"{mean.outcome}: share of {' and '.join(family.extras)}"
    return f"{mean.outcome}: mean {'direction' if family.angular else ''}".rstrip()


def state_cards(fit: HMMFit, level: float | None) -> str:
    """A card per state, under a bar of their shares."""
    labels = fit.state_labels
    share, of = shares(fit)
    dwell: Any = dwell_table(fit, None, level)
    means: Any = state_means(fit, level)
    made = []
    for k, label in enumerate(labels):
        facts = []
        for row in dwell[dwell["state"] == k].to_dict("records") if len(labels) > 1 else []:
            fact = _dwell_fact(row, level, time_words(fit))
            cluster = f", in cluster {row['cluster']}" if "cluster" in row else ""
            facts.append(fact._replace(name=fact.name + cluster))
        seen = k not in fit.model.silent
        for row in means[means["state"] == k].to_dict("records") if seen else []:
            say = chance if row["kind"] == "chance" else number
            unit = " rad" if row["kind"] == "angle" else ""
            facts.append(Fact(str(row["what"]), say(row["estimate"]) + unit, ends(row, level, say)))
        made.append(card(k, label, f"{percent(share['share'].iloc[k])} {of}", facts))
    return _bar(labels, share["share"].tolist(), of) + cards(made, _note(fit, level))


def _dwell_fact(row: Any, level: float | None, unit: str) -> Fact:
    long = float(row["expected"])
    if not np.isfinite(long):
        return Fact("never left", "for ever")
    return Fact("lasts on average", f"{number(long)} {unit}", ends(row, level))


def _note(fit: HMMFit, level: float | None) -> str:
    lines = [*fit.model.state_lines]
    lines += [line for piece in fit.model.emissions for line in piece.lines]
    at = ["of an average subject"] if any(line.z_cols for line in lines) else []
    if any(term != "Intercept" for line in lines for term in line.terms):
        at.append("at average covariates")
    if any(line.offset >= 0 for line in lines):
        at.append("at the average offset")
    said = ["A share is the mean probability of the state over all rows."] if fit.panel else []
    said += [f"Durations and means are those {' '.join(at)}."] if at else []
    return " ".join([*said, interval_words(level)])


def _bar(labels: tuple[str, ...], share: list[float], of: str) -> str:
    """All shares as one bar."""
    pairs = list(zip(labels, share, strict=True))
    words = ", ".join(f"{label} {percent(part)}" for label, part in pairs)
    parts = "".join(
        f'<span style="flex-grow:{max(part, 0.0):.4f};background:var(--s{k})"></span>'
        for k, (_, part) in enumerate(pairs)
    )
    alt = escape(f"Shares {of}: {words}.")
    return f'<div class="shares" role="img" aria-label="{alt}">{parts}</div>'


# --- covariates -----------------------------------------------------------------------------------


def influences(fit: HMMFit, level: float | None) -> list[Influence]:
    """Every coefficient of a covariate."""
    labels, found = fit.state_labels, []
    targets = {
        (piece.prefix + line.param_name, line.label): (piece, line)
        for piece in fit.model.emissions
        for line in piece.lines
    }
    chain = {
        "transition_coef": fit.model.transition.lines,
        "rate_coef": fit.model.transition.lines,
        "initial_coef": fit.model.initial.lines,
    }
    if fit.model.duration is not None:
        chain[COEFS] = fit.model.duration.lines[:1]
    for row in estimates_table(fit, level).to_dict("records"):
        name, key = str(row["parameter"]), (str(row["parameter"]), str(row["outcome"]))
        lines = chain.get(name) or ([targets[key][1]] if key in targets else [])
        if not lines or not acts(row, lines[0].terms):
            continue
        k, measure = int(row["state"]), "odds"
        if key in targets and k in fit.model.silent:  # a copy of another's
            continue
        if name == "transition_coef":
            on = f"moving from {labels[k]} to {labels[int(row['to_state'])]} instead of staying"
        elif name == "rate_coef":
            on = f"moving from {labels[k]} to {labels[int(row['to_state'])]}"
            measure = "rate"
        elif name == "initial_coef":
            on = f"starting in {labels[k]} instead of {labels[0]}"
        elif name == COEFS:
            on, measure = f"stays in {labels[k]}", "length"
        else:
            what, measure = _target(*targets[key])
            on = f"{what} in {labels[k]}"
        if "cluster" in row and not pd.isna(row["cluster"]):
            on += f", in cluster {row['cluster']}"
        found.append(Influence(str(row["term"]), on, measure, row))
    return found


def _target(piece: Emission, line: Line) -> tuple[str, str]:
    """What a linear predictor describes, and what its coefficients multiply."""
    family = piece.family
    links = {parameter.name: parameter.link.name for parameter in family.parameters}
    if line.parameter:
        link = links.get(line.parameter, "identity")
        return f"{line.parameter} of {line.outcome}", {"log": line.parameter}.get(link, "")
    if family.levels is not None:
        level = line.label.removeprefix(f"{line.outcome}[").removesuffix("]")
        level = family.levels[-1] if level == line.outcome else level
        return f"{line.outcome} being {level} instead of {family.levels[0]}", "odds"
    link = next(iter(links.values()), "identity")
    word = "direction" if family.angular else family.location
    return f"{word} of {line.outcome}", {"logit": "odds", "log": family.location}.get(link, "")


# --- subjects -------------------------------------------------------------------------------------


def effect_words(effect: Effect, fit: HMMFit) -> str:
    """What an effect is, for people: the level of an outcome, or what a covariate does to it."""
    labels, level = fit.state_labels, "level of "
    if effect.to_state is not None:
        scale = "log rate" if fit.model.continuous else "log odds"
        what = f"moving from {labels[effect.state or 0]} to {labels[effect.to_state]} ({scale})"
        level = ""
    elif not effect.outcome:
        what, level = f"starting in {labels[effect.state or 0]} (log odds)", ""
    else:
        what = f"{effect.parameter} of {effect.outcome}" if effect.parameter else effect.outcome
        what += _scale(effect, fit)
        what += "" if effect.state is None else f" in {labels[effect.state]}"
    if effect.term == "Intercept":
        return level + what
    if _is_custom(effect, fit):
        return f"{effect.term} of {what}"
    return f"effect of {effect.term} on {what}"


def _is_custom(effect: Effect, fit: HMMFit) -> bool:
    """Whether its term is a parameter of a density that the user wrote, not a covariate."""
    owners = [piece for piece in fit.model.emissions if effect.outcome in piece.outcomes]
    return any(piece.family.alone(0) is None for piece in owners)


def _scale(effect: Effect, fit: HMMFit) -> str:
    """Of a link, where there is one."""
    for piece in fit.model.emissions:
        for line in piece.lines:
            own = line.label if not effect.parameter else line.outcome
            if own == effect.outcome and line.parameter == effect.parameter:
                links = {p.name: p.link.name for p in piece.family.parameters}
                name = links.get(effect.parameter) or next(iter(links.values()), "identity")
                if piece.family.levels is not None and not effect.parameter:
                    name = "logit"
                return {"log": " (log scale)", "logit": " (log odds)"}.get(name, "")
    return ""
