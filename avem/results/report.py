"""A fit as one HTML page that needs nothing else: text, tables and pictures in a single file."""

from __future__ import annotations

import platform
import sys
from base64 import b64encode
from collections.abc import Iterable, Sequence
from html import escape
from importlib.metadata import version
from os import PathLike
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING

import numpy as np

from avem.errors import FileError
from avem.results._figures import png, state_colors
from avem.results._plot_emissions import occupancy

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from avem.results.hmm_fit import HMMFit

_MAX_SUBJECTS = 200
"""Rows of the table of effects."""
_DPI = 110

_PAGE = Template("""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>$title</title>
<style>
:root { color-scheme: light; }
body { margin: 0 auto; max-width: 62rem; padding: 1.5rem; background: #fff; color: #1a1a1a;
  font: 1rem/1.55 system-ui, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; }
h1 { font-size: 1.7rem; line-height: 1.25; overflow-wrap: anywhere; }
h2 { font-size: 1.25rem; margin-top: 2.2rem; border-bottom: 2px solid #d5d9de; }
p, li { max-width: 46rem; overflow-wrap: anywhere; }
code, pre { font-family: ui-monospace, Menlo, Consolas, monospace; background: #f2f4f6; }
pre { padding: .8rem; white-space: pre-wrap; overflow-wrap: anywhere; }
.box { overflow: auto; margin: 1rem 0; }
.tall { max-height: 26rem; border: 1px solid #d5d9de; }
.tall thead th { position: sticky; top: 0; background: #fff; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
caption { text-align: left; font-weight: 600; padding: .3rem .7rem .3rem 0; }
th, td { padding: .25rem .7rem; border-bottom: 1px solid #e3e6ea; text-align: right;
  white-space: nowrap; }
thead th:first-child, tbody th { text-align: left; }
tbody th { font-weight: 500; }
.swatch { display: inline-block; width: .8em; height: .8em; margin-right: .35em; }
figure { margin: 1.2rem 0; }
figure img { max-width: 100%; height: auto; }
figcaption { color: #444; max-width: 46rem; }
.note { border-left: 4px solid #b35900; padding: .1rem .8rem; background: #fff7ee; }
@media print { body { max-width: none; padding: 0; font-size: 10pt; }
  .box { overflow: visible; max-height: none; } figure, tr, .box:not(.tall) { break-inside: avoid; }
  h2 { break-after: avoid; } .swatch { print-color-adjust: exact; } }
</style>
</head>
<body>
<main>
$body
</main>
</body>
</html>
""")

_READING = """
<p><strong>A state</strong> is a condition that a subject is in at one time and that is not seen
itself, only through the outcomes. All subjects have the same states and move between them with the
same probabilities. The numbers of the states are only names.</p>
<p><strong>An effect</strong> is how far one subject lies from the average subject, in every state
alike. It is estimated from the subject's own rows and drawn towards 0, the more so the fewer they
are. The interval says where it lies with a probability of 95%, given the parameters.</p>
<p><strong>The bound</strong> measures how well the parameters explain the data; each iteration is
meant to raise it. It stands in for the log likelihood, and is comparable only between fits to the
same values.</p>
"""


def write_report(fit: HMMFit, path: str | PathLike[str]) -> Path:
    """Write the report of a fit to an HTML file, and return its path."""
    target = Path(path)
    if not target.parent.is_dir():
        raise FileError(f"There is no folder {str(target.parent)!r}. Make it first.")
    target.write_text(report_html(fit), encoding="utf-8")
    return target


def report_html(fit: HMMFit) -> str:
    """The report of a fit, as the text of an HTML page."""
    formula = fit.model.design.formula.text
    title = (
        f"Mixed hidden Markov model: {formula}"
        if fit.model.n_effects
        else (f"Hidden Markov model: {formula}")
    )
    sections = [
        ("The model", _model(fit)),
        ("The data", _data(fit)),
        ("How the fit ended", _ending(fit)),
        ("States", _states(fit)),
        ("Emissions", _emissions(fit)),
        ("Subjects", _subjects(fit)),
        ("How to read this", _READING),
        ("How to make it again", _reproduce(fit)),
    ]
    body = [f"<h1>{escape(title)}</h1>"]
    body += [f"<section>\n<h2>{heading}</h2>\n{text}\n</section>" for heading, text in sections]
    return _PAGE.substitute(title=escape(title), body="\n".join(body))


