"""Cases of a test that every run has, and those that wait for the slow one."""

from collections.abc import Collection, Iterable
from typing import Any

import pytest


def chosen(cases: Iterable[Any], now: Collection[Any]) -> list[Any]:
    """All cases of `parametrize`, tuples for several names; those that are not `now` are slow."""
    cases = list(cases)
    unknown = [case for case in now if case not in cases]
    if unknown:
        raise ValueError(f"There are no cases {unknown}; there are {cases}.")
    return [
        pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=_marks(case in now))
        for case in cases
    ]


def _marks(is_now: bool) -> tuple[pytest.MarkDecorator, ...]:
    return () if is_now else (pytest.mark.slow,)
