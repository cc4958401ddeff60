"""What a shard keeps of its subjects, and an E-step there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np

from avem.components.linear import CoefTerms
from avem.data.layout import Chunk
from avem.inference.passes import Glance, Pass, Totals
from avem.inference.theta import Match
from avem.models.kernel import Kernel
from avem.numerics.arrays import per_subject, stay

if TYPE_CHECKING:
    from avem.inference.methods.base import EStep


class Subjects(NamedTuple):
    """What the next E-step needs of a shard's subjects."""

    anchor: Any
    """(d, subject)."""
    around: Any = None
    """What the method keeps beside the anchors; None: nothing yet."""
    found: Pass | None = None
    """The E-step at these anchors, if it was run."""

    def lean(self) -> Subjects:
        """Without what is large and can be computed again: what the M-step by Newton reads."""
        return self if self.found is None else self._replace(found=self.found._replace(kept=None))


@dataclass(frozen=True, eq=False)
class Setting:
    """What an E-step is run with: goes to every shard."""

    kernel: Kernel
    method: EStep
    theta: dict[str, np.ndarray]
    form: str
    """"scaled", or "log" where the scaled recursion underflows."""
    matches: tuple[Match | None, ...]
    """(d,) the fixed coefficients that each effect is added to."""
    code_price: float = 1.0
    """What compiling costs beside work on this shard: 1 for the only one, on a processor."""

    def look(self, chunk: Chunk, subjects: Subjects) -> Pass:
        """The E-step of a chunk; sums leave the device here, once, and on a CPU all but `kept`."""
        p = self.method.e_step(
            self.kernel, self.theta, subjects.anchor, subjects.around, chunk, self.form
        )
        totals, terms = jax.device_get((p.totals, p.terms))
        seen = Pass(*stay(p._replace(kept=None, totals=None, terms=())))
        return seen._replace(kept=p.kept, totals=totals, terms=terms)

    def glance(self, chunk: Chunk, anchor: np.ndarray) -> tuple[Glance, Pass | None]:
        """What climbing reads of an E-step at anchors, and the E-step itself if it was run."""
        at = (self.kernel, self.theta, anchor, chunk, self.form)
        found = self.method.glance(*at)
        if found is not None:
            return Glance(*stay(found)), None
        p = self.look(chunk, Subjects(anchor))
        return Glance(p.mean, p.covariance, p.loglik), p


class ShardSums(NamedTuple):
    """What travels of a shard's E-step."""

    possible: Any
    """The E-step was finite where it began."""
    bound: Any
    """Sum of the method's objective."""
    loglik: Any
    moved: Any
    """Sum of squares of how far the means of q are from the anchors."""
    totals: Totals
    terms: tuple[CoefTerms, ...]


def summary(chunk: Chunk, subjects: Subjects, setting: Setting, possible: bool = True) -> ShardSums:
    """Of the E-step that was run."""
    p = subjects.found
    assert p is not None
    totals = p.totals._replace(model=setting.kernel.read(p.totals.model))
    at = (subjects.anchor, p.mean, chunk.real, chunk.weight)
    bound, loglik, moved = _sums(p.bound, p.loglik, *at)
    return ShardSums(possible, bound, loglik, moved, totals, p.terms)


def is_finite(p: Pass) -> bool:
    """Whether every subject has a bound."""
    return bool(_all_finite(p.bound))


@per_subject
def _all_finite(xp: Any, values: Any) -> Any:
    return xp.isfinite(values).all()


@per_subject
def _sums(
    xp: Any, bound: Any, loglik: Any, anchor: Any, mean: Any, real: Any, weight: Any
) -> tuple[Any, Any, Any]:
    if weight is not None:
        bound, loglik = weight * bound, weight * loglik
    return bound.sum(), loglik.sum(), squares(xp, mean - anchor, real)


def squares(xp: Any, away: Any, real: Any) -> Any:
    """The sum of squares over the subjects that are not padding."""
    return xp.where(real, away**2, 0.0).sum()
