"""Words that options of several methods share, each with one meaning, and what becomes of old ones.

``effects=`` says at which effects of the subjects something is computed; each method lists those
it takes:

- ``"fitted"``: every subject at the mean of its effects;
- ``"integrated"``: averaged over the posterior of its effects;
- ``"drawn"``: at one draw from that posterior;
- ``"new"``: at draws from the population, as of subjects never seen.

``posterior=`` says which posterior of the effects is meant: ``"fit"``, as the fit's own method has
it, or ``"adaptive"``, with the states integrated out. ``errors=`` says where standard errors come
from: ``"observed"`` information or the ``"sandwich"``. ``parameters=`` says whether intervals of a
subject take the parameters as known (``"fixed"``) or count their uncertainty (``"estimated"``).
``scale=`` says on which scale coefficients are: that of the ``"link"`` or of the ``"response"``.
``kind=`` says which rows of its sequence a row's states or residuals are given.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, Literal

from avem.errors import AvemWarning, ModelError, did_you_mean

Posterior = Literal["fit", "adaptive"]
Errors = Literal["observed", "sandwich"]
Parameters = Literal["fixed", "estimated"]
Scale = Literal["link", "response"]
EFFECTS = ("fitted", "integrated", "drawn", "new")
POSTERIORS = ("fit", "adaptive")
ERRORS = ("observed", "sandwich")
PARAMETERS = ("fixed", "estimated")
SCALES = ("link", "response")
_OLD_EFFECTS = {"posterior": "drawn"}
_LEVEL = 4
"""Frames between the user's call and `warnings.warn`."""


def check_word(option: str, value: Any, choices: Sequence[str]) -> None:
    """Raise unless the value of an option is one of its choices."""
    if value not in choices:
        words = ", ".join(map(repr, choices))
        hint = did_you_mean(value, choices)
        raise ModelError(f"{option} is {value!r}; choose one of {words}.{hint}")


def effects_word(effects: Any, choices: Sequence[str]) -> str:
    """The word of `EFFECTS` that is meant, checked against those that a method takes."""
    new = _OLD_EFFECTS.get(effects) if isinstance(effects, str) else None
    if new in choices:
        _warn(f"effects={effects!r}", f"effects={new!r}")
        return str(new)
    check_word("effects", effects, choices)
    return effects


def errors_word(errors: Any, kind: Any = None) -> str:
    """The word of `ERRORS` that is meant; `kind` is how the option was called before."""
    if kind is not None:
        _warn(f"kind={kind!r}", f"errors={kind!r}")
        errors = kind
    check_word("errors", errors, ERRORS)
    return errors


def _warn(old: str, new: str) -> None:
    words = f"{old} is now called {new}; the old word goes with the next release."
    warnings.warn(words, AvemWarning, stacklevel=_LEVEL)


def count(n: int, what: str) -> str:
    """So many of something: "1 subject", "1,200 rows"."""
    return f"{n:,} {what}{'' if n == 1 else 's'}"