# --- sections ----------------------------------------------------------------------------------


def _model(fit: HMMFit) -> str:
    model, design = fit.model, fit.model.design
    covariates = [term for term in design.terms if term != "Intercept"]
    means = "its own mean" if design.terms else "no fixed part in its mean"
    if covariates:
        means = f"a mean that depends on {_words(covariates)} in its own way"
    spread = {
        "spherical": "one variance for all outcomes",
        "diagonal": "a variance for each outcome",
        "full": "outcomes that are correlated within the state",
    }[model.family.covariance]
    text = (
        f"The formula is {_code(design.formula.text)}. At each time a subject is in one of "
        f"{_count(model.n_states, 'state')}. Given the state, {_words(design.outcomes)} "
        f"{'is' if len(design.outcomes) == 1 else 'are'} Gaussian; each state has {means} and "
        f"{spread}."
    )
    subject = _code(fit.columns["subject"])
    if not model.n_effects:
        return f"<p>{text} There are no effects: all subjects of {subject} are alike.</p>"
    structure = {
        "full": "with their own variances and, within a group term, correlations",
        "diagonal": "each with its own variance, not correlated",
        "isotropic": "all with the same variance, not correlated",
    }[model.effect_covariance]
    return (
        f"<p>{text} Each subject (column {subject}) has {_count(model.n_effects, 'effect')} of its "
        f"own, the same in all states: {_words(model.effect_names)}. Over subjects the effects are "
        f"Gaussian around 0, {structure}.</p>"
    )


def _data(fit: HMMFit) -> str:
    info = fit.info
    missing = f"{_count(info.n_missing, 'value')} missing" if info.n_missing else "none missing"
    roles = [f"{role} {_code(name)}" for role, name in fit.columns.items() if name is not None]
    text = (
        f"{_count(len(fit.subjects), 'subject')}, {_count(info.n_sequences, 'sequence')}, "
        f"{_count(info.n_rows, 'row')}; {_count(info.n_observed, 'observed value')}, {missing}. "
        f"Columns: {', '.join(roles)}."
    )
    if fit.panel is None:
        text += " The fit was read from a file without these data; pictures of them are left out."
    return f"<p>{text}</p>"


def _ending(fit: HMMFit) -> str:
    info = fit.info
    text = (
        f"<p><strong>{escape(fit.stop.value)}</strong> The bound is {fit.bound:,.3f} after "
        f"{_count(fit.n_iter, 'iteration')} ({escape(info.method)}, {info.seconds:.2f} s)."
    )
    if len(info.start_gaps) > 1:
        text += (
            f" {len(info.start_gaps)} starting points were tried: "
            f"{info.starts_agreeing} found the best solution, and their bounds spread over "
            f"{_number(max(info.start_gaps))}."
        )
    text += "</p>"
    if info.notes:
        items = "".join(f"<li>{escape(note)}</li>" for note in info.notes)
        text += f'\n<div class="note"><ul>{items}</ul></div>'
    caption = (
        "Left: the bound at each iteration. Right: how far it was from the best, on a log scale."
    )
    alt = f"Line chart of the bound, which ends at {fit.bound:,.3f}."
    return text + _figure(fit.plot.bound(), alt, caption)


