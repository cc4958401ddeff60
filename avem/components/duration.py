"""How long states last, as a user gives it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

import numpy as np

from avem.components.duration_families import DurationFamily, DurationWord, duration_family
from avem.components.param_info import check_count
from avem.data import parse_formula
from avem.data.formula import Formula
from avem.errors import ModelError

FREE = "free"
MOST = 200
"""The longest maximum that is chosen, where the user gives none."""
_MOST = 10_000


@dataclass(frozen=True, repr=False)
class Duration:
    """How long a stay in a state lasts, where it is not as in a Markov chain.

    Parameters
    ----------
    family : str, list of str or dict
        ``"geometric"`` (as in a Markov chain), ``"shifted_poisson"``, ``"negative_binomial"``,
        ``"log_normal"`` or ``"gamma"``; one for all states, or a list or dict with one per state.
        Or ``"free"``: every length up to `max`, beyond which no stay lasts, has its own
        probability.
    formula : str
        Of the location, on a log scale: ``"~ dose + (1 | subject)"``. Covariates at time t act on
        the chance that a stay ends between t-1 and t: it is the one that a stay of that length
        would have with these covariates throughout.
    max : int, optional
        Rows from which on the chance of ending stays the same, so that stays may be longer; what
        is beyond is geometric. By default it is chosen from the data: four times the longest mean
        stay of the same model with geometric durations, and at most 200.
    cut : {True, False, "start", "end"}
        Whether the first stay of a sequence may have begun before it, and the last one may go on
        after it. True: both; ``"start"`` or ``"end"``: one of them; False: sequences begin and end
        with whole stays.
    effects_by_state : bool
        Give every state its own effects; otherwise those of a subject act in all states alike.

    Examples
    --------
    >>> avem.Duration("negative_binomial", "~ 1 + (1 | person)", max=30)
    Duration('negative_binomial', '~ 1 + (1 | person)', max=30)
    """

    family: DurationWord | str | Sequence[str] | Mapping[Any, str] = "negative_binomial"
    formula: str = "~ 1"
    max: int | None = field(default=None, kw_only=True)
    cut: bool | Literal["start", "end"] = field(default=True, kw_only=True)
    effects_by_state: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        words = self.family if isinstance(self.family, str) else _in_order(self.family)
        object.__setattr__(self, "family", words)
        if not self.is_free:
            for word in self.words:
                duration_family(word)
        formula = parse_formula(self.formula)
        if self.is_free and not formula.is_constant:
            raise ModelError(
                "A free duration has no formula: choose a family, such as 'negative_binomial', "
                "for covariates and effects."
            )
        if formula.outcomes:
            raise ModelError(
                f"The duration's formula {self.formula!r} has an outcome; write it one-sided: "
                "'~ x'."
            )
        object.__setattr__(self, "formula", formula.text)
        if self.max is not None:
            check_count("max", self.max)
            if self.max > _MOST:
                raise ModelError(
                    f"max is {self.max:,}; at most {_MOST:,} rows are told apart. Longer stays "
                    "are possible beyond it."
                )
            object.__setattr__(self, "max", int(self.max))
        if not isinstance(self.cut, bool) and self.cut not in ("start", "end"):
            raise ModelError(f"cut is {self.cut!r}; choose True, False, 'start' or 'end'.")

    def __repr__(self) -> str:
        parts = [repr(self.words[0] if len(self.words) == 1 else list(self.words))]
        parts += [] if self.parsed.is_constant else [repr(self.formula)]
        parts += [f"max={self.max}"] if self.max is not None else []
        parts += [f"cut={self.cut!r}"] if self.cut is not True else []
        parts += ["effects_by_state=True"] if self.effects_by_state else []
        return f"Duration({', '.join(parts)})"

    @property
    def words(self) -> tuple[str, ...]:
        """One family, or one for each state."""
        return (self.family,) if isinstance(self.family, str) else tuple(self.family)

    @property
    def is_free(self) -> bool:
        """Every length up to the maximum has a probability of its own."""
        return self.words == (FREE,)

    @property
    def parsed(self) -> Formula:
        """What it reads from the table."""
        return parse_formula(self.formula)

    @property
    def cuts(self) -> tuple[bool, bool]:
        """Whether the first stay may be cut off, and the last."""
        return self.cut in (True, "start"), self.cut in (True, "end")

    @property
    def kinds(self) -> list[str]:
        """Its families in words."""
        if self.is_free:
            return [f"free up to {self.max} rows" if self.max else "free"]
        return [duration_family(word).words for word in self.words]


def _in_order(given: Any) -> tuple[str, ...]:
    """The families of all states from a list, or from a dict by number."""
    if isinstance(given, Mapping):
        if set(given) != set(range(len(given))):
            raise ModelError(
                f"duration has the states {list(given)}; 0, 1, ... (or the names of all states) "
                "are wanted."
            )
        given = [given[k] for k in range(len(given))]
    if not isinstance(given, list | tuple) or not given:
        raise ModelError(f"The duration is {given!r}; a word, or one for each state, is wanted.")
    return tuple(given)


def as_duration(given: Any, state_names: Sequence[str] = ()) -> Duration:
    """The duration that a user gives: an object, a word, or words for all states."""
    if isinstance(given, Duration):
        return given
    if isinstance(given, Mapping) and state_names and set(given) == set(state_names):
        given = [given[name] for name in state_names]
    if isinstance(given, str | Mapping | list | tuple):
        return Duration(given)
    raise ModelError(
        f"duration is {given!r}; a word such as 'negative_binomial', an avem.Duration, or one word "
        "for each state, is wanted."
    )


def check_no_outcome(names: Sequence[str]) -> None:
    """Raise where an outcome has the name under which durations are shown."""
    if "duration" in names:
        raise ModelError(
            "An outcome is called 'duration', as the states' durations are in tables. Rename its "
            "column."
        )


def families_of(duration: Duration, n_states: int) -> tuple[DurationFamily, ...]:
    """One for each state, unless it is free; raise if it cannot be that of so many."""
    words = duration.words
    if n_states < 2:
        raise ModelError("duration= needs at least 2 states: a single one never ends.")
    if len(words) not in (1, n_states):
        raise ModelError(
            f"duration has {len(words)} families for {n_states} states; one for all, or one for "
            "each, is wanted."
        )
    if duration.is_free:
        return ()
    repeats = n_states if len(words) == 1 else 1
    return tuple(duration_family(word) for word in words * repeats)


def with_maximum(duration: Duration, rows: int) -> Duration:
    """With a maximum, where it has none; of stays without memory one row says all."""
    if duration.max is not None:
        return duration
    one_says_all = not duration.is_free and all(
        duration_family(word).memoryless for word in duration.words
    )
    return replace(duration, max=1 if one_says_all else int(np.clip(rows, 1, MOST)))


def in_words(duration: Duration) -> str:
    """It for summaries."""
    text = "" if duration.parsed.is_constant else f" {duration.formula}"
    return f"durations {'; '.join(duration.kinds)}{text}"


def duration_out(duration: Duration) -> dict[str, Any]:
    """Its fields as JSON."""
    return {**asdict(duration), "family": list(duration.words)}


def duration_in(found: Mapping[str, Any]) -> Duration:
    """The duration that `duration_out` described."""
    own = dict(found)
    words = own.pop("family", None)
    if not isinstance(words, list) or not words:
        raise ModelError("its durations have no family.")
    unknown = own.keys() - set(Duration.__dataclass_fields__)
    if unknown:
        raise ModelError(f"its durations have {min(unknown)[:40]!r}, unknown here.")
    if not isinstance(own.get("formula", ""), str):
        raise ModelError("its durations have a formula that is no text.")
    return Duration(words[0] if len(words) == 1 else words, **own)
