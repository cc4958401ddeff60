"""How to cite an analysis, and how to reproduce it."""

from __future__ import annotations

import platform
import sys
from collections.abc import Iterator
from html import escape
from importlib.metadata import version

import numpy as np

from avem.fits.fit import Fit
from avem.fits.info import FitInfo
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
    out += [f"method={info.method!r}", *_method_options(info), *fit._parts().options()]
    if info.anchor != "mean":
        out.append(f"anchor={info.anchor!r}")
    if _has_record(info):
        out += [f"n_starts={info.n_starts}", f"max_iter={info.max_iter}", f"tol={info.tol!r}"]
        out += ["plain=True"] if info.plain else []
    else:
        n_starts = max(1, len(info.start_gaps))
        out.append("plain=True" if info.plain else f"n_starts={n_starts}")
    return [*out, f"seed={info.seed}"]


def _method_options(info: FitInfo) -> list[str]:
    """What is not as the method has it by default."""
    said = []
    if _has_record(info):
        said += [] if info.refine == "auto" else [f"refine={info.refine!r}"]
    elif info.refined and not anchoring_fails(info.lost):
        said.append("refine='adaptive'")
    elif not info.refined and anchoring_fails(info.lost):
        said.append("refine=None")
    if info.unanchored:
        said.append(f"unanchored={list(info.unanchored)!r}")
    for name, value in (("n_nodes", info.n_nodes), ("n_draws", info.n_draws)):
        said += [] if value is None else [f"{name}={value}"]
    return [*said, "fresh_draws=True"] if info.fresh_draws else said
