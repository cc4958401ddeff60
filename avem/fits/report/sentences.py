"""Sentences and code that the reports of all kinds of models share."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from avem.fits.report.html import code

if TYPE_CHECKING:
    from avem.fits.fit import Fit

_LIKELIHOOD = """<p><strong>The log likelihood</strong> measures how well the parameters
explain the data, whatever the states and effects may have been; it is comparable only between fits
to the same values.</p>"""
_BOUND = """<p><strong>The bound</strong> measures how well the parameters explain the data;
each iteration is meant to raise it. It stands in for the log likelihood, and is comparable only
between fits to the same values.</p>"""


def no_effects(subject: str) -> str:
    """Of a model in which all subjects are alike."""
    return f"There are no effects: all subjects of {code(subject)} are alike."


def explained(fit: Fit, state: str, distance: str) -> str:
    """What states, effects and the bound are, for those who meet them first.

    `state` is the paragraph about states; an effect is how far `distance` says.
    """
    effect = (
        f"<p><strong>An effect</strong> is how far {distance}. It is estimated from the subject's "
        "own rows and pulled towards 0, more so where these are few. Its interval says where it "
        "lies with a probability of 95%, given the parameters.</p>"
    )
    interval = (
        "<p><strong>A 95% interval</strong> of an estimate covers the true value in about 95 of "
        "100 studies like this one, if the model holds.</p>"
    )
    level = _BOUND if fit.bound_name == "bound" else _LIKELIHOOD
    return "\n".join([state, *([effect] if fit.model.n_effects else []), interval, level])


def call_code(name: str, arguments: Iterable[str]) -> str:
    """Python that calls a function, an argument in a line."""
    return f"{name}(\n" + "".join(f"    {part},\n" for part in arguments) + ")"
