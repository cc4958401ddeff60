"""What a user asks of a state-space model, before there are any data."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from avem.components.dynamics import dynamics_word
from avem.components.param_info import check_count
from avem.data import parse_formula
from avem.data.clock import Clock
from avem.data.design import has_intercept
from avem.data.formula import Formula
from avem.errors import ModelError, did_you_mean
from avem.models.state_names import check_state_names

RANDOM = ("transition", "loading")
BLOCKS = (*RANDOM, "coef")
"""Kinds of effects; those of different kinds are independent."""
STRUCTURES = ("full", "diagonal")
"""Of the covariance of the effects of one kind."""
_RANDOM_WORDS = {"both": RANDOM, "transition": RANDOM[:1], "loading": RANDOM[1:], "none": ()}


class SSMSpecification(NamedTuple):
    """What the user asked for, before any data."""

    n_latent: int
    formula: Formula
    """Of the outcomes: their covariates and effects."""
    state: Formula
    """Covariates that act on the states, without an intercept."""
    random: tuple[str, ...]
    """Which of "transition" and "loading" differ between subjects."""
    effect_covariance: tuple[str, ...]
    """Structure of each of `BLOCKS`: "full" or "diagonal"."""
    state_names: tuple[str, ...] = ()
    """Empty: states have numbers alone."""
    clock: Clock | None = None
    """What reads intervals of time; None where time goes in steps."""

    def renamed(self, names: tuple[str, ...]) -> SSMSpecification:
        """The same with other names of the states."""
        return self._replace(state_names=names)

    @property
    def kinds(self) -> tuple[str, ...]:
        """The user's names of `BLOCKS`."""
        return (dynamics_word(self.clock is not None), *BLOCKS[1:])

    @property
    def text(self) -> str:
        """The outcomes' formula."""
        return self.formula.text

    @property
    def options(self) -> dict[str, str]:
        """Python for all else that tells it from other models, by name."""
        found = {}
        if self.state.text.replace(" ", "") != "~0":
            found["state"] = repr(self.state.text)
        if self.random != RANDOM:
            words = [self.kinds[BLOCKS.index(kind)] for kind in self.random]
            found["random"] = repr(words if words else "none")
        if self.clock is not None:
            found["time_scale"] = "'continuous'"
            found |= {} if self.clock.unit is None else {"unit": repr(self.clock.unit)}
        if set(self.effect_covariance) != {"full"}:
            words = dict(zip(self.kinds, self.effect_covariance, strict=True))
            same = len(set(self.effect_covariance)) == 1
            found["effect_covariance"] = repr(self.effect_covariance[0] if same else words)
        return found | ({"state_names": repr(list(self.state_names))} if self.state_names else {})

    @property
    def formulas(self) -> tuple[Formula, ...]:
        """Of the outcomes, of the states, and a constant."""
        return (self.formula, self.state, parse_formula("~ 1"))

    @property
    def state_formulas(self) -> tuple[Formula, ...]:
        """That of the states."""
        return (self.state,)

    @property
    def outcome_names(self) -> tuple[str, ...]:
        """The columns of all outcomes."""
        return self.formula.outcomes

    @property
    def has_history(self) -> bool:
        """No outcome remembers earlier ones."""
        return False


def make_ssm_specification(
    outcomes: str | Sequence[str],
    n_latent: int,
    *,
    state: str,
    random: str | Sequence[str],
    effect_covariance: str | Mapping[str, str],
    state_names: Sequence[str] | None,
    time_scale: str,
    unit: str | None,
) -> SSMSpecification:
    """The specification that the options of `MixedSSM` give; an error where they cannot be."""
    formula = _outcome_formula(outcomes)
    check_latent(n_latent, len(formula.outcomes))
    clock = _clock(time_scale, unit)
    return SSMSpecification(
        int(n_latent),
        formula,
        _state_formula(state),
        _random_parts(random, clock is not None),
        _structures(effect_covariance, clock is not None),
        check_state_names(state_names, int(n_latent)),
        clock,
    )


def check_latent(n_latent: Any, n_outcomes: int) -> None:
    """Raise unless so many outcomes can tell so many latent states apart."""
    check_count("n_latent", n_latent)
    if n_latent > n_outcomes:
        raise ModelError(
            f"n_latent is {n_latent}, with {n_outcomes} outcome(s). Lower triangular loadings "
            f"tell at most as many states apart as there are outcomes: use n_latent="
            f"{n_outcomes} or fewer, or add outcomes."
        )


