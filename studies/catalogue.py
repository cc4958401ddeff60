"""The studies by name."""

from __future__ import annotations

from importlib import import_module

from avem.errors import ModelError
from studies.study import Study

NAMES = (
    "gaussian-accuracy",
    "gaussian-scaling",
    "gaussian-methods",
    "bernoulli-methods",
    "messm",
    "partial",
    "schematic",
    "theory",
    "anchoring",
    "refine",
    "coverage",
    "default",
    "subjects",
    "durations",
    "clocks",
)


def find(name: str) -> Study:
    """The study of that name, or the STUDY of a module with that dotted name."""
    if name in NAMES:
        return import_module(f"studies.{name.replace('-', '_')}").STUDY
    if all(part.isidentifier() for part in name.split(".")) and "." in name:
        try:
            return import_module(name).STUDY
        except (ModuleNotFoundError, AttributeError) as error:
            raise ModelError(
                f"{name!r} is no module with a STUDY: {error}. Run the command where it can be "
                "imported."
            ) from error
    raise ModelError(f"There is no study {name!r}; choose one of {', '.join(NAMES)}.")
