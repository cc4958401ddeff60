"""The expected log likelihood as a function of the effects: derivatives, and a closed form."""

from __future__ import annotations

from typing import NamedTuple

from jax import Array
from jaxtyping import Float

from avem.kernels.posterior import expected_quadratic


class EffectTerms(NamedTuple):
    """E_q of the expected log likelihood Q(f) and of its derivatives, per lane."""

    value: Float[Array, " lane"]
    gradient: Float[Array, "d lane"]
    curvature: Float[Array, "d d lane"]
    """Minus the second derivative."""
    majorant: Float[Array, "d d lane"]
    """At least the curvature, and never negative."""


class Quadratic(NamedTuple):
    """Q(f) = h'(f - o) - (f - o)'Lambda(f - o) / 2, up to a constant, of every subject."""

    curvature: Float[Array, "d d subject"]
    """Lambda."""
    linear: Float[Array, "d subject"]
    """h."""
    origin: Float[Array, "d subject"] | None = None
    """o; None: 0. Where little is left of large numbers it is the anchor."""

    def away(self, f: Array) -> Array:
        """The effects from the origin."""
        return f if self.origin is None else f - self.origin

    def about_zero(self) -> tuple[Array, Array]:
        """Lambda and h when the origin is 0."""
        if self.origin is None:
            return self.curvature, self.linear
        return self.curvature, self.linear + (self.curvature * self.origin[None]).sum(1)

    def value(self, mean: Array, cov: Array | None) -> Float[Array, " subject"]:
        """E_q Q(f); at the point `mean` when `cov` is None."""
        return expected_quadratic(self.curvature, self.linear, self.away(mean), cov)

    def terms(self, mean: Array, cov: Array | None) -> EffectTerms:
        """E_q Q(f) with the expectations of its derivatives."""
        moved = (self.curvature * self.away(mean)[None]).sum(1)
        value = self.value(mean, cov)
        return EffectTerms(value, self.linear - moved, self.curvature, self.curvature)
