"""What only the report of a hidden Markov model says."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from avem.data import Panel
from avem.fits.hmm_fit import HMMFit
from avem.fits.predict.at import (
    at_words,
    average_moves,
    average_start,
    occupancy,
    places,
    row_means,
)
from avem.fits.report.estimates import head, section_table
from avem.fits.report.frame import PageSection
from avem.fits.report.hmm_words import model_code, model_words, reading
from avem.fits.report.html import figure_html, number, side_by_side, table
from avem.fits.report.parts import OutcomeFacts, Parts
from avem.fits.sections import (
    effects_frame,
    emission_frames,
    move_frames,
    start_frames,
)
from avem.models.hmm import by_spec


@dataclass(frozen=True)
class HMMParts(Parts):
    """The parts of a hidden Markov model's report."""

    fit: HMMFit

    title: ClassVar[str] = "Mixed hidden Markov model"
    plain_title: ClassVar[str] = "Hidden Markov model"
    draws_are_cheap: ClassVar[bool] = False

    def model_words(self, subject: str) -> list[str]:
        return model_words(self.fit.model, subject)

    def reading(self) -> str:
        return reading(self.fit)

    def code(self) -> str:
        return model_code(self.fit.model.spec)

    def caveats(self) -> list[str]:
        custom = any(spec.family.cannot_save for spec in self.fit.model.spec.outcomes)
        return ["The functions of a custom family are yours to keep."] if custom else []

    def facts(self) -> list[tuple[str, str]]:
        agreeing, n = self.fit.info.starts_agreeing, len(self.fit.info.start_gaps)
        return [(f"{agreeing} of {n}", "starts agree")] if n > 1 else []

    def outcomes(self, y: np.ndarray) -> list[OutcomeFacts]:
        return [
            OutcomeFacts(name, family.describe(), y[:, place.column], family.levels)
            for place in places(self.fit.model)
            for name, family in [(place.name, place.piece.family)]
        ]

    def starts(self) -> str:
        info = self.fit.info
        return (
            f"{len(info.start_gaps)} starting points were tried: {info.starts_agreeing} found the "
            f"best solution, and their bounds spread over {number(max(info.start_gaps))}."
        )

    def estimates(self) -> Iterator[PageSection]:
        yield PageSection("states", "States", _states(self.fit))
        yield PageSection("emissions", "Emissions", _emissions(self.fit))

    def spread(self) -> str:
        return section_table(effects_frame(self.fit))

    def static_states(self) -> str:
        caption = (
            "Outcomes over time. Colours are decoded states; the dark line is the state's mean for "
            "the subject. Gaps are missing values, dashed lines separate sequences."
        )
        alt = "Outcomes of some subjects over time, coloured by decoded state."
        return figure_html(self.fit.plot.states(), alt, caption)

    def columns(self, panel: Panel) -> dict[str, Any]:
        fit = self.fit
        data, state = fit.model.read(panel), fit._decoded()
        means = row_means(fit, data, state, panel.row_subject)
        outcomes = []
        for j, place in enumerate(places(fit.model)):
            y, levels = data.Y[:, place.column], place.piece.family.levels
            one = {"name": place.name, "y": y, "levels": None, "fitName": "state's mean"}
            if levels is not None:
                one["levels"] = [str(level) for level in levels]
                one["fitName"] = f"probability of {levels[-1]}"
            mean = np.where(np.isnan(y), np.nan, means[:, j])
            outcomes.append(one if np.isnan(mean).all() else one | {"fit": mean})
        chance = fit._state_probabilities(fit._own_data)
        return {"state": state, "chance": list(chance.T), "outcomes": outcomes}


def _states(fit: HMMFit) -> str:
    """Shares, dwell times and moves."""
    matrix = average_moves(fit)
    if fit.panel is None:
        share, what = occupancy(fit), "Share of time in the long run"
    else:
        decoded = np.bincount(fit._decoded(), minlength=len(matrix))
        share, what = decoded / decoded.sum(), "Share of rows (decoded)"
    stay = np.diagonal(matrix)
    dwell = [f"{1 / (1 - p):.4g}" if p < 1 else "for ever" for p in stay]
    moves, first = fit.model.transition.lines, fit.model.initial.lines
    rows = [
        [what, *(f"{s:.1%}" for s in share)],
        [f"Mean dwell time (rows){at_words(moves)}", *dwell],
        [f"Initial probability{at_words(first)}", *map(number, average_start(fit))],
    ]
    heads = [head(f"state {k}") for k in range(len(matrix))]
    parts = [table("Each state", ["", *heads], rows)]
    parts += [section_table(section) for section in move_frames(fit)]
    if "initial_coef" in fit.params:  # without a formula, the table above has all there is
        parts += [section_table(section) for section in start_frames(fit)]
    stays = ", ".join(f"state {k} stays with probability {p:.3f}" for k, p in enumerate(stay))
    alt = f"Heat map of the transition matrix: {stays}."
    return side_by_side(parts) + figure_html(fit.plot.transitions(), alt, "")


def _emissions(fit: HMMFit) -> str:
    """What each state emits."""
    parts = [
        section_table(section)
        for pieces in by_spec(fit.model)
        for section in emission_frames(fit, pieces)
    ]
    families = [piece.family for piece in fit.model.emissions]
    caption = "What each state emits, weighted by how often the state occurs."
    if any(family.linear_gaussian for family in families):
        caption += " Gaussian densities are those over all subjects, effects and noise together."
    if any(not f.linear_gaussian and f.alone(0) is not None for f in families):
        caption += " The labels say where other densities and probabilities are drawn."
    figure = fit.plot.emissions()
    if len(figure.axes) > len(fit.model.outcomes):
        caption += " Then, how each state responds to covariates, the others at their averages."
    alt = f"Fitted density of each state for {', '.join(fit.model.outcomes)}."
    return side_by_side(parts) + figure_html(figure, alt, caption)
