"""What a user asked of a fit: the one record that goes from fit() to the loop and into its info."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from avem.components.param_info import check_count, check_seed
from avem.errors import ModelError
from avem.inference.loop import Rules
from avem.inference.methods.adaptive.method import Adaptive
from avem.inference.methods.base import Method
from avem.inference.methods.names import take_options
from avem.inference.tuning import PLAIN_TOL


@dataclass(frozen=True)
class Options:
    """How to go about a fit, whatever the model and the method; checked when it is made."""

    method: Method
    refine: Adaptive | None
    """What goes on from the method's solution; None: nothing does."""
    only_if_needed: bool
    """Refine only where anchoring does not hold: refine="auto"."""
    n_starts: int
    max_iter: int
    tol: float | None
    seed: int
    plain: bool

    def __post_init__(self) -> None:
        if self.refine is not None and not self.only_if_needed and self.method.likelihood:
            raise ModelError(
                f"refine goes with method='avem'; {self.method.word!r} maximises it already."
            )
        check_count("n_starts", self.n_starts)
        check_count("max_iter", self.max_iter)
        tol = self.tol
        is_number = isinstance(tol, int | float | np.number) and not isinstance(tol, bool)
        if tol is not None and not (is_number and tol >= 0):
            raise ModelError(f"tol is {tol!r}; a number that is not negative is wanted.")
        check_seed(self.seed)

    @classmethod
    def read(cls, method: Any, refine: Any, once: Mapping[str, Any], **shared: Any) -> Options:
        """From the words and objects of fit(); `once` has options that it used to have."""
        return cls(*take_options(method, refine, once), **shared)

    def check(self, effect_names: Sequence[str]) -> None:
        """Raise ModelError unless this can be run on a model with these effects."""
        self.method.check(effect_names, self.plain)
        if self.refinement is not None:
            self.refinement.check(effect_names, self.plain)

    @property
    def refinement(self) -> Adaptive | None:
        """What goes on from the method's solution: not by itself from the paper's iteration."""
        return None if self.plain and self.only_if_needed else self.refine

    @property
    def integrates(self) -> bool:
        """The likelihood is what counts, from the starts on."""
        return self.method.likelihood or self.refinement is not None

    def rules(self, usual: float) -> Rules:
        """When to stop; `usual` is the tolerance of this kind of model."""
        usual = PLAIN_TOL if self.plain else self.method.tol(usual)
        return Rules(self.max_iter, usual if self.tol is None else self.tol, self.plain)

    def record(self, method: Method) -> dict[str, Any]:
        """What a person needs to ask for the same again; `method` with its choices made."""
        refine = None if self.refine is None else self.refine.word
        return {
            "method": method.word,
            "likelihood": method.likelihood,
            "options": method.options(),
            "refine_options": None if self.refine is None else self.refine.options(),
            "refine": "auto" if self.only_if_needed else refine,
            **_well_known(method, self.refine),
            "n_starts": int(self.n_starts),
            "max_iter": int(self.max_iter),
            "plain": bool(self.plain),
            "seed": int(self.seed),
        }


_WELL_KNOWN = {
    "q_update": "laplace",
    "anchor": "mean",
    "unanchored": (),
    "n_nodes": None,
    "n_draws": None,
    "fresh_draws": False,
    "batch_size": None,
}
"""The options of avem's own methods, and what they are where a method has no such option."""


def _well_known(method: Method, refine: Adaptive | None) -> dict[str, Any]:
    of_refine = {} if refine is None else refine.options()
    found = {**_WELL_KNOWN, **of_refine, **method.options()}
    return {name: found[name] for name in _WELL_KNOWN} | {"unanchored": tuple(found["unanchored"])}
