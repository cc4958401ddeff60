"""What avem raises and warns with: catch `AvemError` to catch them all."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable
from functools import wraps
from inspect import signature
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

_LONGEST = 200
"""Letters of a word that is looked for among others; a longer one is no slip of the hand."""


def did_you_mean(given: object, available: Iterable[object]) -> str:
    """ " Did you mean 'gamma'?" if something available is near to what was given, else nothing."""
    wanted = str(given).casefold()
    if not 0 < len(wanted) <= _LONGEST:
        return ""
    folded = {str(word).casefold(): word for word in reversed(list(available))}
    near = difflib.get_close_matches(wanted, folded, n=1)
    near += [word for word in folded if len(wanted) > 2 and wanted in word]
    return f" Did you mean {folded[near[0]]!r}?" if near else ""


def names_checked(function: Callable[P, R]) -> Callable[P, R]:
    """Let a function say which argument was meant, where it has none of a name."""
    known = list(signature(function).parameters)[1:]  # without self

    @wraps(function)
    def checked(*args: P.args, **given: P.kwargs) -> R:
        for name in given:
            if name not in known:
                raise TypeError(
                    f"{function.__qualname__.partition('.')[0]}() got an unexpected keyword "
                    f"argument {name!r}.{did_you_mean(name, known)} It takes {', '.join(known)}."
                )
        return function(*args, **given)

    return checked


class AvemError(Exception):
    """Anything avem refuses to do.

    Examples
    --------
    >>> try:
    ...     avem.MixedHMM("y ~ 1", n_states=0)
    ... except avem.AvemError as error:
    ...     print(type(error).__name__)
    ModelError
    """


class DataError(AvemError, ValueError):
    """The data cannot be used as they are.

    Examples
    --------
    >>> avem.Panel.from_arrays([])
    Traceback (most recent call last):
    avem.errors.DataError: from_arrays got an empty list; one array per subject is wanted.
    """


class ModelError(AvemError, ValueError):
    """The model specification, a formula or an argument makes no sense.

    Examples
    --------
    >>> avem.MixedHMM("y ~ 1", n_states=2.5)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    avem.errors.ModelError: n_states is 2.5...
    """


class FileError(AvemError, ValueError):
    """A file is not what avem wrote, or cannot be read.

    Examples
    --------
    >>> fit.save(folder)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    avem.errors.FileError: ... is a folder; the name of a file is wanted.
    """


class AvemWarning(UserWarning):
    """Something worth a look that does not stop the work.

    Examples
    --------
    >>> import warnings
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("ignore", avem.AvemWarning)
    ...     warnings.warn("is not shown", avem.AvemWarning)
    """
