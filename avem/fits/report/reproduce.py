"""How to cite an analysis, and how to reproduce it."""

from __future__ import annotations

import platform
import sys
from collections.abc import Iterator
from html import escape
from importlib.metadata import version

import numpy as np

from avem.errors import ModelError
from avem.fits.fit import Fit
from avem.fits.info import FitInfo, method_of, refinement_of
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


def reproduce(fit: Fit) -> str:
    """The code, its options and the versions."""
    text = f"{fit._parts().code()}.fit(data, {', '.join(_arguments(fit))})"
    made_with = (
        f"avem {own_version()}, jax {version('jax')}, numpy {np.__version__}, Python "
        f"{platform.python_version()} wrote this page."
    )
    said = " ".join([made_with, *_what_is_missing(fit)])
    return f"<pre>{escape(text)}</pre>\n<p>{escape(said)}</p>"


def _what_is_missing(fit: Fit) -> Iterator[str]:
    """What the code cannot say."""
    info = fit.info
    if info.fixed:
        yield f"Held (fixed=), at the values that fit.params has: {', '.join(info.fixed)}."
    if info.init:
        yield (
            f"It began at given values (init=) of {', '.join(info.init)}, which are not kept with "
            "the fit."
        )
    if not _has_record(info):
        yield (
            "This fit was saved by an earlier avem, which did not keep tol, max_iter, batch_size "
            "and init."
        )
    yield from fit._parts().caveats()


def _has_record(info: FitInfo) -> bool:
    """Whether the options are kept as they were given."""
    return info.tol is not None


def _arguments(fit: Fit) -> list[str]:
    info = fit.info
    out = [f"{role}={name!r}" for role, name in fit.columns.items() if name is not None]
    if info.carried:
        out.append("missing='carry'")
    if info.weights is not None:
        out += [f"weights={info.weights!r}", f"weights_kind={info.weights_kind!r}"]
    out += [f"method={_method_code(info)}", *_refine_code(info)]
    out += [f"{name}={value!r}" for name, value in fit._own_options().items() if value is not None]
    if _has_record(info):
        out += [f"n_starts={info.n_starts}", f"max_iter={info.max_iter}", f"tol={info.tol!r}"]
        out += ["plain=True"] if info.plain else []
    else:
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
    if _has_record(info):
        return [] if info.refine == "auto" else [f"refine={info.refine!r}"]
    if info.refined and not anchoring_fails(info.lost):
        return ["refine='adaptive'"]
    return ["refine=None"] if not info.refined and anchoring_fails(info.lost) else []
