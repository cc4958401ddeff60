"""What a user asks of a hidden Markov model, before there are any data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from avem.components.duration import Duration, as_duration, check_no_outcome, families_of
from avem.components.durations import departures
from avem.components.generator import rates
from avem.components.given_moves import GivenMoves
from avem.components.logit_transitions import LogitTransitions
from avem.components.moves import WORDS
from avem.components.outcome import Outcome, outcome
from avem.components.param_info import check_count, check_states
from avem.components.priors import Prior
from avem.components.transitions import Transitions, as_transitions
from avem.data import parse_formula
from avem.data.formula import Formula
from avem.effects.prior import STRUCTURES
from avem.errors import ModelError, did_you_mean
from avem.families import Family
from avem.models.constraints import as_constraints, with_states
from avem.models.given_priors import as_priors, code_of
from avem.models.state_names import check_state_names

_MOST_CLUSTERS = 50
"""Of types of subjects; a larger number is a slip."""


class Specification(NamedTuple):
    """What the user asked for, before any data."""

    n_states: int
    outcomes: tuple[Outcome, ...]
    transition: Transitions
    initial: Formula | None
    """None: the stationary distribution."""
    effect_covariance: str
    state_names: tuple[str, ...] = ()
    """Empty: states have numbers alone."""
    known: str | None = None
    """The column of what is known of a row's state."""
    duration: Duration | None = None
    """None: stays are those of a Markov chain."""
    constraints: tuple[str, ...] = ()
    """Sentences about parameters."""
    priors: tuple[tuple[str, Prior], ...] = ()
    """By the name of a parameter, or of some of its numbers."""
    n_clusters: int = 1
    """Types of subjects, each with a chain of its own."""

    @property
    def formulas(self) -> tuple[Formula, ...]:
        """All formulas: of the outcomes and their parameters, of the chain, and a constant."""
        of_outcomes = [formula for spec in self.outcomes for formula in spec.formulas]
        return (*of_outcomes, *self.state_formulas, parse_formula("~ 1"))

    @property
    def state_formulas(self) -> tuple[Formula, ...]:
        """Those of the transitions, of the first state and of the durations."""
        found = [self.transition.formula, *([self.initial] if self.initial is not None else [])]
        return (*found, *([self.duration.parsed] if self.duration is not None else []))

    def renamed(self, names: tuple[str, ...]) -> Specification:
        """The same with other names of the states, wherever it speaks of them."""
        before = self.state_names
        return self._replace(
            state_names=names,
            constraints=tuple(with_states(text, before, names) for text in self.constraints),
            priors=tuple((with_states(text, before, names), own) for text, own in self.priors),
        )

    @property
    def outcome_names(self) -> tuple[str, ...]:
        """The columns of all outcomes."""
        return tuple(name for spec in self.outcomes for name in spec.formula.outcomes)

    @property
    def has_history(self) -> bool:
        """A family remembers earlier outcomes."""
        return any(spec.family.has_history for spec in self.outcomes)

    @property
    def text(self) -> str:
        """The outcomes' formulas in one line."""
        return "; ".join(spec.formula.text for spec in self.outcomes)

    @property
    def options(self) -> dict[str, str]:
        """Python for all else that tells it from other models, by name."""
        families = [spec.options for spec in self.outcomes]
        found = {"family": families[0] if len(families) == 1 else f"[{'; '.join(families)}]"}
        if moves := self.transition.code():
            found["transition"] = moves
        if self.duration is not None:
            found["duration"] = f"avem.{self.duration!r}"
        if self.initial is None:
            found["initial"] = repr("stationary")
        elif not self.initial.is_constant:
            found["initial"] = repr(self.initial.text)
        if self.effect_covariance != "full":
            found["effect_covariance"] = repr(self.effect_covariance)
        if self.n_clusters > 1:
            found["n_clusters"] = repr(self.n_clusters)
        if self.known is not None:
            found["known"] = repr(self.known)
        if self.constraints:
            found["constraints"] = repr(list(self.constraints))
        if self.priors:
            found["priors"] = code_of(self.priors)
        return found | ({"state_names": repr(list(self.state_names))} if self.state_names else {})


