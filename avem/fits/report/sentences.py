"""Sentences and code that the reports of all kinds of models share."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from avem.fits.report.html import code

if TYPE_CHECKING:
    from avem.fits.fit import Fit

_LIKELIHOOD = """<p id="word-bound"><strong>The log likelihood</strong> measures how well the
parameters explain the data, whatever the states and effects may have been; it is comparable only
between fits to the same values.</p>"""
_BOUND = """<p id="word-bound"><strong>The bound</strong> measures how well the parameters
explain the data; each iteration is meant to raise it. It stands in for the log likelihood, is never
above it, and is comparable only between fits to the same values.</p>"""
_ANCHOR = """<p id="word-anchor"><strong>An anchor</strong> is the one value of a subject's effects
at which a fast iteration computes its states. Integrating over the effects, as a refined fit does,
takes all values that they may have.</p>"""
_GAP = """<p id="word-gap"><strong>A gap</strong> is how far the bound, which a fast
iteration raises, lies below the log likelihood: what is lost by having one anchor per subject, and
by taking what is known of its effects as Gaussian.</p>"""


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
    parts = [state, effect, interval, level, _ANCHOR, _GAP]
    if not fit.model.n_effects:
        parts = [state, interval, level]
    return "\n".join(parts)


def call_code(name: str, arguments: Iterable[str]) -> str:
    """Python that calls a function, an argument in a line."""
    return f"{name}(\n" + "".join(f"    {part},\n" for part in arguments) + ")"
