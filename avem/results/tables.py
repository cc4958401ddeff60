"""A fit as tables: tidy for computing, and laid out for reading."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from avem.inference.stop import Stop

if TYPE_CHECKING:
    from avem.results.hmm_fit import HMMFit


class Summary:
    """Text that shows itself in a terminal and in a notebook."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text

    __str__ = __repr__


def parameter_table(fit: HMMFit) -> pd.DataFrame:
    """Every parameter as a row; columns that do not apply are empty.

    ``other`` is the second effect or outcome of a covariance.
    """
    design, params = fit.model.design, fit.params
    states = range(fit.model.n_states)
    rows: list[tuple] = []
    rows += [("initial", k, None, None, None, None, params["initial"][k]) for k in states]
    rows += [
        ("transition", k, m, None, None, None, params["transition"][k, m])
        for k in states
        for m in states
    ]
    rows += [
        ("coef", k, None, y, term, None, params["coef"][k, j, i])
        for k in states
        for j, y in enumerate(design.outcomes)
        for i, term in enumerate(design.terms)
    ]
    noise = fit.model.family.noise_name
    for k in states:
        value = params[noise][k]
        if value.ndim == 0:
            rows.append((noise, k, None, None, None, None, float(value)))
        elif value.ndim == 1:
            rows += [
                (noise, k, None, y, None, None, value[j]) for j, y in enumerate(design.outcomes)
            ]
        else:
            rows += [
                (noise, k, None, y, None, other, value[i, j])
                for i, y in enumerate(design.outcomes)
                for j, other in enumerate(design.outcomes)
                if j <= i
            ]
    names = fit.model.effect_names
    rows += [
        ("effect_covariance", None, None, *effect, names[j], params["effect_covariance"][i, j])
        for i, effect in enumerate(product(design.outcomes, design.effect_terms))
        for j in range(i + 1)
    ]
    columns = ["parameter", "state", "to_state", "outcome", "term", "other", "estimate"]
    frame = pd.DataFrame(rows, columns=columns)
    return frame.astype({"state": "Int64", "to_state": "Int64"})


def summary(fit: HMMFit) -> Summary:
    """What was fitted, to what, how it ended, and the estimates."""
    design, params, info = fit.model.design, fit.params, fit.info
    n_states = fit.model.n_states
    states = [f"state {k}" for k in range(n_states)]
    missing = f", {info.n_missing:,} missing" if info.n_missing else ""
    kind = "Mixed hidden" if fit.model.n_effects else "Hidden"
    lines = [
        f"{kind} Markov model: {design.formula.text}",
        f"{n_states} state{'s' if n_states > 1 else ''}, Gaussian ({fit.model.family.covariance})"
        + (f", effects {fit.model.effect_covariance}" if fit.model.n_effects else ""),
        f"{len(fit.subjects):,} subjects, {info.n_sequences:,} sequences, {info.n_rows:,} rows, "
        f"{info.n_observed:,} observed values{missing}",
        f"bound {fit.bound:.3f} after {fit.n_iter} iterations, {info.seconds:.2f} s. {fit.stop}",
    ]
    if len(info.start_gaps) > 1:
        lines.append(
            f"{info.starts_agreeing} of {len(info.start_gaps)} starts found the same solution; "
            f"their bounds spread over {max(info.start_gaps):.3g}."
        )
    lines += ["", "Coefficients"]
    labels = pd.MultiIndex.from_product([design.outcomes, design.terms], names=["outcome", "term"])
    coef = params["coef"].reshape(n_states, -1).T
    lines.append(_text(pd.DataFrame(coef, index=labels, columns=states)))
    noise = fit.model.family.noise_name
    sd = np.sqrt(
        np.diagonal(params[noise], axis1=1, axis2=2) if noise == "covariance" else params[noise]
    )
    sd = sd[:, None] if sd.ndim == 1 else sd
    index = list(design.outcomes) if sd.shape[1] == len(design.outcomes) else ["all outcomes"]
    lines += ["", "Noise (standard deviation)"]
    lines.append(_text(pd.DataFrame(sd.T, index=index, columns=states)))
    lines += ["", "Transition probabilities (from row to column)"]
    lines.append(_chances(pd.DataFrame(params["transition"], index=states, columns=states)))
    lines += ["", "Initial probabilities"]
    lines.append(_chances(pd.DataFrame([params["initial"]], index=[""], columns=states)))
    if fit.model.n_effects:
        sigma = params["effect_covariance"]
        spread = np.sqrt(np.diagonal(sigma))
        correlation = sigma / np.outer(spread, spread)
        frame = pd.DataFrame({"sd": spread}, index=fit.model.effect_names)
        if len(spread) > 1 and fit.model.effect_covariance == "full":
            for j, name in enumerate(fit.model.effect_names[:-1]):
                column = np.where(np.arange(len(spread)) > j, correlation[:, j], np.nan)
                frame[f"corr. {name}"] = column
        lines += ["", f"Effects between {len(fit.subjects):,} subjects"]
        lines.append(_text(frame))
    if info.notes or fit.stop is not Stop.CONVERGED:
        lines += ["", "Notes"] + [f"- {note}" for note in info.notes]
    return Summary("\n".join(lines))


def _chances(frame: pd.DataFrame) -> str:
    return frame.to_string(float_format=lambda p: "<0.001" if 0 < p < 0.001 else f"{p:.3f}")


def _text(frame: pd.DataFrame) -> str:
    return frame.to_string(float_format=lambda x: f"{x:.4g}", na_rep="")
