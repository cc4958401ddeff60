"""The fit of a state-space model as tables: tidy for computing, and laid out for reading."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from avem.fits.questions.clock import time_words
from avem.fits.sections import Section
from avem.models.ssm import SSMModel

if TYPE_CHECKING:
    from avem.fits.ssm_fit import SSMFit


# --- for reading --------------------------------------------------------------------------------


def ssm_head(model: SSMModel) -> list[str]:
    """The first lines of the summary: the model."""
    spec, q = model.spec, model.n_latent
    head = [
        f"{'Mixed-effects state' if model.n_effects else 'State'}-space model: {spec.text}",
        f"{q} latent state{'s' if q > 1 else ''}, "
        + (f"of the subjects' own: {_differing(model)}" if model.n_effects else "subjects alike"),
    ]
    if model.drive_cols:
        head.append(f"states moved by {spec.state.text}")
    if model.continuous:
        head.append("in continuous time: rows may come at any times")
    head.append(
        "Identified by: noise of the states I, loadings lower triangular, signs by the first "
        "loading of each state."
    )
    return head


def _differing(model: SSMModel) -> str:
    structures: dict[str, str] = dict(
        zip(model.spec.kinds, model.spec.effect_covariance, strict=True)
    )
    kinds = list(model.effect_kinds)
    several = {kind: f" ({structures[kind]})" for kind in kinds if kinds.count(kind) > 1}
    return ", ".join(kind + several.get(kind, "") for kind in dict.fromkeys(kinds))


def ssm_sections(fit: SSMFit) -> Iterator[Section]:
    """The estimates as titled tables."""
    model, params = fit.model, fit.params
    states, outcomes = list(fit.state_labels), list(model.outcomes)

    def section(title: str, values: Any, index: Any, columns: Any, axes: Any, **more: Any):
        frame = pd.DataFrame(values, index=index, columns=columns)
        return Section(title, frame, False, axes, **more)

    by_row: dict[str, Any] = {"rows_first": True, "tested": True}

    word = model.spec.kinds[0]
    dynamics = params[f"{word}_mean"]
    what = f"Drift per {time_words(fit, 1)}" if model.continuous else "Transitions"
    title, axes = f"{what}, mean (to row from column)", ("from", "to")
    yield section(title, dynamics, states, states, axes, tested=True)
    if "state_coef" in params:
        terms = model.state_terms
        title, axes = "Coefficients of the states", ("state", "term")
        yield section(title, params["state_coef"], states, terms, axes, **by_row)
    loadings, axes = _triangle(params["loading_mean"]), ("state", "outcome")
    yield section("Loadings, mean", loadings, outcomes, states, axes, tested=True)
    if "coef" in params:
        axes = ("outcome", "term")
        yield section("Coefficients", params["coef"], outcomes, model.terms, axes, **by_row)
    noise, axes = np.sqrt(params["noise"])[:, None], ("", "outcome")
    yield section("Noise (standard deviation)", noise, outcomes, ["sd"], axes, scale="log")
    sd = np.sqrt(np.diagonal(params["initial_covariance"]))
    first = np.stack([params["initial_mean"], sd])
    scale = np.array([[""], ["log"]], dtype=object)
    yield section("First state", first, ["mean", "sd"], states, ("state", ""), scale=scale)
    yield from _spreads(fit, section, states, outcomes)


def _spreads(fit: SSMFit, section: Any, states: list[str], outcomes: list[str]) -> Iterator[Any]:
    """How much subjects differ, where they do; correlations are in `fit.table()`."""
    model, shape = fit.model, fit.model.shape
    columns = [model.designs.names[c] for c in shape.w_cols]
    word = model.spec.kinds[0]
    for kind, entries, title, rows, names, axes in (
        (word, shape.transition_effects, f"{word}s", states, states, ("from", "to")),
        ("loading", shape.loading_effects, "loadings", outcomes, states, ("state", "outcome")),
        ("coef", shape.coef_effects, "coefficients", outcomes, columns, ("term", "outcome")),
    ):
        if entries:
            values = np.full((len(rows), len(names)), np.nan)
            sd = np.sqrt(np.diagonal(fit.params[f"{kind}_covariance"]))
            values[tuple(np.array(entries).T)] = sd
            used = np.unique([column for _, column in entries])
            kept = [names[column] for column in used]
            title = f"{title.capitalize()}, sd between {len(fit.subjects):,} subjects"
            yield section(title, values[:, used], rows, kept, axes, scale="log")


def _triangle(loading: np.ndarray) -> np.ndarray:
    """Loadings with gaps where the model has none."""
    return np.where(np.tri(*loading.shape, dtype=bool), loading, np.nan)
