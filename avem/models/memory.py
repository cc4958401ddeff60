"""Whether rows depend on the outcomes of other rows other than through the states."""

from __future__ import annotations

from avem.data.expressions import compile_side
from avem.errors import ModelError
from avem.models.hmm import Specification
from avem.models.ssm import SSMSpecification


def all_outcomes(spec: Specification | SSMSpecification) -> set[str]:
    """The columns of all outcomes."""
    if isinstance(spec, SSMSpecification):
        return set(spec.formula.outcomes)
    return {name for outcome in spec.outcomes for name in outcome.formula.outcomes}


def outcomes_read(spec: Specification | SSMSpecification) -> list[tuple[str, list[str]]]:
    """The formulas that read outcomes of other rows, and which; those of the chain, of any row."""
    names = all_outcomes(spec)
    if isinstance(spec, SSMSpecification):
        chain = [spec.state]
    else:
        chain = [spec.transition, *([] if spec.initial is None else [spec.initial])]
    found = []
    for formula in spec.formulas:
        atoms = [atom for side in formula.sides for atom in compile_side(side)[1].values()]
        read = [set(atom.columns) if formula in chain else atom.lagged for atom in atoms]
        used = sorted(names & set().union(*read))
        if used:
            found.append((formula.text, used))
    return found


def has_history(spec: Specification | SSMSpecification) -> bool:
    """A custom family remembers earlier outcomes."""
    if isinstance(spec, SSMSpecification):
        return False
    return any(o.family.has_history for o in spec.outcomes)


def refuse_memory(spec: Specification | SSMSpecification, what: str, instead: str) -> None:
    """Raise where hiding a value would change what is said of others, not only leave it out."""
    for text, used in outcomes_read(spec):
        raise ModelError(
            f"{what}, and {text!r} reads {', '.join(used)} from other rows: the rest would not "
            f"have the same likelihood without them. Use {instead}."
        )
    if has_history(spec):
        raise ModelError(
            f"{what}, and a custom family with a history reads them: the rest would not have the "
            f"same likelihood without them. Use {instead}."
        )
