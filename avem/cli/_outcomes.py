"""Outcomes as they are written on the command line: ``gamma(shape ~ x): step ~ 1 + (1 | id)``.

Before the colon stands the family, and in parentheses, separated by commas, what belongs to it: a
formula of a parameter (``shape ~ x``), an option (``trials = n``, ``levels = low < high``), or
``effects_by_state``. All of this can be left out. No formula begins like that: left of its tilde
are only names and plus signs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from avem.errors import ModelError

if TYPE_CHECKING:
    from avem.components.outcome import Outcome

_HEAD = re.compile(r"\s*(\w+)\s*(?=[:(])")
_FORMULA = re.compile(r"(\w+)\s*(~.*)", re.DOTALL)
_OPTION = re.compile(r"(\w+)\s*=\s*([^=~]+)")
_MOST_SIZES = 100
_OPTIONS = {"gaussian": "covariance", "binomial": "trials"}
"""Those that are options of the command as well."""
_ALL_OPTIONS = {
    **{word: (option,) for word, option in _OPTIONS.items()},
    "ordinal": ("levels",),
    "censored": ("family", "lower", "upper"),
    "truncated": ("family", "lower", "upper"),
}


class Defaults(NamedTuple):
    """What the options of the command say of all outcomes."""

    family: str
    covariance: str | None
    trials: str | None
    effects_by_state: bool


def read_outcomes(formula: str | None, texts: Sequence[str], defaults: Defaults) -> list[Outcome]:
    """The outcomes of a command: one formula, or each ``--outcome``."""
    if (formula is None) == (not texts):
        raise ModelError(
            "Give either one FORMULA, or every outcome with its family: "
            "--outcome 'gamma: step ~ 1 + (1 | id)' --outcome 'von_mises: angle ~ 1'."
        )
    read = [_split(text) for text in texts] if formula is None else [("", "", formula)]
    words = [word or defaults.family for word, _, _ in read]
    for family, option in _OPTIONS.items():
        if getattr(defaults, option) is not None and family not in words:
            raise ModelError(f"--{option} is for {family} outcomes, but there is none.")
    return [
        _outcome(word, inside, text, defaults)
        for word, (_, inside, text) in zip(words, read, strict=True)
    ]


def _split(text: str) -> tuple[str, str, str]:
    """Family, what stands in its parentheses, and formula."""
    head = _HEAD.match(text)
    if head is None:
        return "", "", text
    end = start = head.end()
    if text[start] == "(":
        end = _closing(text, start) + 1
    rest = text[end:].lstrip()
    if not rest.startswith(":"):
        raise ModelError(
            f"Cannot read --outcome {text!r}; write the family, a colon and the formula: "
            "'gamma: step ~ 1', 'gamma(shape ~ x): step ~ 1'."
        )
    return head[1], text[start + 1 : end - 1], rest[1:].strip()


def _closing(text: str, start: int) -> int:
    depth = 0
    for place, letter in enumerate(text[start:], start):
        depth += (letter == "(") - (letter == ")")
        if depth == 0:
            return place
    raise ModelError(f"A '(' is not closed in --outcome {text!r}.")


def _parts(inside: str) -> Iterator[str]:
    """What stands between the commas outside all parentheses."""
    depth, part = 0, ""
    for letter in inside + ",":
        depth += (letter == "(") - (letter == ")")
        if letter == "," and depth == 0:
            if part.strip():
                yield part.strip()
            part = ""
        else:
            part += letter


def _outcome(word: str, inside: str, formula: str, defaults: Defaults) -> Outcome:
    from avem.components.outcome import outcome

    parameters: dict[str, str] = {}
    options: dict[str, str] = {}
    by_state = defaults.effects_by_state
    for part in _parts(inside):
        if found := _FORMULA.fullmatch(part):
            parameters[found[1]] = found[2]
        elif found := _OPTION.fullmatch(part):
            options[found[1]] = found[2].strip()
        elif part == "effects_by_state":
            by_state = True
        else:
            raise ModelError(
                f"Cannot read {part!r} in {word}({inside}); a formula of a parameter "
                "('shape ~ x'), an option ('trials = n') or effects_by_state is wanted."
            )
    family = _family(word, options, defaults)
    return outcome(formula, family, effects_by_state=by_state, **parameters)


def _family(word: str, options: dict[str, str], defaults: Defaults) -> Any:
    from avem.families import Binomial, Censored, Gaussian, Ordinal, Truncated

    known = _ALL_OPTIONS.get(word, ())
    unknown = [name for name in options if name not in known]
    if unknown:
        raise ModelError(
            f"{unknown[0]!r} is no option of {word}; available: {', '.join(known) or 'none'}. A "
            f"formula of a parameter is written with a tilde: '{unknown[0]} ~ x'."
        )
    if word == "ordinal":
        levels = [level.strip() for level in options.get("levels", "").split("<")]
        return Ordinal(tuple(level for level in levels if level))
    if word in ("censored", "truncated"):
        if "family" not in options or len(options) < 2:
            what, limit = ("number or a column", "limit") if word == "censored" else ("number", 1)
            raise ModelError(
                f"A {word} outcome needs the family of the quantity and a limit, a {what}: "
                f"--outcome '{word}(family = gamma, lower = {limit}): dose ~ 1'."
            )
        limits: dict[str, Any] = {
            end: _number(options[end]) for end in ("lower", "upper") if end in options
        }
        return (Censored if word == "censored" else Truncated)(options["family"], **limits)
    if word == "gaussian":
        usual = "diagonal" if defaults.covariance is None else defaults.covariance
        covariance = options.get("covariance", usual)
        return Gaussian(cast(Any, covariance))  # the family checks the word
    if word == "binomial":
        trials = options.get("trials", defaults.trials)
        if trials is None:
            raise ModelError(
                "A binomial outcome needs its number of trials: --trials COLUMN, --trials 10, or "
                "--outcome 'binomial(trials = COLUMN): wins ~ 1'."
            )
        return Binomial(int(trials) if trials.isdecimal() else trials)
    return word


def _number(text: str) -> str | float:
    """A number, or else the name of a column."""
    try:
        return float(text)
    except ValueError:
        return text


def read_states(text: str, option: str = "--states") -> list[int]:
    """Numbers of states from "1-5" or "2,3,5"."""
    found = re.fullmatch(r"\s*(\d+)\s*-\s*(\d+)\s*", text)
    if found:
        first, last = int(found[1]), int(found[2])
        if not 0 <= last - first < _MOST_SIZES:
            raise ModelError(
                f"{option} {text!r}: the first number and a larger one are wanted, at most "
                f"{_MOST_SIZES} apart, such as 1-5."
            )
        return list(range(first, last + 1))
    if re.fullmatch(r"\s*\d+\s*(,\s*\d+\s*)*", text):
        return [int(part) for part in text.split(",")]
    raise ModelError(f"{option} {text!r}: numbers are wanted, such as 1-5 or 2,3,5.")


def read_names(text: str) -> str | list[str]:
    """Outcomes as they were typed: a formula, or names with commas between them."""
    return text if "~" in text else names_in(text)


def names_in(text: str, option: str = "") -> list[str]:
    """Names with commas between them; of an option there must be some."""
    found = [name.strip() for name in text.split(",") if name.strip()]
    if option and not found:
        raise ModelError(f"{option} {text!r} names nothing: write A,B,... or leave it out.")
    return found
