"""Coefficients so far out that they may have run away: the likelihood no longer depends on them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from avem.components.lines import Line

_FAR = 8.0
"""A logarithm, or log odds, worth a closer look: what it is of is below 1 / 3000."""
_FAR_FROM_START = 2.5
"""The same of a user's own parameter, from where it began."""
_ADVICE = (
    "Something never, or always, happens in this state, and no error or interval can be told. A "
    'prior keeps it finite: priors={{"{}": avem.priors.Normal(0, 3)}}.'
)
_ADVICE_ON_OWN = (
    "Bound it inside log_prob, as in 3 * jnp.tanh(params[...]), hold it by fixed=, or use fewer "
    "states."
)


class FarOut(NamedTuple):
    """A coefficient that may have run away."""

    name: str
    """The user's parameter."""
    state: int
    place: tuple[int, ...]
    """Of the coefficient in theta."""
    began: float
    label: str
    """What a reader calls it."""
    advice: str


def of_lines(coef: np.ndarray, lines: Sequence[Line], prefix: str) -> Iterator[FarOut]:
    """Logarithms and log odds (states, terms of all lines) of what never, or always, happens."""
    terms = [(line, term) for line in lines for term in line.terms]
    for k, i in np.argwhere(np.abs(coef) > _FAR).tolist():
        line, term = terms[i]
        if line.has_formula:
            label, name = f"coefficient {term!r} of {line.label}", prefix + line.param_name
            yield FarOut(name, k, (k, i), 0.0, label, _ADVICE.format(f"{name}[:, {term!r}]"))


def of_own(coef: np.ndarray, params: Sequence[tuple[str, float]], prefix: str) -> Iterator[FarOut]:
    """A user's own parameters (states, parameters); `params` are names, and where they began."""
    for i, (name, began) in enumerate(params):
        for k in np.flatnonzero(np.abs(coef[:, i] - began) > _FAR_FROM_START).tolist():
            label = f"parameter {prefix + name!r}"
            yield FarOut(prefix + name, k, (k, i), began, label, _ADVICE_ON_OWN)
