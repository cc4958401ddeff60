"""One outcome of a model as the user describes it: formula, family, formulas of its parameters."""

from __future__ import annotations

from dataclasses import dataclass
from inspect import isabstract
from typing import Any

import numpy as np

from avem.data import Panel, parse_formula
from avem.data.columns import outcome_codes, outcome_labels, outcome_values
from avem.data.formula import Formula
from avem.errors import DataError, ModelError, did_you_mean
from avem.families import FAMILIES, FamilyWord
from avem.families.base import Family
from avem.numerics.rows import selection


@dataclass(frozen=True, eq=False)
class Outcome:
    """Outcomes of one family; make one with `outcome`.

    Attributes
    ----------
    formula : Formula
        The outcomes, their covariates and their effects.
    family : Family
        Of each of them.
    parameters : tuple of (str, Formula)
        Parameters with a formula of their own.
    effects_by_state : bool
        Whether every state has its own effects.

    Examples
    --------
    >>> avem.outcome("y1 + y2 ~ x", "gamma").name
    'y1+y2'
    """

    formula: Formula
    family: Family
    parameters: tuple[tuple[str, Formula], ...]
    effects_by_state: bool

    @property
    def name(self) -> str:
        """How parameters of a model with several of these are prefixed."""
        return "+".join(self.formula.outcomes)

    @property
    def options(self) -> str:
        """Python for the family, with all that was chosen beside it."""
        more = [f"{name}={formula.text!r}" for name, formula in self.parameters]
        more += ["effects_by_state=True"] if self.effects_by_state else []
        return ", ".join([repr(self.family), *more])

    @property
    def formulas(self) -> tuple[Formula, ...]:
        """The outcome's own formula, then those of its parameters."""
        return (self.formula, *(formula for _, formula in self.parameters))


def outcome(
    formula: str,
    family: FamilyWord | str | Family = "gaussian",
    *,
    effects_by_state: bool = False,
    **parameters: str,
) -> Outcome:
    """One outcome (or several of one family) for a model with several.

    Parameters
    ----------
    formula : str
        As for `MixedHMM`: ``"step ~ temperature + (1 | animal)"``.
    family : str or Family
        A word such as ``"gamma"``, or a family object (its class stands for one with defaults).
    effects_by_state : bool
        Give every state its own effects, instead of one set shared by all states.
    **parameters : str
        Formulas of the family's further parameters, one-sided: ``shape="~ temperature"``.

    Returns
    -------
    Outcome

    Examples
    --------
    >>> step = avem.outcome("step ~ temperature + (1 | animal)", "gamma", shape="~ temperature")
    >>> angle = avem.outcome("angle ~ 1", "von_mises")
    >>> avem.MixedHMM([step, angle], n_states=2).spec.outcome_names
    ('step', 'angle')
    """
    parsed = parse_formula(formula)
    if not parsed.outcomes:
        raise ModelError(f"The formula {formula!r} has no outcome. Write 'y ~ ...'.")
    chosen = find_family(family).given(parsed, parameters, effects_by_state)
    names = chosen.with_formula
    described: list[tuple[str, Formula]] = []
    for name, text in parameters.items():
        if name not in names:
            raise ModelError(
                f"{name!r} is no parameter of {chosen!r} that takes a formula; available: "
                f"{', '.join(names) or 'none'}.{did_you_mean(name, names)} The outcome's own "
                "formula describes the rest."
            )
        one_sided = parse_formula(text)
        if one_sided.outcomes:
            raise ModelError(f"The formula of {name}= is {text!r}; write it one-sided: '~ x'.")
        described.append((name, one_sided))
    return Outcome(parsed, chosen, tuple(described), effects_by_state)


def find_family(family: Any) -> Family:
    """The family object for a word, an object or its class."""
    if isinstance(family, Family):
        return family
    if isinstance(family, type) and issubclass(family, Family) and not isabstract(family):
        return family.from_word()
    if not isinstance(family, str) or family not in FAMILIES:
        word = str(family).casefold()
        others = [name for name, kind in FAMILIES.items() if word in kind.other_names]
        hint = f" Here that is {others[0]!r}." if others else did_you_mean(family, FAMILIES)
        raise ModelError(f"family is {family!r}; available: {', '.join(FAMILIES)}.{hint}")
    return FAMILIES[family].from_word()


def learn_families(spec: Outcome, panel: Panel) -> tuple[Family, ...]:
    """The family of each outcome, with the levels that occur in the data."""
    names = spec.formula.outcomes
    if spec.family.levels != ():  # it needs none, or the user gave them
        return (spec.family,) * len(names)
    labels = [outcome_labels(panel, name, spec.family.ordered) for name in names]
    found = tuple(map(spec.family.learn, names, labels))
    if len({family.with_formula for family in found}) > 1:
        raise DataError(
            f"The {spec.family.name} outcomes {', '.join(names)} have different numbers of levels. "
            "Give each a formula of its own: [avem.outcome(...), avem.outcome(...)]."
        )
    return found


def read_outcome(family: Family, panel: Panel, name: str) -> np.ndarray:
    """(rows, columns): the outcome and the further columns its family reads, NaN where missing."""
    if family.levels is not None:
        return outcome_codes(panel, name, family.levels)[:, None]
    y = outcome_values(panel, name)
    columns = [y, *read_extras(family, panel)]
    seen = ~np.isnan(y)
    for extra, values in zip(family.extras, columns[1:], strict=True):
        gap = seen & np.isnan(values)
        if gap.any():
            raise DataError(
                f"The column {extra!r} is missing at {panel.source.name_rows(gap)}, where the "
                f"outcome {name!r} is observed."
            )
    observed = selection(seen)
    fine = family.valid(tuple(column[observed] for column in columns))
    if not np.all(fine):
        bad = seen.copy()
        bad[seen] = ~fine
        other = _for_zeros(family, y[bad])
        raise DataError(
            f"The outcome {name!r} is {y[bad][0]:g} at {panel.source.name_rows(bad)}; a "
            f"{family.name} outcome takes {family.wanted}. Choose another family{other}, or make "
            "these values missing."
        )
    made = family.columns(tuple(columns))
    return made[0][:, None] if len(made) == 1 else np.stack(made, axis=1)


def _for_zeros(family: Family, bad: np.ndarray) -> str:
    """A family that takes what is wrong, where that is zeros alone, or zeros and ones."""
    if not bad.any() and (other := f"zero_augmented_{family.name}") in FAMILIES:
        return f" ({other} takes zeros)"
    if np.isin(bad, (0, 1)).all() and (other := f"zero_one_inflated_{family.name}") in FAMILIES:
        return f" ({other} takes zeros and ones)"
    return ""


def read_extras(family: Family, panel: Panel) -> list[np.ndarray]:
    """The further columns that a family reads beside the outcome, each (rows,)."""
    use = f"beside a {family.name} outcome"
    infinite = family.infinite_extras
    return [outcome_values(panel, extra, use, infinite) for extra in family.extras]
