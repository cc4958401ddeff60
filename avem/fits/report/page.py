"""The page put together."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from html import escape
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

from avem.data.writing import need_file, write_text
from avem.errors import AvemError
from avem.fits.fit import Fit
from avem.fits.plots.figures import state_colors
from avem.fits.report import about as _about
from avem.fits.report import subjects as _subjects
from avem.fits.report.estimates import error_table
from avem.fits.report.frame import PageSection, fill_page
from avem.fits.report.html import code, count
from avem.fits.report.reproduce import cite, reproduce
from avem.fits.report.residuals import residual_checks
from avem.fits.report.steps import ReportProgress
from avem.fits.report.timelines import Timelines, make_timelines
from avem.fits.uncertainty import errors_are_cheap

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
    timelines: Any = None,
    thorough: bool | None = None,
    progress: bool | None = None,
) -> Path:
    """Write the report of a fit to an HTML file, and return its path."""
    need_file(path)
    with ReportProgress(progress) as steps:
        page = report_html(fit, timelines=timelines, thorough=thorough, say=steps)
    write_text(path, page)
    return Path(path)


def report_html(
    fit: Fit,
    *,
    timelines: Any = None,
    thorough: bool | None = None,
    say: Callable[[str], None] = lambda words: None,
) -> str:
    """The report of a fit, as the text of an HTML page.

    Parameters
    ----------
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
    drawn = None
    if fit.panel is not None:
        say("states of every row")
        drawn = make_timelines(fit, timelines)
    data = {
        "kind": fit.kind,
        "states": [f"state {k}" for k in range(fit.model.size)],
        "subject": str(fit.columns["subject"]),
        "subjects": _subjects.labels(fit),
        "timelines": None if drawn is None else drawn.data,
        "effects": _subjects.effects_data(fit),
    }
    sections = list(_sections(fit, drawn, asked))
    say("writing")
    parts, colors = fit._parts(), state_colors(fit.model.size)
    title = parts.title if fit.model.n_effects else parts.plain_title
    return fill_page(title, fit.model.spec.text, sections, data, colors)


def _sections(fit: Fit, drawn: Timelines | None, asked: Asked) -> Iterator[PageSection]:
    say, parts = asked.say, fit._parts()
    yield PageSection("glance", "At a glance", _about.glance(fit))
    words = "\n".join(f"<p>{p}</p>" for p in parts.model_words(str(fit.columns["subject"])))
    yield PageSection("model", "The model", words)
    yield PageSection("data", "The data", _about.data(fit))
    if drawn is not None:
        say("pictures of states")
        yield PageSection("timelines", "States over time", _timelines(fit, drawn))
    say("estimates")
    yield from parts.estimates()
    yield PageSection("errors", "Standard errors", _errors(fit, asked))
    say("effects of subjects")
    yield PageSection("subjects", "Subjects", _of_subjects(fit))
    if fit.panel is not None:
        say("residuals")
        known = "_nodes" in vars(fit)
        drawn_effects = parts.draws_are_cheap or _wanted(fit, asked, _DRAWN_UP_TO, known)
        html = _attempt(lambda: residual_checks(fit, drawn_effects))
        yield PageSection("residuals", "Residuals", html)
    yield PageSection("ending", "How the fit ended", _about.ending(fit))
    if fit.model.n_effects:
        yield PageSection("anchoring", "Does anchoring hold?", _anchoring(fit, asked))
    yield PageSection("reading", "How to read this", parts.reading())
    yield PageSection("cite", "How to cite", cite())
    yield PageSection("reproduce", "Reproduce this analysis", reproduce(fit))


def _timelines(fit: Fit, drawn: Timelines) -> str:
    n, total = drawn.n_shown, drawn.n_subjects
    said = []
    if n < total:
        said.append(
            f"To keep this file small, it holds the rows of {n:,} of {count(total, 'subject')}, "
            "from the shortest to the longest. "
            '<code>fit.report(path, timelines=["label", ...])</code> takes others.'
        )
    if drawn.n_cut:
        said.append(f"Of {count(drawn.n_cut, 'subject')}, only the first rows are here.")
    words = f"<p>{' '.join(said)}</p>" if said else ""
    still = fit._parts().static_states()
    without = (
        '<noscript><p class="note">Without JavaScript the page shows some subjects only; with it, '
        "every subject can be picked, zoomed and read off.</p></noscript>"
    )
    return f'{words}{without}<div id="timeline" class="live"></div><div class="still">{still}</div>'


def _errors(fit: Fit, asked: Asked) -> str:
    if fit.panel is None:
        return "<p>Standard errors need the data, which are not here.</p>"
    wanted = errors_are_cheap(fit) if asked.thorough is None else asked.thorough
    if not wanted:
        return (
            "<p>Left out, since they take longer than all the rest here: "
            "<code>fit.report(path, thorough=True)</code> computes them, as does "
            "<code>fit.standard_errors()</code>.</p>"
        )
    asked.say("standard errors")
    about = (
        "<p>From the curvature of the marginal log likelihood; intervals of probabilities and "
        "variances are made on the scale of log odds and logarithms.</p>"
    )
    return _attempt(lambda: about + error_table(fit._standard_errors()))


def _wanted(fit: Fit, asked: Asked, up_to: int, known: bool = False) -> bool:
    """Whether something that may take long is to be computed."""
    if asked.thorough is not None:
        return asked.thorough
    return known or fit.info.n_rows * max(1, fit.model.n_effects) <= up_to


def _of_subjects(fit: Fit) -> str:
    if not fit.model.n_effects:
        return "<p>The model has no effects, so there is nothing to say about single subjects.</p>"
    still = _subjects.static_effects(fit)
    spread = fit._parts().spread()
    return f'{spread}<div id="effects" class="live"></div><div class="still">{still}</div>'


def _anchoring(fit: Fit, asked: Asked) -> str:
    if fit.panel is None or not _wanted(fit, asked, _DIAGNOSIS_UP_TO):
        return _known(fit)
    asked.say("anchoring")
    return _attempt(lambda: _about.anchoring(fit.diagnose()))


def _known(fit: Fit) -> str:
    """What the fit itself knows of it, without further computing."""
    names, lost = fit.model.effect_names, fit.info.lost
    if len(lost) != len(names):
        said = "The fit kept nothing on it."
    else:
        pairs = zip(names, lost, strict=True)
        parts = ", ".join(f"{code(name)} {max(share, 0.0):.0%}" for name, share in pairs)
        said = f"Information on each effect that is lost by not seeing the states: {parts}."
        if fit.info.refined:
            said += " The fit was refined to maximum likelihood, so its estimates do not suffer."
    return f"<p>{said} <code>fit.diagnose()</code> says more.</p>"


def _attempt(make: Callable[[], str]) -> str:
    """A section, or why it could not be made: the rest of the page is as good without it."""
    try:
        return make()
    except AvemError as error:
        return f'<p class="note">This could not be computed: {escape(str(error))}</p>'
