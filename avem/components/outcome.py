"""One outcome of a model as the user describes it: formula, family, formulas of its parameters."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from avem.data import Panel, parse_formula
from avem.data.columns import outcome_codes, outcome_labels, outcome_values
from avem.data.formula import Formula
from avem.data.frames import examples
from avem.errors import DataError, ModelError
from avem.families import FAMILIES, Bernoulli, Custom, Gaussian, Normal
from avem.families.base import Family

AnyFamily = Gaussian | Family | Custom

_OTHER_NAMES = {
    "normal": "gaussian",
    "binary": "bernoulli",
    "logistic": "bernoulli",
    "multinomial": "categorical",
    "nbinom": "negative_binomial",
    "lognormal": "log_normal",
    "t": "student_t",
}
"""What other software calls some of the families."""


@dataclass(frozen=True, eq=False)
class Outcome:
    """Outcomes of one family; make one with `outcome`."""

    formula: Formula
    family: AnyFamily
    parameters: tuple[tuple[str, Formula], ...]
    """Parameters with a formula of their own."""
    effects_by_state: bool

    @property
    def name(self) -> str:
        """How parameters of a model with several of these are prefixed."""
        return "+".join(self.formula.outcomes)

    @property
    def formulas(self) -> tuple[Formula, ...]:
        """The outcome's own formula, then those of its parameters."""
        return (self.formula, *(formula for _, formula in self.parameters))


def outcome(
    formula: str,
    family: str | AnyFamily = "gaussian",
    *,
    effects_by_state: bool = False,
    **parameters: str,
) -> Outcome:
    """One outcome (or several of one family) for a model with several.

    Parameters
    ----------
    formula
        As for `MixedHMM`: ``"step ~ temperature + (1 | animal)"``.
    family
        A word such as ``"gamma"``, or a family object.
    effects_by_state
        Give every state its own effects, instead of one set shared by all states.
    **parameters
        Formulas of the family's further parameters, one-sided: ``shape="~ temperature"``.
    """
    parsed = parse_formula(formula)
    if not parsed.outcomes:
        raise ModelError(f"The formula {formula!r} has no outcome. Write 'y ~ ...'.")
    chosen = find_family(family)
    if isinstance(chosen, Gaussian) and "sd" in parameters:
        if chosen.covariance != "diagonal":
            raise ModelError(
                "A formula for sd= needs outcomes that are independent given the state: "
                'Gaussian("diagonal").'
            )
        chosen = Normal()
    if isinstance(chosen, Custom):
        if len(parsed.outcomes) != 1 or parsed.groups or parameters or effects_by_state:
            raise ModelError(
                "A custom family takes one outcome and covariates: 'y ~ x1 + x2'. Its effects are "
                "named in Custom(effects=...), its parameters in Custom(params=...)."
            )
        return Outcome(parsed, chosen, (), False)
    known = () if isinstance(chosen, Gaussian) else chosen.parameters[chosen.n_location :]
    names = [parameter.name for parameter in known]
    described: list[tuple[str, Formula]] = []
    for name, text in parameters.items():
        if name not in names:
            available = ["sd"] if isinstance(chosen, Gaussian) else names
            raise ModelError(
                f"{name!r} is no parameter of {chosen!r} that takes a formula; available: "
                f"{', '.join(available) or 'none'}. The outcome's own formula describes the rest."
            )
        one_sided = parse_formula(text)
        if one_sided.outcomes:
            raise ModelError(f"The formula of {name}= is {text!r}; write it one-sided: '~ x'.")
        described.append((name, one_sided))
    return Outcome(parsed, chosen, tuple(described), effects_by_state)


def find_family(family: Any) -> AnyFamily:
    """The family object for a word or an object."""
    if isinstance(family, Gaussian | Family | Custom):
        return family
    if family == "binomial":
        raise ModelError(
            "A binomial outcome needs its number of trials: avem.Binomial(trials='column') or "
            "avem.Binomial(10)."
        )
    if not isinstance(family, str) or family not in FAMILIES:
        other = _OTHER_NAMES.get(str(family).casefold())
        hint = "" if other is None else f" Here that is {other!r}."
        raise ModelError(f"family is {family!r}; available: {', '.join(FAMILIES)}.{hint}")
    return FAMILIES[family]()


def learn_families(spec: Outcome, panel: Panel) -> tuple[AnyFamily, ...]:
    """The family of each outcome, with the levels that occur in the data."""
    if not isinstance(spec.family, Family) or not spec.family.takes_levels:
        return (spec.family,) * len(spec.formula.outcomes)
    return tuple(_with_levels(spec.family, panel, name) for name in spec.formula.outcomes)


def _with_levels(family: Any, panel: Panel, name: str) -> Family:
    if family.levels:
        return family
    levels = outcome_labels(panel, name)
    if isinstance(family, Bernoulli):
        if set(levels) <= {0, 1}:  # False == 0 and True == 1
            return replace(family, levels=(0, 1))
        if len(levels) != 2:
            raise DataError(
                f"The outcome {name!r} takes {len(levels)} values ({examples(levels)}); a "
                "bernoulli outcome has two. Choose another family, such as 'categorical' or "
                "'poisson', or recode it."
            )
    elif not 2 <= len(levels) <= 100:
        raise DataError(
            f"The outcome {name!r} takes {len(levels)} values ({examples(levels)}); a "
            "categorical outcome has from 2 to 100."
        )
    return replace(family, levels=tuple(levels))


def read_outcome(family: AnyFamily, panel: Panel, name: str) -> np.ndarray:
    """(rows, columns): the outcome and the further columns its family reads, NaN where missing."""
    if isinstance(family, Family) and family.takes_levels:
        return outcome_codes(panel, name, family.levels)[:, None]  # type: ignore[attr-defined]
    y = outcome_values(panel, name)
    if not isinstance(family, Family):
        return y[:, None]
    columns = [y, *read_extras(family, panel)]
    seen = ~np.isnan(y)
    for extra, values in zip(family.extras, columns[1:], strict=True):
        gap = seen & np.isnan(values)
        if gap.any():
            raise DataError(
                f"The column {extra!r} is missing at {panel.source.name_rows(gap)}, where the "
                f"outcome {name!r} is observed."
            )
    bad = seen.copy()
    bad[seen] = ~family.valid(tuple(column[seen] for column in columns))
    if bad.any():
        raise DataError(
            f"The outcome {name!r} is {y[bad][0]:g} at {panel.source.name_rows(bad)}; a "
            f"{family.name} outcome takes {family.wanted}. Choose another family, or make these "
            "values missing."
        )
    return np.stack(columns, axis=1)


def read_extras(family: AnyFamily, panel: Panel) -> list[np.ndarray]:
    """The further columns that a family reads beside the outcome, each (rows,)."""
    use = f"beside a {family.name} outcome"
    return [outcome_values(panel, extra, use) for extra in family.extras]
