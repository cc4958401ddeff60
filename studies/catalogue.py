"""The studies by name."""

from __future__ import annotations

from importlib import import_module

from studies.runner import Study

NAMES = ("anchoring", "refine", "coverage", "partial")


def find(name: str) -> Study:
    """The study of that name."""
    if name not in NAMES:
        raise SystemExit(f"There is no study {name!r}; choose one of {', '.join(NAMES)}.")
    return import_module(f"studies.{name}").STUDY
