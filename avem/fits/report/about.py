"""What was fitted, to what data, and how it ended: alike for every kind of model."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

import numpy as np

from avem.data import Panel
from avem.fits.fit import Fit
from avem.fits.notes import REFINED, step_words
from avem.fits.plots.figures import new_figure
from avem.fits.questions.diagnosis import Diagnosis
from avem.fits.report.html import code, listed, side_by_side, table
from avem.fits.report.numbers import fixed, number, percent
from avem.fits.report.svg import figure_html
from avem.fits.words import count
from avem.inference.stop import Stop
from avem.inference.tuning import BIAS

_MAX_LEVELS = 6
"""Named in the table of outcomes."""
_PANEL = (5.0, 3.2)


def lead(fit: Fit) -> str:
    """One sentence: what was found, where; and what must be known before anything else."""
    model, info = fit.model, fit.info
    outcomes = listed([code(name) for name in model.outcomes[:_MAX_LEVELS]])
    more = len(model.outcomes) - _MAX_LEVELS
    outcomes += f" and {more} more" if more > 0 else ""
    states, rows = count(model.size, model.state_words), count(info.n_rows, "row")
    subjects = count(len(fit.subjects), "subject")
    return f"<p>{states} behind {outcomes}, in {rows} of {subjects}.</p>" + notes(fit)


def glance(fit: Fit) -> str:
    """The few numbers that say how the fit went."""
    info = fit.info
    ended = "yes" if fit.stop is Stop.CONVERGED else "no"
    facts = [
        (f"{len(fit.subjects):,}", "subjects"),
        (f"{info.n_rows:,}", "rows"),
        (f"{fit.model.size}", f"{fit.model.state_words}s"),
        (f"{fit.n_params:,}", "parameters"),
        (fixed(fit.bound, 1), f'<a href="#word-bound">{fit.bound_name}</a>'),
        (ended, "converged"),
        *fit._parts().facts(),
    ]
    cells = "".join(f"<div><dt>{name}</dt><dd>{value}</dd></div>" for value, name in facts)
    return f'<dl class="facts">{cells}</dl>'


def notes(fit: Fit) -> str:
    """What a reader must be told; nothing where nothing needs a warning."""
    found = [note for note in fit.notes if not note.endswith(REFINED)]
    if fit.stop is not Stop.CONVERGED and fit.stop.value not in found:
        found.insert(0, fit.stop.value)
    if not found:
        return ""
    items = "".join(f"<li>{escape(note)}</li>" for note in found)
    return f'<div class="note"><h3>Please note</h3><ul>{items}</ul></div>'


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
    if n_gaps and not fit.model.continuous:
        text += (
            f"<p>{count(n_gaps, 'step')} of {code(fit.panel.time)} {'is' if n_gaps == 1 else 'are'}"
            f" longer than the usual {step_words(step)}; the model treats rows as equal steps.</p>"
        )
    return text + side_by_side([_outcomes(fit, fit.panel), _lengths(fit.panel)])


def _outcomes(fit: Fit, panel: Panel) -> str:
    rows = []
    for name, family, values, levels in fit._parts().outcomes(fit.model.read(panel).Y):
        seen = values[~np.isnan(values)]
        lacking = f"{len(values) - len(seen):,} ({percent(1 - len(seen) / len(values))})"
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
    return table("Lengths", ["", "fewest", "median", "mean", "most"], rows)


# --- how it ended -------------------------------------------------------------------------------


def ending(fit: Fit) -> str:
    """How the iteration ended, its starts, and the bound over it."""
    info = fit.info
    method = f"method {escape(info.method)}" + (
        ", refined to maximum likelihood" if info.refined else ""
    )
    text = (
        f"<p><strong>{escape(fit.ended.partition(': ')[2])}</strong> The {fit.bound_name} is "
        f"{fixed(fit.bound, 3)} after {count(fit.n_iter, 'iteration')} ({method}, "
        f"{info.seconds:.2f} s)."
    )
    if len(info.start_gaps) > 1:
        text += " " + fit._parts().starts()
    text += "</p>"
    figure = new_figure(_PANEL)
    fit.plot.bound(ax=figure.subplots())
    alt = f"Line chart of the {fit.bound_name}, which ends at {fixed(fit.bound, 3)}."
    caption = f"The {fit.bound_name} at each iteration."
    if info.at_maximum_likelihood and _falls(fit.bound_history):
        caption += (
            " It is an average over values that the effects may have. Where other values are "
            "taken, or more, it can fall by a little although the parameters are no worse."
        )
    return text + figure_html(figure, alt, caption)


def _falls(history: np.ndarray) -> bool:
    """By so much that it can be seen."""
    seen = history[np.isfinite(history)]
    return bool((np.diff(seen) < -0.02 * np.ptp(seen)).any()) if len(seen) > 1 else False


def approximation(fit: Fit) -> str:
    """What one anchor per subject would have changed, and what was done about it."""
    info = fit.info
    said = [
        "A fit begins fast, with every subject's states computed at one value of its effects, the "
        '<a href="#word-anchor">anchor</a>. Then it compares this with integrating over the '
        "effects. If that would move any combination of the parameters by "
        f"{BIAS:g} standard errors or more, the fit is refined to maximum likelihood."
    ]
    if info.bias is not None and info.bias_at == "on the way":
        said.append(
            "When that was asked, some iterations before the end, it would have moved one by "
            f"{_far(info.bias)}."
        )
    elif info.bias is not None:
        said.append(f"Here it would move one by {_far(info.bias)}.")
    if info.refined:
        said.append("<strong>This fit is refined: its estimates do not depend on anchors.</strong>")
    elif info.at_maximum_likelihood:
        said = ["This method integrates over the effects: its estimates do not depend on anchors."]
    elif info.bias is not None and not info.bias < BIAS:
        said.append(
            "<strong>This fit was not refined:</strong> subjects probably differ more than it "
            "says, and their effects are less certain. <code>refine='adaptive'</code> refines it."
        )
    elif info.bias is not None:
        said.append("<strong>So anchors are good enough here.</strong>")
    return f"<p>{' '.join(said)}</p>" + fit._parts().certainty()


def _far(bias: float) -> str:
    return f"{number(bias)} standard errors" if bias < 10 else "more than 10 standard errors"


def lost(names: Sequence[str], shares: Sequence[float]) -> str:
    """Information on the effects that is lost by not seeing the states."""
    rows = [
        [name, percent(min(max(float(share), 0.0), 1.0))]
        for name, share in zip(names, shares, strict=True)
    ]
    caption = "Information on each effect that is lost because the states are not seen"
    return table(caption, ["", "lost"], rows)


def anchoring(found: Diagnosis, names: Sequence[str]) -> str:
    """What the bound with one anchor per subject lacks; `names` are the effects in words."""
    total: Any = found.subjects[["loglik", "bound", "anchoring_gap", "gaussian_gap"]].sum()
    parts = {
        "loglik": "log likelihood",
        "bound": "bound with one anchor per subject",
        "anchoring_gap": "lost by anchoring",
        "gaussian_gap": "lost by taking effects as Gaussian",
    }
    rows = [[words, fixed(float(total[name]), 3)] for name, words in parts.items()]
    tables = [
        table("Log likelihood and bound, over all subjects", ["", "sum"], rows),
        lost(names, found.effects["lost"].tolist()),
    ]
    about = '<p class="caption">What is lost is a <a href="#word-gap">gap</a>.</p>'
    return side_by_side(tables) + about
