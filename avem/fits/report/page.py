"""The page put together."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from html import escape
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

from avem.data.writing import need_file, write_text
from avem.errors import AvemError, ModelError
from avem.fits.fit import Fit
from avem.fits.plots.figures import state_colors
from avem.fits.report import about as _about
from avem.fits.report import subjects as _subjects
from avem.fits.report.estimates import error_table
from avem.fits.report.findings import explained
from avem.fits.report.frame import PageSection, fill_page
from avem.fits.report.reproduce import cite, reproduce
from avem.fits.report.residuals import residual_checks
from avem.fits.report.steps import ReportProgress
from avem.fits.report.timelines import Timelines, make_timelines
from avem.fits.uncertainty import errors_are_cheap
from avem.fits.words import count

_SUBJECTS = 1000
"""Of a scan, that are on the page."""
_DRAWN_UP_TO = 5_000
_DIAGNOSIS_UP_TO = 50_000
"""Rows times effects up to which residuals with drawn effects and the diagnosis are made unasked:
the page is there within seconds, or half a minute where code must be compiled first."""


class Asked(NamedTuple):
    """What the caller wants on the page."""

    thorough: bool | None
    say: Callable[[str], None]


def write_report(
    fit: Fit,
    path: str | PathLike[str],
    *,
    title: str | None = None,
    timelines: Any = None,
    thorough: bool | None = None,
    progress: bool | None = None,
) -> Path:
    """Write the report of a fit to an HTML file, and return its path."""
    need_file(path)
    shown = fit if fit.panel is None or fit.panel.in_memory else _sampled(fit)
    with ReportProgress(progress) as steps:
        page = report_html(shown, title=title, timelines=timelines, thorough=thorough, say=steps)
    write_text(path, page)
    return Path(path)


def _sampled(fit: Fit) -> Fit:
    """Some subjects of a scan, with a note that says so."""
    some = fit.sample(_SUBJECTS)
    note = (
        f"The parameters are those of all {len(fit.subjects):,} subjects; subjects, rows and "
        f"what is computed from them are those of {len(some.subjects):,}, evenly drawn."
    )
    info, panel = fit.info, some.panel
    sizes = {"n_rows": panel.n_rows, "n_sequences": panel.n_lanes} if panel else {}
    return replace(some, info=replace(info, notes=(note, *info.notes), **sizes))


def report_html(
    fit: Fit,
    *,
    title: str | None = None,
    timelines: Any = None,
    thorough: bool | None = None,
    say: Callable[[str], None] = lambda words: None,
) -> str:
    """The report of a fit, as the text of an HTML page.

    Parameters
    ----------
    title
        What the page is called; None: what kind of model it is about.
    timelines
        Whose rows can be looked at one by one. None: all subjects, or as many as keep the page at
        some megabytes. A number: so many, from the shortest to the longest. A list of labels.
    thorough
        Whether to compute standard errors and the diagnosis of anchoring, which can take longer
        than all the rest; None: where the panel is small, or they are known already.
    say
        Told what is going on.
    """
    asked = Asked(thorough, say)
    parts, colors = fit._parts(), state_colors(fit.model.size)
    kind = parts.title if fit.model.n_effects else parts.plain_title
    title = kind if title is None else _checked_title(title)
    drawn = None
    if fit.panel is not None:
        say("states of every row")
        drawn = make_timelines(fit, timelines)
    data = {
        "kind": fit.kind,
        "states": list(fit.state_labels),
        "subject": str(fit.columns["subject"]),
        "subjects": _subjects.labels(fit),
        "timelines": None if drawn is None else drawn.data,
        "effects": _subjects.effects_data(fit),
    }
    sections = list(_sections(fit, drawn, asked))
    say("writing")
    about = kind if title != kind else ""
    return fill_page(title, about, fit.model.spec.text, sections, data, colors)


def _checked_title(title: Any) -> str:
    if not isinstance(title, str) or not title.strip():
        raise ModelError(f"title is {title!r}; some text is wanted, or None for the kind of model.")
    return " ".join(title.split())


def _sections(fit: Fit, drawn: Timelines | None, asked: Asked) -> Iterator[PageSection]:
    say, parts = asked.say, fit._parts()
    level = _level(fit, asked)
    say("findings")
    found = _attempt(lambda: explained(parts.findings(level)))
    yield PageSection("findings", "Findings", _about.lead(fit) + found)
    if drawn is not None:
        say("pictures of states")
        yield PageSection("timelines", "States over time", _timelines(fit, drawn))
    say("estimates")
    yield from parts.estimates()
    say("effects of subjects")
    yield PageSection("subjects", "Subjects", _of_subjects(fit))
    words = "\n".join(f"<p>{p}</p>" for p in parts.model_words(str(fit.columns["subject"])))
    yield PageSection("model", "The model", words)
    yield PageSection("data", "The data", _about.data(fit))
    yield PageSection("errors", "All estimates", _errors(fit, asked))
    if fit.panel is not None:
        say("residuals")
        known = "_nodes" in vars(fit)
        drawn_effects = parts.draws_are_cheap or _wanted(fit, asked, _DRAWN_UP_TO, known)
        html = _attempt(lambda: residual_checks(fit, drawn_effects))
        yield PageSection("residuals", "Does the model fit the data?", html)
    how = _about.glance(fit) + _about.ending(fit)
    yield PageSection("ending", "How the fit went", how)
    if fit.model.n_effects:
        html = _about.approximation(fit) + _anchoring(fit, asked)
        yield PageSection("anchoring", "Is the approximation good enough?", html)
    yield PageSection("reading", "How to read this page", parts.reading())
    yield PageSection("cite", "How to cite", cite())
    yield PageSection("reproduce", "Reproduce this analysis", reproduce(fit))


def _level(fit: Fit, asked: Asked) -> float | None:
    """Of the intervals; None where standard errors are not to be had, or would take too long."""
    if fit.panel is None or not _errors_wanted(fit, asked):
        return None
    asked.say("standard errors")
    try:
        _ = fit._curvature
    except AvemError:  # the section about them says why
        return None
    return 0.95


def _timelines(fit: Fit, drawn: Timelines) -> str:
    n, total = drawn.n_shown, drawn.n_subjects
    said = []
    if n < total:
        said.append(
            f"To keep this file small, it holds the rows of {n:,} of {count(total, 'subject')}, "
            "from the shortest to the longest. "
            '<code>fit.report(path, timelines=["label", ...])</code> shows others.'
        )
    if drawn.n_cut:
        said.append(f"For {count(drawn.n_cut, 'subject')}, only the first rows are here.")
    words = f"<p>{' '.join(said)}</p>" if said else ""
    still = fit._parts().static_states()
    without = (
        '<noscript><p class="note">Without JavaScript, this page shows only some subjects; with '
        "it, every subject can be chosen, zoomed and read off.</p></noscript>"
    )
    return f'{words}{without}<div id="timeline" class="live"></div><div class="still">{still}</div>'


def _errors(fit: Fit, asked: Asked) -> str:
    if fit.panel is None:
        return "<p>Standard errors need the data, which are not here.</p>"
    if not _errors_wanted(fit, asked):
        return (
            "<p>Standard errors are left out, since they would take longer than the rest of this "
            "page: <code>fit.report(path, thorough=True)</code> computes them, as does "
            "<code>fit.standard_errors()</code>.</p>"
        )
    about = (
        "<p>Standard errors come from the curvature of the marginal log likelihood; intervals of "
        "probabilities and variances are made on the scale of log odds and logarithms.</p>"
    )
    return _attempt(lambda: about + error_table(fit._standard_errors(), fit.state_labels))


def _errors_wanted(fit: Fit, asked: Asked) -> bool:
    return errors_are_cheap(fit) if asked.thorough is None else asked.thorough


def _wanted(fit: Fit, asked: Asked, up_to: int, known: bool = False) -> bool:
    """Whether something that may take long is to be computed."""
    if asked.thorough is not None:
        return asked.thorough
    return known or fit.info.n_rows * max(1, fit.model.n_effects) <= up_to


def _of_subjects(fit: Fit) -> str:
    if not fit.model.n_effects:
        return "<p>The model has no effects: all subjects are alike in it.</p>"
    still = _subjects.static_effects(fit)
    correlations = fit._parts().correlations()
    about = (
        "<p>An effect is how far a subject lies from the average subject, with its 95% interval. "
        "Effects of subjects with few rows are pulled towards 0.</p>"
    )
    live = '<div id="effects" class="live"></div>'
    return f'{about}{correlations}{live}<div class="still">{still}</div>'


def _anchoring(fit: Fit, asked: Asked) -> str:
    names, lost = fit._parts().effect_words(), fit.info.lost
    if fit.panel is not None and _wanted(fit, asked, _DIAGNOSIS_UP_TO):
        asked.say("approximation")
        return _attempt(lambda: _about.anchoring(fit.diagnose(), names))
    said = _about.lost(names, lost) if len(lost) == len(names) else ""
    return f"{said}<p><code>fit.diagnose()</code> says more.</p>"


def _attempt(make: Callable[[], str]) -> str:
    """A section, or why it could not be made: the rest of the page is as good without it."""
    try:
        return make()
    except AvemError as error:
        return f'<p class="note">This could not be computed: {escape(str(error))}</p>'
