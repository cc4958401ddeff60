"""The methods by name, and from the words and options of fit() to objects."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from inspect import isabstract
from typing import Any, Literal

from avem.components.param_info import check_count
from avem.errors import AvemWarning, ModelError, did_you_mean
from avem.inference.methods.adaptive.method import Adaptive
from avem.inference.methods.avem import AVEM
from avem.inference.methods.base import Method, known_words, method_class
from avem.inference.methods.mean_field import MeanField
from avem.inference.methods.partial import Partial
from avem.inference.methods.prior_nodes import MonteCarlo, Quadrature
from avem.inference.methods.structured import Structured

_OWN: tuple[type[Method], ...] = (
    AVEM,
    Partial,
    MeanField,
    Structured,
    Quadrature,
    MonteCarlo,
    Adaptive,
)
MethodWord = Literal[
    "avem", "partial", "mean_field", "structured", "quadrature", "monte_carlo", "adaptive"
]
"""The words of avem's own methods, for editors and type checkers; others may be added."""
METHODS = tuple(method.word for method in _OWN)
_OPTIONS = {
    "unanchored": (Partial,),
    "n_nodes": (Quadrature, Partial, Structured, Adaptive),
    "n_draws": (MonteCarlo, Adaptive),
    "fresh_draws": (MonteCarlo,),
    "q_update": (AVEM, Partial),
    "anchor": (AVEM,),
    "batch_size": (AVEM,),
}
"""Options that fit() once had, and whose they are."""
_OF_REFINE = ("n_nodes", "n_draws")
_USUAL = {"unanchored": "auto", "fresh_draws": False, "q_update": "laplace", "anchor": "mean"}
"""What they were by default, which any method may be given; None for the others."""


def as_method(given: Any) -> Method:
    """The method, of which a word or its class is a shorthand."""
    if isinstance(given, Method):  # from the user: a word, a class or an object
        return given
    if isinstance(given, type) and issubclass(given, Method) and not isabstract(given):
        return given()
    found = method_class(given) if isinstance(given, str) else None
    if found is None:
        available = dict.fromkeys((*METHODS, *known_words()))
        hint = did_you_mean(given, available)
        raise ModelError(f"method is {given!r}; available: {', '.join(available)}.{hint}")
    return found()


def as_refinement(given: Any) -> tuple[Adaptive | None, bool]:
    """What `refine` asks for, and whether only where it is needed."""
    if isinstance(given, Adaptive):  # from the user: a word or an object
        return given, False
    if given is None or given is False:
        return None, False
    if given is Adaptive or (isinstance(given, str) and given in ("auto", "adaptive")):
        return Adaptive(), given == "auto"
    raise ModelError(
        f"refine is {given!r}; available: 'adaptive' (always), 'auto' (where anchoring does not "
        "hold), None or False (never)."
    )


def check_names(given: Iterable[str], own: Sequence[str]) -> None:
    """Raise TypeError where fit(), whose options are `own`, was given one of another name."""
    for name in given:
        if name not in _OPTIONS:
            raise TypeError(
                f"fit() got an unexpected keyword argument {name!r}."
                f"{did_you_mean(name, (*own, *_OPTIONS))} It takes {', '.join(own)}."
            )


def method_with(word: Any, options: Mapping[str, Any]) -> Method:
    """The method of this name with options of fit() as they once were, of which None is no choice.

    Raises ModelError where an option is another method's.
    """
    return _with_options(as_method(word), (None, False), options)[0]


def take_options(
    method: Any, refine: Any, options: Mapping[str, Any]
) -> tuple[Method, Adaptive | None, bool]:
    """The method and its refinement, given options that fit() once had; warns of these."""
    plain_method, plain_refine = as_method(method), as_refinement(refine)
    if not options:
        return plain_method, *plain_refine
    made, (finer, if_needed) = _with_options(plain_method, plain_refine, options)
    advice = []
    if made != plain_method or finer == plain_refine[0]:
        advice.append(f"method={made.code()}")
    if finer is not None and finer != plain_refine[0]:
        advice.append(f"refine={finer.code()}")
    warnings.warn(
        f"{', '.join(f'{name}=' for name in options)} of fit() will go with the next release. "
        f"Options of a method belong into it: write {', '.join(advice)}.",
        AvemWarning,
        stacklevel=5,  # the line that calls fit()
    )
    return made, finer, if_needed


def _with_options(
    method: Method, refine: tuple[Adaptive | None, bool], options: Mapping[str, Any]
) -> tuple[Method, tuple[Adaptive | None, bool]]:
    finer, if_needed = refine
    given = {name: value for name, value in options.items() if value is not None}
    own = method.options()
    for name, value in given.items():
        if name in _OF_REFINE and finer is not None and not method.likelihood:
            finer = replace(finer, **{name: value})
        elif name not in own and not _is_usual(name, value):
            raise ModelError(_not_here(name, value, method.word))
    mine = {name: value for name, value in given.items() if name in own}
    return replace(method, **mine), (finer, if_needed)  # pyright: ignore[reportArgumentType]


def _is_usual(name: str, value: Any) -> bool:
    return isinstance(value, str | bool) and value == _USUAL.get(name)


def _not_here(name: str, value: Any, word: str) -> str:
    """Why a method cannot have an option."""
    if name in (*_OF_REFINE, "batch_size"):
        check_count(name, value)
    if name == "batch_size":
        return "batch_size goes with method='avem', the mean anchor, and without plain=True."
    words = [method.word for method in _OPTIONS[name]]
    if len(words) == 1:
        return f"{name} is for method={words[0]!r}, and method is {word!r}."
    return f"{name} is for the methods {', '.join(words)}, and method is {word!r}."
