"""Whether rows depend on the outcomes of other rows other than through the states."""

from __future__ import annotations

from avem.errors import ModelError
from avem.models.hmm_specification import Specification
from avem.models.ssm_specification import SSMSpecification


def outcomes_read(spec: Specification | SSMSpecification) -> list[tuple[str, list[str]]]:
    """The formulas that read outcomes of other rows, and which; those of the states, of any row."""
    names, found = set(spec.outcome_names), []
    for formula in spec.formulas:
        of_states = formula in spec.state_formulas
        read = [set(atom.columns) if of_states else atom.lagged for atom in formula.atoms]
        used = sorted(names & set().union(*read))
        if used:
            found.append((formula.text, used))
    return found


def refuse_memory(spec: Specification | SSMSpecification, what: str, instead: str) -> None:
    """Raise where hiding a value would change what is said of others, not only leave it out."""
    for text, used in outcomes_read(spec):
        raise ModelError(
            f"{what}, and {text!r} reads {', '.join(used)} from other rows: the rest would not "
            f"have the same likelihood without them. Use {instead}."
        )
    if spec.has_history:
        raise ModelError(
            f"{what}, and a custom family with a history reads them: the rest would not have the "
            f"same likelihood without them. Use {instead}."
        )
