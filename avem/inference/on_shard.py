"""What a shard keeps of its subjects, and an E-step there."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np

from avem.components.linear import CoefTerms
from avem.data.layout import Chunk
from avem.effects.prior import EffectDensity
from avem.inference.passes import Glance, Pass, Totals
from avem.inference.theta import Match
from avem.models.kernel import Kernel
from avem.numerics import devices
from avem.numerics.arrays import in_numpy, per_subject, placed, stay

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

    @cached_property
    def _copies(self) -> dict[Any, Any]:
        """theta on each device, and what was sent beside it."""
        return {}

    def sent(self, name: str, value: np.ndarray) -> Any:
        """A further array of the driver's where the computation at hand is, sent there once."""
        key = devices.here(), name
        if key not in self._copies:
            # There by default, but not bound to it: code would be compiled for both kinds.
            self._copies[key] = value if in_numpy() else jax.device_put(value)
        return self._copies[key]

    @cached_property
    def effect_density(self) -> EffectDensity:
        """What the prior density of effects is computed from."""
        return EffectDensity.of(self.theta["effect_covariance"])

    @property
    def here(self) -> dict[str, Any]:
        """theta where the computation at hand is."""
        device = devices.here()
        if device not in self._copies:
            self._copies[device] = placed(self.theta)
        return self._copies[device]

    def look(self, chunk: Chunk, subjects: Subjects) -> Pass:
        """The E-step of a chunk; on a CPU all but `kept` is NumPy's."""
        at = (subjects.anchor, subjects.around)
        p = self.method.e_step(self.kernel, self.here, *at, chunk, self.form)
        return Pass(*stay(p._replace(kept=None)))._replace(kept=p.kept)

    def glance(self, chunk: Chunk, anchor: np.ndarray) -> tuple[Glance, Pass | None]:
        """What climbing reads of an E-step at anchors, and the E-step itself if it was run."""
        at = (self.kernel, self.here, anchor, chunk, self.form)
        found = self.method.glance(*at)
        if found is not None:
            return Glance(*stay(found)), None
        p = self.look(chunk, Subjects(anchor))
        return Glance(p.mean, p.covariance, p.loglik), p


class ShardSums(NamedTuple):
    """What travels of a shard's E-step; all of it is added up over shards."""

    n_impossible: Any
    """Subjects for whom the E-step was not finite where it began."""
    bound: Any
    """Sum of the method's objective."""
    loglik: Any
    moved: Any
    """Sum of squares of how far the means of q are from the anchors."""
    totals: Totals
    terms: tuple[CoefTerms, ...]


def summary(chunk: Chunk, subjects: Subjects, first: Pass | None = None) -> ShardSums:
    """Of the E-step that was run; `first` is the one that it began with."""
    p = subjects.found
    assert p is not None
    at = (subjects.anchor, p.mean, chunk.real, chunk.weight)
    began = p.bound if first is None else first.bound
    impossible, bound, loglik, moved = _sums(began, p.bound, p.loglik, *at)
    return ShardSums(impossible, bound, loglik, moved, p.totals, p.terms)


def totals_of(kernel: Kernel, sums: ShardSums) -> Totals:
    """As the M-step reads them."""
    return sums.totals._replace(model=kernel.read(sums.totals.model))


@per_subject
def _sums(
    xp: Any, began: Any, bound: Any, loglik: Any, anchor: Any, mean: Any, real: Any, weight: Any
) -> tuple[Any, Any, Any, Any]:
    if weight is not None:
        bound, loglik = weight * bound, weight * loglik
    moved = squares(xp, mean - anchor, real)
    return (~xp.isfinite(began)).sum(), bound.sum(), loglik.sum(), moved


def squares(xp: Any, away: Any, real: Any) -> Any:
    """The sum of squares over the subjects that are not padding."""
    return xp.where(real, away**2, 0.0).sum()
