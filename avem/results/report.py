"""A fit as one HTML page that needs nothing else: text, tables and pictures in a single file."""

from __future__ import annotations

import platform
import sys
from html import escape
from importlib.metadata import version
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from avem.errors import FileError
from avem.families import Custom, Gaussian
from avem.inference.diagnose import anchoring_fails
from avem.models.params import by_spec
from avem.results._figures import state_colors
from avem.results._html import PAGE, Html, code, count, figure_html, number, table
from avem.results._predict import at_words, average_moves, average_start, occupancy
from avem.results._sections import (
    Section,
    effects_frame,
    emission_frames,
    move_frames,
    start_frames,
)
from avem.results._words import model_code, model_words, reading

if TYPE_CHECKING:
    from avem.results.hmm_fit import HMMFit
    from avem.results.info import FitInfo

_MAX_SUBJECTS = 200
"""Rows of the table of effects."""


def write_report(fit: HMMFit, path: str | PathLike[str]) -> Path:
    """Write the report of a fit to an HTML file, and return its path."""
    target = Path(path)
    if not target.parent.is_dir():
        raise FileError(f"There is no folder {str(target.parent)!r}. Make it first.")
    target.write_text(report_html(fit), encoding="utf-8")
    return target


def report_html(fit: HMMFit) -> str:
    """The report of a fit, as the text of an HTML page."""
    kind = "Mixed hidden" if fit.model.n_effects else "Hidden"
    title = f"{kind} Markov model: {fit.model.spec.text}"
    sections = [
        ("The model", _model(fit)),
        ("The data", _data(fit)),
        ("How the fit ended", _ending(fit)),
        ("States", _states(fit)),
        ("Emissions", _emissions(fit)),
        ("Subjects", _subjects(fit)),
        ("How to read this", reading(fit)),
        ("How to make it again", _reproduce(fit)),
    ]
    body = [f"<h1>{escape(title)}</h1>"]
    body += [f"<section>\n<h2>{heading}</h2>\n{text}\n</section>" for heading, text in sections]
    return PAGE.substitute(title=escape(title), body="\n".join(body))


# --- sections ----------------------------------------------------------------------------------


def _model(fit: HMMFit) -> str:
    return "\n".join(f"<p>{p}</p>" for p in model_words(fit.model, str(fit.columns["subject"])))


def _data(fit: HMMFit) -> str:
    info = fit.info
    missing = f"{count(info.n_missing, 'value')} missing" if info.n_missing else "none missing"
    roles = [f"{role} {code(name)}" for role, name in fit.columns.items() if name is not None]
    text = (
        f"{count(len(fit.subjects), 'subject')}, {count(info.n_sequences, 'sequence')}, "
        f"{count(info.n_rows, 'row')}; {count(info.n_observed, 'observed value')}, {missing}. "
        f"Columns: {', '.join(roles)}."
    )
    if fit.panel is None:
        text += " The fit was read from a file without these data; pictures of them are left out."
    return f"<p>{text}</p>"


def _ending(fit: HMMFit) -> str:
    info = fit.info
    text = (
        f"<p><strong>{escape(fit.stop.value)}</strong> The {fit.bound_name} is {fit.bound:,.3f} "
        "after "
        f"{count(fit.n_iter, 'iteration')} ({escape(info.method)}, {info.seconds:.2f} s)."
    )
    if len(info.start_gaps) > 1:
        text += (
            f" {len(info.start_gaps)} starting points were tried: "
            f"{info.starts_agreeing} found the best solution, and their bounds spread over "
            f"{number(max(info.start_gaps))}."
        )
    text += "</p>"
    if info.notes:
        items = "".join(f"<li>{escape(note)}</li>" for note in info.notes)
        text += f'\n<div class="note"><ul>{items}</ul></div>'
    caption = (
        f"Left: the {fit.bound_name} at each iteration. Right: how far it was from the best, on a "
        "log scale."
    )
    alt = f"Line chart of the {fit.bound_name}, which ends at {fit.bound:,.3f}."
    return text + figure_html(fit.plot.bound(), alt, caption)


def _states(fit: HMMFit) -> str:
    heads, matrix = _state_heads(fit), average_moves(fit)
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
    parts = [table("Each state", ["", *heads], rows)]
    parts += [_section(fit, section) for section in move_frames(fit)]
    if "initial_coef" in fit.params:  # without a formula, the table above has all there is
        parts += [_section(fit, section) for section in start_frames(fit)]
    stays = ", ".join(f"state {k} stays with probability {p:.3f}" for k, p in enumerate(stay))
    alt = f"Heat map of the transition matrix: {stays}."
    parts.append(figure_html(fit.plot.transitions(), alt, ""))
    if fit.panel is not None:
        caption = (
            "Outcomes over time. Colours are decoded states; the dark line is the state's mean for "
            "the subject. Gaps are missing values, dashed lines separate sequences."
        )
        alt = "Outcomes of some subjects over time, coloured by decoded state."
        parts.append(figure_html(fit.plot.states(), alt, caption))
    return "\n".join(parts)