def _states(fit: HMMFit) -> str:
    heads = _state_heads(fit)
    matrix, initial = fit.params["transition"], fit.params["initial"]
    if fit.panel is None:
        share, what = occupancy(fit), "Share of time in the long run"
    else:
        decoded = np.bincount(np.asarray(fit.decode()), minlength=len(matrix))
        share, what = decoded / decoded.sum(), "Share of rows (decoded)"
    stay = np.diagonal(matrix)
    dwell = [f"{1 / (1 - p):.4g}" if p < 1 else "for ever" for p in stay]
    rows = [
        [what, *(f"{s:.1%}" for s in share)],
        ["Mean dwell time (rows)", *dwell],
        ["Initial probability", *map(_number, initial)],
    ]
    parts = [_table("Each state", ["", *heads], rows)]
    moves = [[head, *map(_number, row)] for head, row in zip(heads, matrix, strict=True)]
    parts.append(_table("Transition probabilities, from row to column", ["from", *heads], moves))
    stays = ", ".join(f"state {k} stays with probability {p:.3f}" for k, p in enumerate(stay))
    parts.append(
        _figure(fit.plot.transitions(), f"Heat map of the transition matrix: {stays}.", "")
    )
    if fit.panel is not None:
        caption = (
            "Outcomes over time. Colours are decoded states; the dark line is the state's mean for "
            "the subject. Gaps are missing values, dashed lines separate sequences."
        )
        alt = "Outcomes of some subjects over time, coloured by decoded state."
        parts.append(_figure(fit.plot.states(), alt, caption))
    return "\n".join(parts)


def _emissions(fit: HMMFit) -> str:
    design, family = fit.model.design, fit.model.family
    heads, coef = _state_heads(fit), fit.params["coef"]
    rows = [
        [f"{outcome}: {term}", *map(_number, coef[:, j, m])]
        for j, outcome in enumerate(design.outcomes)
        for m, term in enumerate(design.terms)
    ]
    parts = [_table("Coefficients", ["", *heads], rows)]
    noise = family.noise_from_params(fit.params[family.noise_name], len(design.outcomes))
    sd = np.sqrt(np.diagonal(noise, axis1=1, axis2=2))
    rows = [[name, *map(_number, sd[:, j])] for j, name in enumerate(design.outcomes)]
    parts.append(_table("Standard deviation of the noise", ["", *heads], rows))
    if family.covariance == "full" and len(design.outcomes) > 1:
        rows = [
            [f"{a} with {b}", *map(_number, noise[:, i, j] / (sd[:, i] * sd[:, j]))]
            for i, a in enumerate(design.outcomes)
            for j, b in enumerate(design.outcomes[:i])
        ]
        parts.append(_table("Correlation of the noise", ["", *heads], rows))
    caption = "What each state emits over all subjects, weighted by how often the state occurs."
    alt = f"Fitted density of each state for {', '.join(design.outcomes)}."
    parts.append(_figure(fit.plot.emissions(), alt, caption))
    return "\n".join(parts)


def _subjects(fit: HMMFit) -> str:
    names = fit.model.effect_names
    if not names:
        return "<p>The model has no effects, so there is nothing to say about single subjects.</p>"
    sigma = fit.params["effect_covariance"]
    sd = np.sqrt(np.diagonal(sigma))
    with np.errstate(invalid="ignore", divide="ignore"):
        correlation = sigma / np.outer(sd, sd)
    rows = [
        [name, _number(sd[i]), *(_number(correlation[i, j]) if j < i else "" for j in range(i + 1))]
        for i, name in enumerate(names)
    ]
    width = len(names) - 1
    rows = [(row + [""] * width)[: 2 + width] for row in rows]
    header = ["", "standard deviation", *(f"correlation with {name}" for name in names[:-1])]
    parts = [_table("Effects between subjects", header, rows)]
    n = len(fit.subjects)
    alt = f"Effects of {n:,} subjects, sorted, each with its 95% interval."
    parts.append(_figure(fit.plot.effects(), alt, "Each subject's effects, sorted."))
    parts.append(_effects_table(fit))
    return "\n".join(parts)


