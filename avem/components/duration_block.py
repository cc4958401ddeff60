"""How long states last, to compiled code."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import Array

from avem.components.base import Block
from avem.components.duration_families import JAX, Chances, DurationFamily, chances_of_states
from avem.components.lanes import Theta, q_on_lanes, sum_lanes, to_lanes
from avem.components.linear import Cells, CoefTerms, GeneralKernel
from avem.data.layout import Chunk
from avem.effects.quadratic import EffectTerms
from avem.kernels.semi_markov import StayPosterior, Stays

COEF = "duration.coef"


@dataclass(frozen=True)
class Lengths:
    """A density for whole cells at once: ``y`` are expected counts of what stays did."""

    families: tuple[DurationFamily, ...]
    longest: int
    phased: bool
    """The first stay may have begun before the first row."""

    def chances(self, etas: tuple[Array, ...]) -> Chances:
        """(duration, ...) log chances at predictors (..., state, lane)."""
        location, *others = etas
        shape = others[0] if others else jnp.zeros_like(location)
        return chances_of_states(self.families, self.longest, location, shape, JAX)

    def log_density(self, y: tuple[Array, ...], etas: tuple[Array, ...]) -> Array:
        """Sum over durations of counts (duration, cell, state, lane) times log chances."""
        _, phase, ended, stayed = (part[:, None] if i else part for i, part in enumerate(y))
        chances = self.chances(etas)
        total = ended * chances.leave + stayed * chances.stay
        if self.phased:
            total = total + phase * chances.phase(JAX)[0]
        return total.sum(0)


class StayCounts(NamedTuple):
    """What stays did, (duration, cell, state, lane or subject) each."""

    phase: Array
    ended: Array
    stayed: Array


@dataclass(frozen=True)
class DurationBlock(Block):
    """Durations with a location, and perhaps a shape.

    Cells are those of a pattern of rows; or there is one for each lane, whose covariates do not
    change; or every row is one.
    """

    kernel: GeneralKernel
    """Of a density `Lengths`."""
    cut: bool
    """The last stay may go on after the last row."""
    pattern: int
    """Which of the chunk's patterns gathers the rows by what the durations read, or -1."""
    by_lane: bool

    @property
    def newton_keys(self) -> tuple[str, ...]:
        return (COEF,)

    @property
    def concave(self) -> bool:
        return False

    @property
    def has_effects(self) -> bool:
        return bool(self.kernel.with_effects)

    def _design(self, chunk: Chunk) -> Array:
        """(cell, column, lane)."""
        if self.pattern >= 0:
            return chunk.patterns[self.pattern].a[:, :, None]
        return chunk.a[:1] if self.by_lane else chunk.a

    def _q(self, mean: Array, cov: Array | None, chunk: Chunk) -> tuple[Array, Array | None]:
        """q of each lane of the cells."""
        return (mean, cov) if self.pattern >= 0 else q_on_lanes(mean, cov, chunk)

    def table(self, theta: Theta, f: Array, chunk: Chunk, cov: Array | None = None) -> Stays:
        """Chances of stays as `kernels.semi_markov` takes them; exp E_q[log] with `cov`."""
        density = self.kernel.density

        def logs(etas: tuple[Array, ...]) -> tuple[Array, ...]:
            """The nodes first: (node, duration, cell, state, lane)."""
            chances = density.chances(etas)
            parts = (chances.phase(JAX)[0], chances.leave, chances.stay)
            return tuple(jnp.moveaxis(part, 0, 1) for part in parts)

        found = self.kernel.expectation(
            logs, theta[COEF], *self._q(f, cov, chunk), self._design(chunk)
        )
        phase, leave, stay = (jnp.moveaxis(jnp.exp(part), 1, 0) for part in found)
        cell = None
        if self.pattern >= 0:
            phase, leave, stay = (_on_lanes(part, chunk) for part in (phase, leave, stay))
            # Rows that are not there have no cell of their own; any will do.
            cell = jnp.minimum(chunk.patterns[self.pattern].index, len(leave) - 1)
        if density.phased:
            first = phase[0] if cell is None else self._first(phase, cell)
        else:
            begins = (jnp.arange(density.longest) == 0).astype(phase.dtype)
            first = jnp.broadcast_to(begins[:, None, None], (*phase.shape[1:3], 1))
        return Stays(first, leave, stay, cell if len(leave) > 1 else None, self.cut)

    def _first(self, phase: Array, cell: Array) -> Array:
        """(duration, state, lane) at the first row's cell."""
        return sum((jnp.where(cell[0] == c, part, 0.0) for c, part in enumerate(phase)), 0.0)  # type: ignore[return-value]

    def collect(self, posterior: StayPosterior, chunk: Chunk) -> StayCounts:
        """Expected counts by cell."""
        ended, stayed = (jnp.moveaxis(part, 0, 1) for part in posterior[4:])
        if not self.kernel.density.phased:
            phase = jnp.zeros_like(ended[:1])
        elif self.pattern >= 0:
            cell = chunk.patterns[self.pattern].index[0]
            own = [jnp.where(cell == c, posterior.phase, 0.0) for c in range(ended.shape[1])]
            phase = jnp.stack(own, axis=1)
        else:
            first = (jnp.arange(ended.shape[1]) == 0)[:, None, None]
            phase = jnp.where(first, posterior.phase[:, None], 0.0)
        found = StayCounts(phase, ended, stayed)
        return sum_lanes(found, chunk) if self.pattern >= 0 else found

    def weigh(self, collected: StayCounts, share: Array, chunk: Chunk) -> StayCounts:
        own = share if self.pattern >= 0 else to_lanes(share, chunk)
        return StayCounts(*(part * own for part in collected))

    def _cells(self, counts: StayCounts, chunk: Chunk) -> Cells:
        return Cells((counts.ended[0], *counts), self._design(chunk), None)

    def _expected(self, of: Callable[..., Any], theta, mean, cov, counts, chunk) -> Any:
        q = self._q(mean, cov, chunk)
        found = of(theta[COEF], *q, self._cells(counts, chunk))
        return found if self.pattern >= 0 else sum_lanes(found, chunk)

    def value(self, theta, mean, cov, collected, chunk) -> Array:
        return self._expected(self.kernel.value, theta, mean, cov, collected, chunk)

    def effect_terms(self, theta, mean, cov, collected, chunk) -> EffectTerms:
        return self._expected(self.kernel.effect_terms, theta, mean, cov, collected, chunk)

    def coef_terms(self, key, coef, mean, cov, collected, chunk) -> CoefTerms:
        return self.kernel.coef_terms(
            coef, *self._q(mean, cov, chunk), self._cells(collected, chunk)
        )


def _on_lanes(part: Array, chunk: Chunk) -> Array:
    """From one lane per subject, or one for all."""
    return part if part.shape[-1] == 1 else to_lanes(part, chunk)