def _emissions(fit: HMMFit) -> str:
    parts = [
        _section(fit, section)
        for pieces in by_spec(fit.model)
        for section in emission_frames(fit, pieces)
    ]
    families = [piece.family for piece in fit.model.structure.pieces]
    caption = "What each state emits, weighted by how often the state occurs."
    if any(isinstance(family, Gaussian) for family in families):
        caption += " Gaussian densities are those over all subjects, effects and noise together."
    if not all(isinstance(family, Gaussian | Custom) for family in families):
        caption += " The labels say where other densities and probabilities are drawn."
    alt = f"Fitted density of each state for {', '.join(fit.model.outcomes)}."
    parts.append(figure_html(fit.plot.emissions(), alt, caption))
    return "\n".join(parts)


def _subjects(fit: HMMFit) -> str:
    if not fit.model.n_effects:
        return "<p>The model has no effects, so there is nothing to say about single subjects.</p>"
    n = len(fit.subjects)
    alt = f"Effects of {n:,} subjects, sorted, each with its 95% interval."
    return "\n".join(
        [
            _section(fit, effects_frame(fit)),
            figure_html(fit.plot.effects(), alt, "Each subject's effects, sorted."),
            _effects_table(fit),
        ]
    )


def _effects_table(fit: HMMFit) -> str:
    names, n = fit.model.effect_names, len(fit.subjects)
    shown = min(n, _MAX_SUBJECTS)
    effects = fit.effects().iloc[: shown * len(names)]
    columns = zip(*(effects[name] for name in ("mean", "lower", "upper")), strict=True)
    cells = [f"{number(m)} ({number(low)} to {number(high)})" for m, low, high in columns]
    rows = [
        [str(fit.subjects[i]), *cells[i * len(names) : (i + 1) * len(names)]] for i in range(shown)
    ]
    caption = f"Effects with 95% intervals: {shown:,} of {n:,} subjects"
    if shown < n:
        caption += " (fit.effects() has all)"
    return table(caption, [str(fit.columns["subject"]), *names], rows, tall=shown > 15)


def _reproduce(fit: HMMFit) -> str:
    arguments = [f"{role}={name!r}" for role, name in fit.columns.items() if name is not None]
    arguments += [f"method={fit.info.method!r}", *_method_options(fit.info)]
    if not all(piece.family.__class__ is Gaussian for piece in fit.model.structure.pieces):
        arguments += [f"q_update={fit.info.q_update!r}"]
    if fit.info.anchor != "mean":
        arguments += [f"anchor={fit.info.anchor!r}"]
    n_starts = max(1, len(fit.info.start_gaps))
    arguments += ["plain=True" if fit.info.plain else f"n_starts={n_starts}"]
    arguments += [f"seed={fit.info.seed}"]
    text = f"{model_code(fit.model.spec)}.fit(data, {', '.join(arguments)})"
    own = getattr(sys.modules["avem"], "__version__", "unknown")
    made_with = (
        f"avem {own}, jax {version('jax')}, numpy {np.__version__}, Python "
        f"{platform.python_version()} wrote this page."
    )
    rest = "Arguments that are not shown (tol, init, fixed, ...) are not kept with the fit."
    if any(isinstance(spec.family, Custom) for spec in fit.model.spec.outcomes):
        rest += " The functions of a custom family are yours to keep."
    return f"<pre>{escape(text)}</pre>\n<p>{escape(made_with)} {rest}</p>"


def _method_options(info: FitInfo) -> list[str]:
    """What is not as the method has it by default."""
    said = []
    if info.refined and not anchoring_fails(info.lost):
        said.append("refine='adaptive'")
    elif not info.refined and anchoring_fails(info.lost):
        said.append("refine=None")
    if info.unanchored:
        said.append(f"unanchored={list(info.unanchored)!r}")
    for name in ("n_nodes", "n_draws"):
        if getattr(info, name) is not None:
            said.append(f"{name}={getattr(info, name)}")
    return [*said, "fresh_draws=True"] if info.fresh_draws else said


# --- pieces ------------------------------------------------------------------------------------


def _section(fit: HMMFit, section: Section) -> str:
    """A table of estimates, states in their colours."""
    colored = {f"state {k}": head for k, head in enumerate(_state_heads(fit))}
    frame, rows = section.frame, []
    for label, values in zip(frame.index, frame.to_numpy(), strict=True):
        name = ": ".join(label) if isinstance(label, tuple) else str(label)
        cells = ["" if pd.isna(value) else number(value) for value in values]
        rows.append([colored.get(name, name), *cells])
    header = ["", *(colored.get(name, str(name)) for name in frame.columns)]
    return table(section.title, header, rows)


def _state_heads(fit: HMMFit) -> list[Html]:
    return [
        Html(f'<span class="swatch" style="background:{color}"></span>state {k}')
        for k, color in enumerate(state_colors(fit.model.n_states))
    ]