def _outcome_formula(given: Any) -> Formula:
    if isinstance(given, str):
        if "~" not in given:
            raise ModelError(
                f"outcomes is {given!r}; a list of column names, [{given!r}], or a formula, "
                f"'{given} ~ 1', is wanted."
            )
        formula = parse_formula(given)
        if not formula.outcomes:
            raise ModelError(f"The formula {given!r} has no outcomes; write 'y1 + y2 ~ 1'.")
        return _without_offset(formula)
    if not isinstance(given, Sequence) or not given:
        raise ModelError(f"outcomes is {given!r}; a list of column names or a formula is wanted.")
    wrong = [name for name in given if not isinstance(name, str)]
    if wrong:
        raise ModelError(f"outcomes has {wrong[0]!r}; names of columns are wanted.")
    names = [n if re.fullmatch(r"[^\W\d]\w*", n) else f"`{n}`" for n in given]
    return parse_formula(" + ".join(names) + " ~ 1")


def _state_formula(text: Any) -> Formula:
    formula = parse_formula(text)
    if formula.outcomes:
        raise ModelError(f"state={text!r} has an outcome; write it one-sided: '~ 0 + x'.")
    if formula.groups:
        raise ModelError(
            f"state={text!r} has a group term. Subjects' own coefficients are available for the "
            "outcomes: put (x | subject) into their formula."
        )
    if has_intercept(formula):
        bare = text.split("~", 1)[-1].strip()
        raise ModelError(
            f"state={text!r} has an intercept, which cannot be told from the outcomes' own. Write "
            f"'~ 0{'' if bare == '1' else f' + {bare}'}'."
        )
    return _without_offset(formula)


def _without_offset(formula: Formula) -> Formula:
    if formula.offset:
        raise ModelError(
            f"offset() in {formula.text!r} is not available in a state-space model. Subtract it "
            "from the outcome before the fit: all is linear there."
        )
    return formula


def _clock(time_scale: Any, unit: Any) -> Clock | None:
    scales = ("discrete", "continuous")
    if time_scale not in scales:
        raise ModelError(
            f"time_scale is {time_scale!r}; choose one of {', '.join(scales)}."
            f"{did_you_mean(time_scale, scales)}"
        )
    if time_scale == "continuous":
        return Clock(unit)
    if unit is not None:
        raise ModelError("unit= is that of continuous time: add time_scale='continuous'.")
    return None


def _random_parts(given: Any, continuous: bool) -> tuple[str, ...]:
    known = {"drift": RANDOM[:1]} if continuous else {}
    known |= _RANDOM_WORDS
    if isinstance(given, str):
        if given not in known:
            words, hint = ", ".join(known), did_you_mean(given, known)
            raise ModelError(f"random is {given!r}; choose one of {words}.{hint}")
        return known[given]
    parts = {word: own[0] for word, own in known.items() if len(own) == 1}
    if not isinstance(given, Sequence) or any(part not in parts for part in given):
        raise ModelError(
            f"random is {given!r}; choose one of {', '.join(known)}, or a tuple of "
            f"{' and '.join(parts)}."
        )
    chosen = {parts[part] for part in given}
    return tuple(part for part in RANDOM if part in chosen)


def _structures(given: Any, continuous: bool) -> tuple[str, ...]:
    named: Mapping[str, Any]
    named = given if isinstance(given, Mapping) else {kind: given for kind in BLOCKS}
    if continuous:
        named = {BLOCKS[0] if kind == "drift" else kind: word for kind, word in named.items()}
    unknown = [kind for kind in named if kind not in BLOCKS]
    if unknown:
        raise ModelError(
            f"effect_covariance has {unknown}; the kinds of effects are {', '.join(BLOCKS)}."
        )
    found = tuple(named.get(kind, "full") for kind in BLOCKS)
    wrong = [word for word in found if not isinstance(word, str) or word not in STRUCTURES]
    if wrong:
        raise ModelError(
            f"effect_covariance is {wrong[0]!r}; choose 'full' or 'diagonal', or a dict with one "
            f"for each of {', '.join(BLOCKS)}."
        )
    return found
