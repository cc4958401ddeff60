"""Blocked mean field (the paper's Section 4.4): q_i(U) q_i(f), each updated given the other.

It differs from AVEM in one thing: the local pass reads the expectation of the log densities under
q_i instead of their values at the anchor.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from avem.inference.em import EM
from avem.inference.methods.anchored import TO_THE_END, anchored_pass
from avem.inference.methods.base import EStep, Method
from avem.inference.passes import Pass, Spread, spread_of


@dataclass(frozen=True)
class MeanField(Method):
    """Blocked mean field: states and effects independent in the posterior.

    Examples
    --------
    >>> avem.MeanField()  # the same as method="mean_field"
    MeanField()
    """

    word = "mean_field"
    expects_densities = True

    def bind(
        self, em: EM, effect_names: Sequence[str], plain: bool, rng: np.random.Generator
    ) -> EStep:
        """Expected log densities."""
        return ExpectedDensities()


@dataclass(frozen=True)
class ExpectedDensities(EStep):
    """One local pass with the log densities expected under q_i."""

    has_q = True

    def e_step(self, kernel, theta, anchor, around, chunk, form) -> Pass:
        """The local pass with expected log densities, and the new q_i(f)."""
        cov = spread_of(theta, anchor, around)
        found = anchored_pass(kernel, theta, anchor, cov, chunk, form, "quadrature", TO_THE_END)
        return found._replace(around=Spread(found.covariance))
