"""Several outcomes with one density in linear predictors, as a component."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from avem.components.glm import FamilyEmission


@dataclass(frozen=True)
class JointEmission(FamilyEmission):
    """The outcomes of one formula together: all of them are there in a row, or none."""

    @classmethod
    def split(cls, outcomes, families):
        return [(tuple(outcomes), families[0])]

    @classmethod
    def make_lines(cls, place, outcomes, family, spec, builder):
        whole, own = "+".join(outcomes), dict(spec.parameters)
        for i, parameter in enumerate(family.parameters):
            if i < family.n_location:
                name = parameter.name
                yield builder.line(place.part, name, "", name, spec.effects_by_state)
            elif parameter.name in own:
                part = place.part + 1 + list(own).index(parameter.name)
                by_state = spec.effects_by_state
                yield builder.line(part, whole, parameter.name, whole, by_state)
            else:
                yield builder.constant(whole, parameter.name, whole)

    @property
    def outcome(self) -> str:
        """All of them."""
        return "+".join(self.outcomes)

    def half_seen(self, y: np.ndarray) -> np.ndarray:
        missing = np.isnan(y)
        return np.asarray(missing.any(axis=1) & ~missing.all(axis=1))

    def impossible(self, y: np.ndarray) -> np.ndarray:
        total = y.sum(axis=1)
        return ~np.isnan(total) & (np.abs(total - 1.0) > 1e-6)

    def draw(self, rng, theta, a, state, effects, extras):
        etas = self.etas(theta[self.coef_key], a, state, effects)
        values = self.family.draw(rng, etas, extras)
        return {name: values[..., j] for j, name in enumerate(self.outcomes)}