def make_specification(
    formula: str | Outcome | Sequence[Outcome],
    n_states: int,
    family: str | Family = "gaussian",
    *,
    transition: str | Sequence[tuple[Any, Any]] | Transitions,
    initial: str,
    effect_covariance: str,
    effects_by_state: bool,
    duration: str | Duration | Sequence[str] | Mapping[Any, str] | None,
    state_names: Sequence[str] | None,
    time_scale: str | None,
    known: str | None,
    constraints: str | Sequence[str] | None,
    priors: Mapping[str, Prior] | str | None,
    n_clusters: int = 1,
) -> Specification:
    """The specification that the options of `MixedHMM` give; an error where they cannot be."""
    if isinstance(formula, str):
        outcomes = (outcome(formula, family, effects_by_state=effects_by_state),)
    else:
        outcomes = _outcomes(formula, family, effects_by_state)
    check_states("n_states", n_states)
    if effect_covariance not in STRUCTURES:
        raise ModelError(
            f"effect_covariance is {effect_covariance!r}; "
            f"choose one of {', '.join(STRUCTURES)}."
            f"{did_you_mean(effect_covariance, STRUCTURES)}"
        )
    start = None if initial == "stationary" else _one_sided(initial, "initial", ["stationary"])
    if start is not None and start.offset:
        raise ModelError(f"initial={initial!r}: an offset() of the first state says nothing.")
    moves = _transitions(transition, time_scale)
    if start is not None and start.groups and n_states > 2:
        _check_odds(effect_covariance)
    names, stays = check_state_names(state_names, int(n_states)), None
    if duration is not None:
        if moves.clock is not None:
            raise ModelError(
                "duration= counts steps, and goes with time_scale='discrete'. Leave one of the "
                "two out."
            )
        stays, moves = as_duration(duration, names), departures(moves)
        families_of(stays, int(n_states))
        check_no_outcome([name for item in outcomes for name in item.formula.outcomes])
    if start is None and not moves.may_be_stationary:
        given = (
            "a formula, in discrete time" if stays is None else "a formula, and without duration="
        )
        raise ModelError(f"initial='stationary' goes with transitions given by {given}.")
    if known is not None and not (isinstance(known, str) and known):
        raise ModelError(f"known is {known!r}; the name of a column is wanted.")
    return Specification(
        int(n_states),
        outcomes,
        moves.named(names),
        start,
        effect_covariance,
        names,
        known,
        stays,
        tuple(one.text for one in as_constraints(constraints)),
        as_priors(priors),
        check_clusters(n_clusters, int(n_states), start is None, stays is not None),
    )


def check_clusters(given: Any, n_states: int, stationary: bool, stays: bool) -> int:
    """How many types of subjects there are, or an error."""
    check_count("n_clusters", given)
    if given > _MOST_CLUSTERS:
        raise ModelError(
            f"n_clusters is {given}; at most {_MOST_CLUSTERS} types are fitted. Begin with 2."
        )
    if given > 1 and n_states == 1:
        raise ModelError(
            f"n_clusters is {given}, and there is one state: clusters differ in how they move "
            "between states. Give n_states=2 or more, or leave n_clusters= out."
        )
    if given > 1 and (stationary or stays):
        what = "duration=" if stays else "initial='stationary'"
        raise ModelError(f"{what} is not available with n_clusters={given}. Leave one of them out.")
    return int(given)


def _outcomes(given: Any, family: Any, effects_by_state: bool) -> tuple[Outcome, ...]:
    listed = (given,) if isinstance(given, Outcome) else given
    if not isinstance(listed, list | tuple) or not listed:
        raise ModelError(
            f"The first argument is {given!r}; a formula or a list of avem.outcome(...) is wanted."
        )
    wrong = [item for item in listed if not isinstance(item, Outcome)]
    if wrong:
        raise ModelError(
            f"The list of outcomes has {wrong[0]!r}; write avem.outcome('y ~ ...', family)."
        )
    if family != "gaussian" or effects_by_state:
        raise ModelError(
            "With a list of outcomes, family and effects_by_state belong into each avem.outcome()."
        )
    names = [name for item in listed for name in item.formula.outcomes]
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise ModelError(f"The outcome {twice[0]!r} is in the list twice.")
    return tuple(listed)


def _transitions(given: Any, time_scale: Any) -> Transitions:
    """The moves of a formula, or an object, on the time scale that was chosen."""
    scales = ("discrete", "continuous")
    listed = isinstance(given, list | tuple)
    if listed or (isinstance(given, str) and given.strip() in WORDS):
        moves = given if listed else given.strip()
        given = rates(moves=moves) if time_scale == "continuous" else GivenMoves(moves=moves)
    if time_scale is not None and time_scale not in scales:
        raise ModelError(
            f"time_scale is {time_scale!r}; choose one of {', '.join(scales)}."
            f"{did_you_mean(time_scale, scales)}"
        )
    if isinstance(given, str):
        formula = _one_sided(given, "transition", WORDS).text
        if time_scale == "continuous":
            return rates(formula)
        return LogitTransitions(text=formula)
    moves = as_transitions(given)
    if time_scale is not None and (moves.clock is not None) != (time_scale == "continuous"):
        raise ModelError(
            f"time_scale is {time_scale!r}, and transition={given!r} is of the other kind. Leave "
            "one of them out."
        )
    return moves


def _check_odds(effect_covariance: str) -> None:
    """Raise where what is said of Sigma depends on how the states are numbered."""
    if effect_covariance in ("diagonal", "isotropic"):
        raise ModelError(
            f"effect_covariance={effect_covariance!r} does not go with effects on the first state "
            "of more than two states: log odds against state 0 are independent for one numbering "
            "of the states alone. Choose 'full' or 'block'."
        )


def _one_sided(text: Any, what: str, words: Sequence[str]) -> Formula:
    if isinstance(text, str) and "~" not in text:
        raise ModelError(
            f"{what} is {text!r}; a formula such as '~ x' is wanted, or "
            f"{' or '.join(map(repr, words))}.{did_you_mean(text, words)}"
        )
    formula = parse_formula(text)
    if formula.outcomes:
        raise ModelError(f"{what}={text!r} has an outcome; write it one-sided: '~ x'.")
    return formula
