"""Durations with a location that has a formula, and perhaps a shape of each state."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from avem.components.base import Row
from avem.components.duration import Duration, families_of
from avem.components.duration_block import COEF, DurationBlock, Lengths
from avem.components.duration_families import (
    NUMPY,
    DurationFamily,
    chances_of_states,
    duration_family,
)
from avem.components.durations import Durations, Stay
from avem.components.emission import BlockMaker
from avem.components.free import Plain
from avem.components.lines import Builder, Line, general_kernel
from avem.components.param_info import ParamInfo, Params
from avem.components.scaling import Scaling

COEFS, SHAPE = "duration_coef", "duration_shape"
"""The user's parameters."""


@dataclass(frozen=True)
class LocatedDurations(Durations):
    """Durations with a location that has a formula, and perhaps a shape of each state."""

    families: tuple[DurationFamily, ...]
    """One for each state."""
    own_lines: tuple[Line, ...]
    """Location, and shape where a family has one."""
    key = "duration."

    @classmethod
    def of(cls, duration: Duration, n_states: int, part: int, builder: Builder) -> LocatedDurations:
        """Those of a model; `part` is the number of their formula's design."""
        families = families_of(duration, n_states)
        lines = [builder.line(part, "duration", "", "duration", duration.effects_by_state)]
        if any(family.shape for family in families):
            lines.append(builder.constant("duration", "shape", "duration"))
        return cls(n_states, duration, families, tuple(lines))

    @property
    def lines(self) -> tuple[Line, ...]:
        return self.own_lines

    @property
    def terms(self) -> tuple[str, ...]:
        """Names of the coefficients of a state's location."""
        return self.lines[0].terms

    @property
    def keeps_order(self) -> bool:
        return len(set(self.families)) > 1

    @property
    def is_markov(self) -> bool:
        return not self.tails.any() and self.duration.cuts[1]

    @property
    def has_markov(self) -> bool:
        one = duration_family("geometric")
        return self.duration.cuts[1] and all(one.within(family, True) for family in self.families)

    def within(self, other: Durations) -> bool:
        if not isinstance(other, LocatedDurations) or self.duration.cuts != other.duration.cuts:
            return False
        constant = not any(line.z_cols for line in self.lines) and self.terms == ("Intercept",)
        pairs = zip(self.families, other.families, strict=True)
        inside = all(own.within(family, constant) for own, family in pairs)
        # Beyond the maximum stays are geometric; what is so throughout has no other tail.
        return inside and (self.longest == other.longest or not self.tails.any())

    @property
    def tails(self) -> np.ndarray:
        return np.array([not family.memoryless for family in self.families])

    @property
    def ratio(self) -> str:
        kinds = {family.location for family in self.families}
        return f"ratio of {kinds.pop().removesuffix('s')}s" if len(kinds) == 1 else ""

    @property
    def _shapes(self) -> np.ndarray:
        """(states,) bool: which families have a shape."""
        return np.array([bool(family.shape) for family in self.families])

    # --- parameters -----------------------------------------------------------------------------

    def param_info(self) -> dict[str, ParamInfo]:
        k = self.n_states
        axes = f"states x terms ({', '.join(self.terms)}), on a log scale"
        found = {COEFS: ParamInfo((k, len(self.terms)), "free", axes)}
        if len(self.lines) > 1:
            words = ", ".join(family.shape or "1" for family in self.families)
            found[SHAPE] = ParamInfo((k,), "positive", f"states ({words})")
        return found

    def params_out(self, theta: Params, units: Scaling) -> Params:
        coef, n = theta[COEF], len(self.terms)
        found = {COEFS: self.lines[0].coef_out(coef[:, :n], units)}
        return found | ({SHAPE: np.exp(coef[:, n])} if len(self.lines) > 1 else {})

    def params_in(self, params: Params, units: Scaling) -> Params:
        parts = [self.lines[0].coef_in(params[COEFS], units)]
        if len(self.lines) > 1:
            shape = np.where(self._shapes, np.asarray(params[SHAPE], float), 1.0)
            parts.append(np.log(shape)[:, None])
        return {COEF: np.concatenate(parts, axis=1)}

    def rows(self, name: str, value: np.ndarray) -> Iterator[Row]:
        for k in range(self.n_states):
            if name == SHAPE:
                yield Row({"state": k}, value[k], not self._shapes[k])
                continue
            for i, term in enumerate(self.terms):
                yield Row({"state": k, "term": term}, value[k, i])

    def middle(self) -> Params:
        return {COEF: np.zeros((self.n_states, len(self.terms) + len(self.lines) - 1))}

    def free_entries(self, fixed) -> Params:
        free = [COEFS not in fixed] * len(self.terms)
        return {COEF: np.array(free + [SHAPE not in fixed] * (len(self.lines) - 1))}

    def free_parts(self, theta, fixed, spread, scale) -> list[Any]:
        coef = theta[COEF]
        free = np.broadcast_to(self.free_entries(fixed)[COEF], coef.shape).copy()
        if len(self.lines) > 1:
            low, high = (limit[:, -1] for limit in self.limits()[COEF])
            inside = (coef[:, -1] > low + 1e-3) & (coef[:, -1] < high - 1e-3)
            free[:, -1] &= self._shapes & inside
        return [Plain(COEF, np.flatnonzero(free))]

    def limits(self) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        if len(self.lines) == 1:
            return {}
        shape = (self.n_states, len(self.terms) + 1)
        low, high = np.full(shape, -np.inf), np.full(shape, np.inf)
        low[:, -1], high[:, -1] = np.array([family.limits for family in self.families]).T
        return {COEF: (low, high)}

    def matches(self, fixed) -> dict[int, Any]:
        return {} if COEFS in fixed else self.lines[0].matches(COEF, (), 0)

    def effect_units(self, units: Scaling):
        line = self.lines[0]
        change = units.to_user(line.z_cols)
        return [(places, change) for places in set(line.effects) if line.z_cols]

    # --- stays ----------------------------------------------------------------------------------

    def at(self, theta: Params, a: np.ndarray, effects: np.ndarray) -> Stay:
        etas, n, rows = [], len(self.terms), len(a)
        for k in range(self.n_states):
            coef = np.broadcast_to(theta[COEF][k], (rows, theta[COEF].shape[1]))
            etas.append(self.lines[0].eta(coef[:, :n], a, np.full(rows, k), effects))
        eta = np.stack(etas)  # (states, rows)
        shape = np.zeros_like(eta)
        if len(self.lines) > 1:
            shape += theta[COEF][:, n:]
        chances = chances_of_states(self.families, self.longest, eta, shape, NUMPY)
        phase, mean = chances.phase(NUMPY)
        leave, reach, phase = (
            np.exp(part).transpose(2, 1, 0) for part in (chances.leave, chances.reach, phase)
        )
        return Stay(leave, reach, phase, np.exp(mean).T)

    def start(self, constant: int, mean: np.ndarray | float) -> Params:
        x_cols = self.lines[0].x_cols
        coef = self.middle()[COEF]
        means = np.broadcast_to(mean, self.n_states)
        pairs = list(zip(self.families, means, strict=True))
        if constant in x_cols:
            coef[:, x_cols.index(constant)] = [family.start(own) for family, own in pairs]
        if len(self.lines) > 1:
            coef[:, -1] = [family.usual for family, _ in pairs]
        return {COEF: coef}

    def block(self, maker: BlockMaker, by_lane: bool) -> DurationBlock:
        begun, cut = self.duration.cuts
        density = Lengths(self.families, self.longest, begun)
        kernel = general_kernel(
            density, False, self.n_states, maker.n_effects, self.lines, maker.constant
        )
        pattern = maker.pattern(self.lines, (), np.ones(len(maker.y), bool))
        if by_lane and pattern >= 0 and maker.n_cells(pattern) > 1:
            pattern = -1
        return DurationBlock(kernel, cut, pattern, by_lane)
