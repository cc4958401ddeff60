"""What only the report of a hidden Markov model says."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from avem.data import Panel
from avem.fits.hmm_fit import HMMFit
from avem.fits.plots.covariate import draw_curve, find_curves
from avem.fits.plots.figures import new_figure
from avem.fits.predict.at import places, row_means
from avem.fits.questions.clock import time_words
from avem.fits.report.estimates import section_table
from avem.fits.report.frame import PageSection
from avem.fits.report.hmm_findings import effect_words, hmm_findings
from avem.fits.report.hmm_words import model_code, model_words, reading
from avem.fits.report.html import legend, side_by_side
from avem.fits.report.numbers import chance, number
from avem.fits.report.parts import OutcomeFacts, Parts
from avem.fits.report.svg import figure_html, pictures
from avem.fits.sections import chain_frames, effects_frame, emission_frames, shares_frame
from avem.models.hmm import by_spec

_PANEL = (4.4, 3.3)
"""Inches of one picture: its letters can still be read on a phone."""
_DRAWN = 12
"""Outcomes whose densities are drawn."""
_STILL = 3
"""Subjects that are drawn over time where the page cannot do it itself."""
_TELLS = 0.7
"""Mean probability of the decoded state, below which states count as hard to tell apart; usual for
latent classes (Nagin 2005)."""


@dataclass(frozen=True)
class HMMParts(Parts):
    """The parts of a hidden Markov model's report."""

    fit: HMMFit

    title: ClassVar[str] = "Mixed hidden Markov model"
    plain_title: ClassVar[str] = "Hidden Markov model"
    draws_are_cheap: ClassVar[bool] = False

    def model_words(self, subject: str) -> list[str]:
        return model_words(self.fit.model, subject)

    def findings(self, level: float | None) -> str:
        return hmm_findings(self.fit, level)

    def effect_words(self) -> list[str]:
        return [effect_words(effect, self.fit) for effect in self.fit.model.structure.effects]

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
        tried = f"{len(info.start_gaps)} starting points were tried: {info.starts_agreeing} found "
        apart = max(info.start_gaps)
        if apart < 1e-3:
            return tried + "the best solution, and all ended equally well."
        return tried + f"the best solution, and they ended up to {number(apart)} below it."

    def estimates(self) -> Iterator[PageSection]:
        yield PageSection("states", "Moving between states", _moves(self.fit))
        yield PageSection("emissions", "What each state looks like", _emissions(self.fit))

    def row_states(self) -> np.ndarray:
        return self.fit._decoded()

    def certainty(self) -> str:
        if self.fit.panel is None or self.fit.model.n_states < 2:
            return ""
        likely = self.fit._state_probabilities(self.fit._own_data).max(axis=1).mean()
        said = f"On average, the most probable state of a row has a probability of {chance(likely)}"
        if likely < _TELLS:
            return f"<p>{said}: the states are hard to tell apart.</p>"
        return f"<p>{said}.</p>"

    def correlations(self) -> str:
        section, names = effects_frame(self.fit), self.effect_words()
        frame = section.frame.drop(columns="sd")
        if not frame.shape[1]:
            return ""
        frame = frame.set_axis(names, axis="index").set_axis(names[:-1], axis="columns")
        told = section._replace(title="Correlations between the effects", frame=frame.iloc[1:])
        return section_table(told, self.fit.state_labels)

    def static_states(self) -> str:
        caption = (
            "Outcomes over time. Colours are decoded states; the dark line is the state's mean for "
            "the subject. Gaps are missing values, dashed lines separate sequences."
        )
        alt = "Outcomes of some subjects over time, coloured by decoded state."
        return figure_html(self.fit.plot.states(max_subjects=_STILL), alt, caption)

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


def _moves(fit: HMMFit) -> str:
    """Transitions and the first state."""
    sections = [
        one._replace(frame=one.frame.rename(index={"": "at the start"}))
        for one in (*shares_frame(fit), *chain_frames(fit, durations=False))
    ]
    when = "From one row to the next"
    if fit.model.continuous:
        when = f"Within one {time_words(fit, 1)}"
    words = (
        f"<p>{when} a subject stays in its state or moves to another. The more colour a cell has, "
        "the more probable the move.</p>"
    )
    return words + side_by_side([section_table(one, fit.state_labels) for one in sections])


def _emissions(fit: HMMFit) -> str:
    """What each state emits."""
    parts = [
        section_table(section, fit.state_labels)
        for pieces in by_spec(fit.model)
        for section in emission_frames(fit, pieces)
    ]
    families = [piece.family for piece in fit.model.emissions]
    caption = "What is seen in each state, weighted by how often the state occurs."
    if any(family.linear_gaussian for family in families):
        caption += " Gaussian densities are those over all subjects, effects and noise together."
    if any(not f.linear_gaussian and f.alone(0) is not None for f in families):
        caption += " The labels say where other densities and probabilities are drawn."
    drawn = []
    shown, n = fit.model.outcomes[:_DRAWN], len(fit.model.outcomes)
    for name in shown:
        figure = new_figure(_PANEL)
        ax = figure.subplots()
        fit.plot.emissions(name, ax=ax)
        if (own := ax.get_legend()) is not None:
            own.remove()  # one for all pictures is enough
        drawn.append(figure_html(figure, f"Fitted density of {name} in each state."))
    if n > _DRAWN:
        caption += f" The first {_DRAWN} of {n} outcomes."
    curves = find_curves(fit, list(range(len(shown))), None)
    for curve in curves:
        figure = new_figure(_PANEL)
        draw_curve(figure.subplots(), curve, fit)
        alt = f"The {curve.what} in each state, along {curve.covariate}."
        drawn.append(figure_html(figure, alt))
    if curves:
        caption += " Then, how each state responds to covariates, the others at their averages."
    data = [("bars", "data")] if fit.panel is not None else []
    signs = legend(fit.state_labels, *data, ("dashed", "all states together"))
    return side_by_side(parts) + signs + pictures(drawn, caption)
