"""What was fitted, to what data, and how it ended: alike for every kind of model."""

from __future__ import annotations

from html import escape

import numpy as np

from avem.data import Panel
from avem.fits.fit import Fit
from avem.fits.notes import step_words
from avem.fits.plots.subjects import gap_figure
from avem.fits.questions.diagnosis import Diagnosis
from avem.fits.report.html import code, count, figure_html, number, side_by_side, table
from avem.inference.stop import Stop

_MAX_LEVELS = 6
"""Named in the table of outcomes."""


def glance(fit: Fit) -> str:
    """The few numbers that most people want, and what a reader must be told."""
    info = fit.info
    ended = "yes" if fit.stop is Stop.CONVERGED else "no"
    facts = [
        (f"{len(fit.subjects):,}", "subjects"),
        (f"{info.n_rows:,}", "rows"),
        (f"{fit.model.size}", f"{fit.model.state_words}s"),
        (f"{fit.n_params:,}", "parameters"),
        (f"{fit.bound:,.1f}", fit.bound_name),
        (ended, "converged"),
        *fit._parts().facts(),
    ]
    cells = "".join(f"<div><dt>{name}</dt><dd>{value}</dd></div>" for value, name in facts)
    return f'<dl class="facts">{cells}</dl>' + _notes(fit)


def _notes(fit: Fit) -> str:
    notes = list(fit.notes)
    if fit.stop is not Stop.CONVERGED and fit.stop.value not in notes:
        notes.insert(0, fit.stop.value)
    if not notes:
        return "<p>The fit has no notes: nothing about it needs a warning.</p>"
    items = "".join(f"<li>{escape(note)}</li>" for note in notes)
    return f'<div class="note"><h3>Notes</h3><ul>{items}</ul></div>'


# --- data ---------------------------------------------------------------------------------------


def data(fit: Fit) -> str:
    """How many of what, how long, and each outcome."""
    info = fit.info
    missing = f"{count(info.n_missing, 'value')} missing" if info.n_missing else "none missing"
    roles = [f"{role} {code(name)}" for role, name in fit.columns.items() if name is not None]
    text = (
        f"<p>{count(len(fit.subjects), 'subject')}, {count(info.n_sequences, 'sequence')}, "
        f"{count(info.n_rows, 'row')}; {count(info.n_observed, 'observed value')}, {missing}. "
        f"Columns: {', '.join(roles)}.</p>"
    )
    if fit.panel is None:
        return text + (
            "<p>The fit was read from a file without these data: what needs them (states over "
            "time, standard errors, residuals) is left out. "
            "<code>fit.with_data(frame)</code> brings them back.</p>"
        )
    n_gaps, step = fit.panel.gaps()
    if n_gaps:
        text += (
            f"<p>{count(n_gaps, 'step')} of {code(fit.panel.time)} {'is' if n_gaps == 1 else 'are'}"
            f" longer than the usual {step_words(step)}; the model takes rows as steps.</p>"
        )
    return text + side_by_side([_outcomes(fit, fit.panel), _lengths(fit.panel)])


def _outcomes(fit: Fit, panel: Panel) -> str:
    rows = []
    for name, family, values, levels in fit._parts().outcomes(fit.model.read(panel).Y):
        seen = values[~np.isnan(values)]
        lacking = f"{len(values) - len(seen):,} ({1 - len(seen) / len(values):.1%})"
        rows.append([name, family, f"{len(seen):,}", lacking, _values(seen, levels)])
    header = ["", "family", "observed", "missing", "values"]
    return table("Outcomes", header, rows, wrap=True)


def _values(seen: np.ndarray, levels: tuple | None) -> str:
    if not len(seen):
        return "none"
    if levels is None:
        low, middle, high = (number(v) for v in np.quantile(seen, [0.0, 0.5, 1.0]))
        return f"{low} to {high}, median {middle}"
    share = np.bincount(seen.astype(int), minlength=len(levels)) / len(seen)
    named = [f"{level} {p:.0%}" for level, p in zip(levels, share, strict=True)]
    rest = f", and {len(named) - _MAX_LEVELS} more" if len(named) > _MAX_LEVELS else ""
    return ", ".join(named[:_MAX_LEVELS]) + rest


def _lengths(panel: Panel) -> str:
    kinds = {"rows per subject": np.bincount(panel.row_subject)}
    if panel.sequence is not None:
        kinds["sequences per subject"] = np.bincount(panel.lane_subject)
        kinds["rows per sequence"] = panel.lane_length
    rows = [
        [name, *(number(float(f(n))) for f in (np.min, np.median, np.mean, np.max))]
        for name, n in kinds.items()
    ]
    return table("Lengths", ["", "least", "median", "mean", "most"], rows)


# --- how it ended -------------------------------------------------------------------------------


def ending(fit: Fit) -> str:
    """How the iteration ended, its starts, and the bound over it."""
    info = fit.info
    method = escape(info.method) + (", refined to maximum likelihood" if info.refined else "")
    text = (
        f"<p><strong>{escape(fit.stop.value)}</strong> The {fit.bound_name} is {fit.bound:,.3f} "
        f"after {count(fit.n_iter, 'iteration')} ({method}, {info.seconds:.2f} s)."
    )
    if len(info.start_gaps) > 1:
        text += " " + fit._parts().starts()
    text += "</p>"
    caption = (
        f"Left: the {fit.bound_name} at each iteration. Right: how far it was from the best, on a "
        "log scale."
    )
    alt = f"Line chart of the {fit.bound_name}, which ends at {fit.bound:,.3f}."
    return text + figure_html(fit.plot.bound(), alt, caption)


def anchoring(found: Diagnosis) -> str:
    """Whether one anchor per subject was enough."""
    total = found.subjects[["loglik", "bound", "anchoring_gap", "gaussian_gap"]].sum()
    names = {
        "loglik": "log likelihood",
        "bound": "anchored bound",
        "anchoring_gap": "lost by anchoring",
        "gaussian_gap": "lost by taking effects as Gaussian",
    }
    rows = [[words, f"{total[name]:,.3f}"] for name, words in names.items()]
    lost = [
        [effect, f"{max(share, 0.0):.1%}", number(sd)]
        for effect, share, sd in found.effects[["effect", "lost", "sd"]].itertuples(index=False)
    ]
    alt = "Bars: what the bound loses for each subject, and the information lost on each effect."
    caption = "Left: every subject's gap. Right: information on each effect that is not there."
    return "\n".join(
        [
            f"<p>{escape(found.advice)}</p>",
            side_by_side(
                [
                    table("Log likelihood and bound, over all subjects", ["", "sum"], rows),
                    table("Effects", ["", "information lost", "sd between subjects"], lost),
                ]
            ),
            figure_html(gap_figure(found), alt, caption),
        ]
    )
