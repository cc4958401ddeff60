"""The Python reference: a page for every public name, made from its docstring by autosummary.

Tables in `docs/api/` list the names; pages are written to `docs/api/reference/` when the site is
built, and are no part of the source. A public name or method without an anchor fails the build.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sphinx.util import logging

import avem
import avem.families

_log = logging.getLogger(__name__)
_ESTIMATORS = ["sklearn.HMMEstimator", "sklearn.SSMEstimator"]
_FAMILIES = {kind.__name__ for kind in (*avem.families.FAMILIES.values(), avem.Custom)}
CONTEXT = {
    "called": {"MixedHMM", "MixedSSM", "Stop", *_FAMILIES, *_ESTIMATORS},
    "with_inherited": {"HMMFit", "SSMFit", "Plots", "SSMPlots", "MixedHMM", "MixedSSM"}
    | {"families.Univariate"},
    "with_undocumented": {"Stop"},
    "without_members": {"Fit", "Summary", *_FAMILIES, *_ESTIMATORS},
}
"""For the templates: which classes are shown as calls, and how much of each is shown."""


def public_members() -> Iterator[str]:
    """Every public name, and the public methods of classes whose members are shown."""
    for name in avem.__all__:
        yield f"avem.{name}"
        found = getattr(avem, name)
        if not inspect.isclass(found) or issubclass(found, BaseException | Warning):
            continue
        if name in CONTEXT["without_members"]:
            continue
        inherits = name in CONTEXT["with_inherited"]
        for member in dir(found) if inherits else vars(found):
            if not member.startswith("_") and inspect.isfunction(getattr(found, member)):
                yield f"avem.{name}.{member}"


def remove_old_pages(app: Any) -> None:
    """Remove pages of names that the tables no longer list; autosummary writes the others."""
    tables = Path(app.srcdir) / "api"
    listed = {line.strip() for page in tables.glob("*.rst") for line in page.open(encoding="utf-8")}
    for page in (tables / "reference").glob("*.rst"):
        if page.stem not in listed:
            page.unlink()


def check_anchors(app: Any, env: Any) -> None:
    """Warn of every public name that the reference does not describe."""
    described = {name for name, *_ in env.get_domain("py").get_objects()}
    for name in public_members():
        if name not in described and getattr(_object(name), "__doc__", None):
            _log.warning("the reference lacks %s: list it in docs/api/", name, type="reference")


def _object(name: str) -> Any:
    found: Any = avem
    for part in name.split(".")[1:]:
        found = getattr(found, part)
    return found


def setup(app: Any) -> dict[str, bool]:
    """Called by Sphinx."""
    app.connect("builder-inited", remove_old_pages, priority=100)
    app.connect("env-updated", check_anchors)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
