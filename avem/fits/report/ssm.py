"""What only the report of a state-space model says."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from avem.data import Panel
from avem.fits.predict.ssm import smoothed
from avem.fits.questions.clock import time_words
from avem.fits.report.estimates import section_table
from avem.fits.report.frame import PageSection
from avem.fits.report.html import side_by_side, table
from avem.fits.report.numbers import number
from avem.fits.report.parts import OutcomeFacts, Parts
from avem.fits.report.ssm_findings import effect_words, ssm_findings
from avem.fits.report.ssm_words import ssm_model_code, ssm_model_words, ssm_reading
from avem.fits.report.svg import figure_html
from avem.fits.ssm_fit import SSMFit
from avem.fits.ssm_tables import ssm_sections
from avem.models.ssm_subjects import spectral_radius


@dataclass(frozen=True)
class SSMParts(Parts):
    """The parts of a state-space model's report."""

    fit: SSMFit

    title: ClassVar[str] = "Mixed-effects state-space model"
    plain_title: ClassVar[str] = "State-space model"
    draws_are_cheap: ClassVar[bool] = True

    def model_words(self, subject: str) -> list[str]:
        return ssm_model_words(self.fit.model, subject)

    def findings(self, level: float | None) -> str:
        return ssm_findings(self.fit, level)

    def effect_words(self) -> list[str]:
        return [effect_words(self.fit, e) for e in range(self.fit.model.n_effects)]

    def reading(self) -> str:
        return ssm_reading(self.fit)

    def code(self) -> str:
        return ssm_model_code(self.fit.model.spec)

    def outcomes(self, y: np.ndarray) -> list[OutcomeFacts]:
        names = self.fit.model.outcomes
        return [OutcomeFacts(name, "Gaussian", y[:, j], None) for j, name in enumerate(names)]

    def starts(self) -> str:
        gaps = self.fit.info.start_gaps
        return (
            f"It began at the best of {len(gaps)} short runs with subjects alike; the others ended "
            f"up to {number(max(gaps))} below it."
        )

    def estimates(self) -> Iterator[PageSection]:
        yield PageSection("matrices", "Dynamics and loadings", _matrices(self.fit))

    def static_states(self) -> str:
        caption = (
            "Above: smoothed states with 95% bands. Below: outcomes as dots, with what the states "
            "make of them and its 95% band."
        )
        alt = "Smoothed states of some subjects over time, and their outcomes."
        return figure_html(self.fit.plot.states(), alt, caption)

    def columns(self, panel: Panel) -> dict[str, Any]:
        fit = self.fit
        found, y = smoothed(fit), fit.model.read(panel).Y
        unknown = fit.model.designs.parts[0].unknown(panel)

        def sd(cov: np.ndarray, j: int) -> np.ndarray:
            return np.sqrt(np.maximum(cov[:, j, j], 0.0))

        latent = [
            {"mean": found.state[:, k], "sd": sd(found.state_cov, k)}
            for k in range(fit.model.n_latent)
        ]
        outcomes = [
            {
                "name": name,
                "y": y[:, j],
                "levels": None,
                "fit": np.where(unknown, np.nan, found.level[:, j]),
                "sd": sd(found.level_cov, j),
                "fitName": "expected",
            }
            for j, name in enumerate(fit.model.outcomes)
        ]
        return {"latent": latent, "outcomes": outcomes}


def _matrices(fit: SSMFit) -> str:
    """The population's matrices, and subjects' loadings."""
    # How much subjects differ is among the findings.
    sections = [one for one in ssm_sections(fit) if ", sd between " not in one.title]
    parts = [section_table(section, fit.state_labels) for section in sections]
    parts.append(_radius(fit))
    alt = f"Loadings of {', '.join(fit.model.outcomes)} on each state."
    whose = ", for the population and for each subject" if fit.model.shape.loading_effects else ""
    caption = f"How strongly each outcome shows each state{whose}."
    return side_by_side(parts) + figure_html(fit.plot.loadings(), alt, caption)


def _radius(fit: SSMFit) -> str:
    """How fast states forget, over subjects."""
    # In the user's units of time, whatever those of the fit are.
    model, mean = fit.model, fit.params[f"{fit.model.spec.kinds[0]}_mean"]
    own = spectral_radius(model, fit._matrices.dynamics)
    population = float(spectral_radius(model, mean[None])[0])
    rows = [["population", number(population)]]
    if fit.model.n_effects:
        low, middle, high = np.quantile(own, [0.0, 0.5, 1.0])
        rows += [["lowest of all subjects", number(low)], ["median subject", number(middle)]]
        rows += [["highest of all subjects", number(high)]]
    over = f" over 1 {time_words(fit, 1)}" if model.continuous else ""
    caption = (
        f"Spectral radius of the transitions{over}: at 0 the past is forgotten at once, at 1 never"
    )
    return table(caption, ["", "radius"], rows)