def _effects_table(fit: HMMFit) -> str:
    names, n = fit.model.effect_names, len(fit.subjects)
    shown = min(n, _MAX_SUBJECTS)
    table = fit.effects().iloc[: shown * len(names)]
    columns = zip(*(table[name] for name in ("mean", "lower", "upper")), strict=True)
    cells = [f"{_number(m)} ({_number(low)} to {_number(high)})" for m, low, high in columns]
    rows = [
        [str(fit.subjects[i]), *cells[i * len(names) : (i + 1) * len(names)]] for i in range(shown)
    ]
    caption = f"Effects with 95% intervals: {shown:,} of {n:,} subjects"
    if shown < n:
        caption += " (fit.effects() has all)"
    return _table(caption, [str(fit.columns["subject"]), *names], rows, tall=shown > 15)


def _reproduce(fit: HMMFit) -> str:
    model = fit.model
    arguments = [f"{role}={name!r}" for role, name in fit.columns.items() if name is not None]
    arguments += [f"method={fit.info.method!r}"]
    n_starts = max(1, len(fit.info.start_gaps))
    arguments += ["plain=True" if fit.info.plain else f"n_starts={n_starts}"]
    arguments += [f"seed={fit.info.seed}"]
    code = (
        f"avem.MixedHMM(\n    {model.design.formula.text!r},\n    n_states={model.n_states},\n"
        f"    family=avem.Gaussian({model.family.covariance!r}),\n"
        f"    effect_covariance={model.effect_covariance!r},\n).fit(data, {', '.join(arguments)})"
    )
    own = getattr(sys.modules["avem"], "__version__", "unknown")
    made_with = (
        f"avem {own}, jax {version('jax')}, numpy {np.__version__}, Python "
        f"{platform.python_version()} wrote this page."
    )
    rest = "Arguments that are not shown (tol, init, fixed, ...) are not kept with the fit."
    return f"<pre>{escape(code)}</pre>\n<p>{escape(made_with)} {rest}</p>"


# --- pieces ------------------------------------------------------------------------------------


class _Html(str):
    """Text that is markup already."""


def _cell(value: str) -> str:
    return value if isinstance(value, _Html) else escape(value)


def _table(
    caption: str, header: Sequence[str], rows: Iterable[Sequence[str]], tall: bool = False
) -> str:
    """A table whose first column names the rows, in a box that scrolls when it must."""
    head = "".join(
        f'<th scope="col">{_cell(name)}</th>' if name else "<td></td>" for name in header
    )
    lines = [
        f'<tr><th scope="row">{_cell(name)}</th>'
        + "".join(f"<td>{_cell(value)}</td>" for value in values)
        + "</tr>"
        for name, *values in rows
    ]
    name = escape(caption)
    return (
        f'<div class="box{" tall" if tall else ""}" role="region" aria-label="{name}" tabindex="0">'
        f"<table>\n<caption>{name}</caption>\n<thead><tr>{head}</tr></thead>\n<tbody>\n"
        + "\n".join(lines)
        + "\n</tbody></table></div>"
    )


def _figure(figure: Figure, alt: str, caption: str) -> str:
    data = b64encode(png(figure, _DPI)).decode("ascii")
    width = int(figure.get_figwidth() * 88)
    image = f'<img width="{width}" alt="{escape(alt)}" src="data:image/png;base64,{data}">'
    words = f"<figcaption>{escape(caption)}</figcaption>" if caption else ""
    return f"<figure>{image}{words}</figure>"


def _state_heads(fit: HMMFit) -> list[_Html]:
    return [
        _Html(f'<span class="swatch" style="background:{color}"></span>state {k}')
        for k, color in enumerate(state_colors(fit.model.n_states))
    ]


def _number(value: float) -> str:
    return f"{value:.4g}"


def _code(text: object) -> str:
    return f"<code>{escape(str(text))}</code>"


def _words(names: Iterable[object]) -> str:
    """Names in a sentence: a, b and c."""
    *first, last = map(_code, names)
    return f"{', '.join(first)} and {last}" if first else last


def _count(n: int, what: str) -> str:
    return f"{n:,} {what}{'' if n == 1 else 's'}"
