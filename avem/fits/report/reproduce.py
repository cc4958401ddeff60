"""How to cite what was done, and how to do it again."""

from __future__ import annotations

import platform
import sys
from html import escape
from importlib.metadata import version

import numpy as np

from avem.errors import ModelError
from avem.families import Custom
from avem.fits.hmm_fit import HMMFit
from avem.fits.info import FitInfo, method_of, refinement_of
from avem.fits.report.about import Fit
from avem.fits.report.hmm_words import model_code
from avem.fits.report.ssm_words import ssm_model_code
from avem.inference.after.diagnose import anchoring_fails

_TITLE = "Anchored Variational Inference for Personalized Sequential Latent-State Models"


def own_version() -> str:
    """Of avem."""
    return getattr(sys.modules["avem"], "__version__", "unknown")


def cite() -> str:
    """The paper and the software."""
    number = own_version()
    bibtex = (
        "@unpublished{guo_anchored,\n"
        "  author = {Guo},\n"
        f"  title = {{{_TITLE}}}\n"
        "}\n\n"
        "@software{avem,\n"
        "  title = {avem: hidden Markov and state-space models with subject-specific random "
        "effects},\n"
        f"  version = {{{number}}}\n"
        "}"
    )
    return (
        f"<p>The method: Guo, <cite>{_TITLE}</cite>.</p>\n"
        f"<p>The software: <cite>avem</cite>, version {escape(number)}, a Python library.</p>\n"
        f"<pre>{escape(bibtex)}</pre>"
    )


def again(fit: Fit) -> str:
    """The code, its options and the versions."""
    hmm = isinstance(fit, HMMFit)
    model = model_code(fit.model.spec) if hmm else ssm_model_code(fit.model.spec)
    text = f"{model}.fit(data, {', '.join(_arguments(fit))})"
    made_with = (
        f"avem {own_version()}, jax {version('jax')}, numpy {np.__version__}, Python "
        f"{platform.python_version()} wrote this page."
    )
    rest = "Arguments that are not shown (tol, init, ...) are not kept with the fit."
    if fit.info.fixed:
        held = ", ".join(fit.info.fixed)
        rest += f" Held at given values (fixed=): {held}."
    if hmm and any(isinstance(spec.family, Custom) for spec in fit.model.spec.outcomes):
        rest += " The functions of a custom family are yours to keep."
    return f"<pre>{escape(text)}</pre>\n<p>{escape(made_with)} {escape(rest)}</p>"


def _arguments(fit: Fit) -> list[str]:
    info = fit.info
    out = [f"{role}={name!r}" for role, name in fit.columns.items() if name is not None]
    out += [f"method={_method_code(info)}", *_refine_code(info)]
    if info.max_radius is not None:
        out.append(f"max_radius={info.max_radius!r}")
    n_starts = max(1, len(info.start_gaps))
    out.append("plain=True" if info.plain else f"n_starts={n_starts}")
    return [*out, f"seed={info.seed}"]


def _method_code(info: FitInfo) -> str:
    """The word where all its options are as usual, else the object."""
    try:
        method = method_of(info)
    except ModelError:  # a method of the user's own, whose class is not known here
        given = (f"{name}={value!r}" for name, value in (info.options or {}).items())
        return f"{info.method}({', '.join(given)})"
    return repr(method.word) if method == type(method)() else method.code()


def _refine_code(info: FitInfo) -> list[str]:
    """What is not so by default."""
    finer = refinement_of(info)
    if finer is not None and finer != type(finer)():
        return [f"refine={finer.code()}"]
    if info.refined and not anchoring_fails(info.lost):
        return ["refine='adaptive'"]
    return ["refine=None"] if not info.refined and anchoring_fails(info.lost) else []
