"""What only the report of a hidden Markov model says."""

from __future__ import annotations

import numpy as np

from avem.fits.hmm_fit import HMMFit
from avem.fits.predict.at import at_words, average_moves, average_start, occupancy
from avem.fits.report.estimates import section_table, state_heads
from avem.fits.report.html import figure_html, number, side_by_side, table
from avem.fits.sections import effects_frame, emission_frames, move_frames, start_frames
from avem.models.hmm_params import by_spec


def state_names(fit: HMMFit) -> list[str]:
    """As they are called everywhere on the page."""
    return [f"state {k}" for k in range(fit.model.n_states)]


def static_states(fit: HMMFit) -> str:
    """Some subjects over time, as a picture."""
    caption = (
        "Outcomes over time. Colours are decoded states; the dark line is the state's mean for "
        "the subject. Gaps are missing values, dashed lines separate sequences."
    )
    alt = "Outcomes of some subjects over time, coloured by decoded state."
    return figure_html(fit.plot.states(), alt, caption)


def states(fit: HMMFit) -> str:
    """Shares, dwell times and moves."""
    matrix = average_moves(fit)
    if fit.panel is None:
        share, what = occupancy(fit), "Share of time in the long run"
    else:
        decoded = np.bincount(np.asarray(fit.decode()), minlength=len(matrix))
        share, what = decoded / decoded.sum(), "Share of rows (decoded)"
    stay = np.diagonal(matrix)
    dwell = [f"{1 / (1 - p):.4g}" if p < 1 else "for ever" for p in stay]
    structure = fit.model.structure
    rows = [
        [what, *(f"{s:.1%}" for s in share)],
        [f"Mean dwell time (rows){at_words(structure.moves)}", *dwell],
        [f"Initial probability{at_words(structure.start)}", *map(number, average_start(fit))],
    ]
    parts = [table("Each state", ["", *state_heads(state_names(fit))], rows)]
    parts += [section_table(section) for section in move_frames(fit)]
    if "initial_coef" in fit.params:  # without a formula, the table above has all there is
        parts += [section_table(section) for section in start_frames(fit)]
    stays = ", ".join(f"state {k} stays with probability {p:.3f}" for k, p in enumerate(stay))
    alt = f"Heat map of the transition matrix: {stays}."
    return side_by_side(parts) + figure_html(fit.plot.transitions(), alt, "")


def emissions(fit: HMMFit) -> str:
    """What each state emits."""
    parts = [
        section_table(section)
        for pieces in by_spec(fit.model)
        for section in emission_frames(fit, pieces)
    ]
    families = [piece.family for piece in fit.model.structure.pieces]
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


def spread(fit: HMMFit) -> str:
    """How much subjects differ."""
    return section_table(effects_frame(fit))
