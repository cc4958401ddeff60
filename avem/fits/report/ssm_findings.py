"""What was found by a state-space model: its states, what moves them, how subjects differ."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from avem.fits.questions.clock import time_words
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
from avem.fits.report.numbers import number
from avem.fits.ssm_fit import SSMFit


def ssm_findings(fit: SSMFit, level: float | None) -> str:
    """The latent states, covariates, subjects."""
    table = estimates_table(fit, level)
    parts = [latent_cards(fit, table, level), influence_table(fit, influences(fit, table), level)]
    return "\n".join([*parts, spread_table(fit, level)])


def latent_cards(fit: SSMFit, table: Any, level: float | None) -> str:
    """A card per latent state: how long it lasts, what moves it, and through what it is seen."""
    labels, made, continuous = fit.state_labels, [], fit.model.continuous
    mean, unit = f"{fit.model.spec.kinds[0]}_mean", time_words(fit, 1)
    carried = f"drift per {unit}" if continuous else "carried over per row"
    for k, label in enumerate(labels):
        own = table[(table["parameter"] == mean) & (table["to_state"] == k)]
        stays = own[own["state"] == k].iloc[0]
        facts = [Fact(carried, number(stays["estimate"]), ends(stays, level))]
        for row in own[own["state"] != k].to_dict("records"):
            name = f"moved by {labels[int(row['state'])]}"
            facts.append(Fact(name, number(row["estimate"]), ends(row, level)))
        seen = table[(table["parameter"] == "loading_mean") & (table["state"] == k)]
        for row in seen.to_dict("records"):
            facts.append(
                Fact(f"loading of {row['outcome']}", number(row["estimate"]), ends(row, level))
            )
        one = float(stays["estimate"])
        lead = _lead_of_drift(one, fit) if continuous else _lead(one)
        made.append(card(k, label, lead, facts))
    when = f"within one {unit}" if continuous else "from one row to the next"
    note = (
        "A loading is how much the outcome changes when the state rises by 1, which is the sd of "
        f"what moves the state by chance {when}. "
    )
    whose = "All are those of the average subject. " if fit.model.n_effects else ""
    return cards(made, note + whose + interval_words(level))


def half_life(carried: float) -> float:
    """Rows after which half of a state's value is left, if nothing else moved it."""
    return float(np.log(0.5) / np.log(carried)) if 0 < carried < 1 else np.nan


def _lead(carried: float) -> str:
    rows = half_life(carried)
    if carried >= 1:
        return "does not fade"
    if np.isnan(rows):
        return "swings to the other side at every row" if carried < 0 else "fades at once"
    return f"half of it has faded after {number(rows)} row{'' if rows == 1 else 's'}"


def _lead_of_drift(drift: float, fit: SSMFit) -> str:
    if drift >= 0:
        return "does not fade"
    after = half_life(float(np.exp(drift)))
    return f"half of it has faded after {number(after)} {time_words(fit)}"


def influences(fit: SSMFit, table: pd.DataFrame) -> list[Influence]:
    """Every coefficient of a covariate, of outcomes and of states."""
    labels, found = fit.state_labels, []
    terms = {"coef": fit.model.terms, "state_coef": fit.model.state_terms}
    for row in table.to_dict("records"):
        name = str(row["parameter"])
        if name in terms and acts(row, terms[name]):
            on = labels[int(row["state"])] if name == "state_coef" else str(row["outcome"])
            found.append(Influence(str(row["term"]), on, "", row))
    return found


def effect_words(fit: SSMFit, e: int) -> str:
    """What an effect is, for people."""
    labels, model = fit.state_labels, fit.model
    shape = model.shape
    kinds = list(model.effect_kinds)
    kind, place = kinds[e], e - kinds.index(kinds[e])
    if e < len(shape.transition_effects):
        to, source = shape.transition_effects[place]
        if to == source:
            return f"{'drift of' if model.continuous else 'what'} {labels[to]}" + (
                "" if model.continuous else " carries over"
            )
        return f"how {labels[source]} moves {labels[to]}"
    if kind == "loading":
        outcome, state = shape.loading_effects[place]
        return f"loading of {model.outcomes[outcome]} on {labels[state]}"
    outcome, column = shape.coef_effects[place]
    term = model.designs.names[shape.w_cols[column]]
    name = model.outcomes[outcome]
    return f"level of {name}" if term == "Intercept" else f"effect of {term} on {name}"
