"""Former places of public names: importing from there works, with a warning that says the new one.

The modules of the table are made when they are imported, by a finder that is asked after all
others, so that a module that exists always comes first.
"""

from __future__ import annotations

import sys
import warnings
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

MOVED: dict[str, dict[str, str]] = {
    "avem.inference.watch": {"Iteration": "avem"},
    "avem.models.outcome": {"Outcome": "avem", "outcome": "avem"},
    "avem.models.simulate": {"Simulation": "avem"},
    "avem.resampling": {},
    "avem.resampling.bootstrap": {"bootstrap": "avem"},
    "avem.results": {},
    "avem.results._ssm_plots": {"SSMPlots": "avem"},
    "avem.results.bootstrap_table": {"Bootstrap": "avem", "Replicate": "avem"},
    "avem.results.check": {"Check": "avem"},
    "avem.results.comparison": {"LRTest": "avem", "likelihood_ratio_test": "avem"},
    "avem.results.cross_validation": {"CrossValidation": "avem"},
    "avem.results.diagnosis": {"Diagnosis": "avem"},
    "avem.results.hmm_fit": {"HMMFit": "avem"},
    "avem.results.info": {"FitInfo": "avem"},
    "avem.results.likelihood": {"LogLik": "avem"},
    "avem.results.plots": {"Plots": "avem"},
    "avem.results.report": {"write_report": "avem.fits.report"},
    "avem.results.saving": {"load": "avem", "save": "avem.fits.io.saving"},
    "avem.results.selection": {"Selection": "avem"},
    "avem.results.ssm_fit": {"SSMFit": "avem"},
    "avem.results.tables": {"Summary": "avem"},
    "avem.selection": {"cross_validate": "avem", "select": "avem"},
    "avem.selection.folds": {"cross_validate": "avem"},
    "avem.selection.states": {"select": "avem"},
}
"""For each former module, its public names and the module that has each of them now."""


class Former:
    """Finds and makes the modules of `MOVED`."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """What Python's import asks every finder; None: not one of these."""
        if name not in MOVED:
            return None
        holds_others = any(other.startswith(name + ".") for other in MOVED)
        return ModuleSpec(name, self, is_package=holds_others)  # type: ignore[arg-type]

    def create_module(self, spec: ModuleSpec) -> None:
        """An ordinary module will do."""

    def exec_module(self, module: ModuleType) -> None:
        """Names are looked up in their new places when they are asked for."""
        former, names = module.__name__, MOVED[module.__name__]

        def find(name: str) -> Any:
            if name not in names:
                raise AttributeError(f"module {former!r} has no attribute {name!r}")
            words = f"{former}.{name} has moved: write `from {names[name]} import {name}`."
            warnings.warn(words, DeprecationWarning, stacklevel=2)
            return getattr(import_module(names[name]), name)

        module.__dict__.update(__getattr__=find, __all__=list(names))


_FORMER = Former()


def install() -> None:
    """Let imports find the former modules; once is enough."""
    if _FORMER not in sys.meta_path:
        sys.meta_path.append(_FORMER)
