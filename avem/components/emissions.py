"""From what the user says of the outcomes to the components that emit them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from avem.components.custom import CustomEmission
from avem.components.emission import Emission, Position
from avem.components.gaussian import GaussianEmission
from avem.components.glm import FamilyEmission
from avem.components.joint import JointEmission
from avem.components.lines import Builder
from avem.components.outcome import Outcome
from avem.families.base import Family

EMISSIONS: dict[str, type[Emission]] = {
    "gaussian": GaussianEmission,
    "linear": FamilyEmission,
    "joint": JointEmission,
    "custom": CustomEmission,
}
"""By what a family says of itself in `Family.emission`."""


def make_emissions(
    specs: Sequence[Outcome], families: Sequence[Sequence[Family]], builder: Builder
) -> tuple[Emission, ...]:
    """The emissions of a model whose designs begin with those of the outcomes' formulas."""
    return tuple(_make(specs, families, builder))


def _make(specs, families, builder: Builder) -> Iterator[Emission]:
    part = n_made = n_columns = 0
    for number, (spec, of_spec) in enumerate(zip(specs, families, strict=True)):
        prefix = "" if len(specs) == 1 else f"{spec.name}."
        kind = EMISSIONS[of_spec[0].emission]
        for outcomes, family in kind.split(spec.formula.outcomes, of_spec):
            place = Position(f"{n_made}.", prefix, number, part, n_columns)
            made = kind.build(place, outcomes, family, spec, builder)
            n_made, n_columns = n_made + 1, n_columns + len(made.y_cols)
            yield made
        part += len(spec.formulas)
