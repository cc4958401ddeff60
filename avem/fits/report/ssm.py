"""What only the report of a state-space model says."""

from __future__ import annotations

import numpy as np

from avem.fits.report.estimates import section_table
from avem.fits.report.html import figure_html, number, side_by_side, table
from avem.fits.ssm_fit import SSMFit
from avem.fits.ssm_tables import ssm_sections
from avem.models.ssm_subjects import spectral_radius


def static_states(fit: SSMFit) -> str:
    """Some subjects over time, as a picture."""
    caption = (
        "Above: smoothed states with 95% bands. Below: outcomes as dots, with what the states "
        "make of them and its 95% band."
    )
    alt = "Smoothed states of some subjects over time, and their outcomes."
    return figure_html(fit.plot.states(), alt, caption)


def matrices(fit: SSMFit) -> str:
    """The population's matrices, and subjects' loadings."""
    parts = [section_table(section) for section in ssm_sections(fit)]
    parts.append(_radius(fit))
    alt = f"Loadings of {', '.join(fit.model.outcomes)} on each state."
    caption = "What each outcome reads off each state."
    return side_by_side(parts) + figure_html(fit.plot.loadings(), alt, caption)


def _radius(fit: SSMFit) -> str:
    """How fast states forget, over subjects."""
    own = spectral_radius(fit.transitions)
    population = float(spectral_radius(fit.params["transition_mean"][None])[0])
    rows = [["population", number(population)]]
    if fit.model.n_effects:
        low, middle, high = np.quantile(own, [0.0, 0.5, 1.0])
        rows += [["least of a subject", number(low)], ["median", number(middle)]]
        rows += [["most of a subject", number(high)]]
    caption = "Spectral radius of the transitions: 0 forgets at once, 1 never"
    return table(caption, ["", "radius"], rows)
