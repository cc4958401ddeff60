"""The priors that a user gives, and the weak ones that a word stands for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from avem.components.priors import Dirichlet, InverseWishart, Normal, Prior, Wishart
from avem.errors import ModelError
from avem.models.constraints import reference

if TYPE_CHECKING:
    from avem.models.hmm import HMMModel

WEAK = "weak"
_COUNT = 0.5
"""How many times each move is as if seen once more."""
_SHARE = 0.02
"""The variances within states that weak priors prefer, as a share of the outcome's own."""
_SLOPE = 5.0
"""Of log odds and logarithms, over the spread of a covariate."""
_MOST = 1000
Given = tuple[tuple[str, Prior], ...]


def as_priors(given: Any) -> Given:
    """What a user gives: a dict, or a word."""
    if given is None:
        return ()
    if given == WEAK:
        return ((WEAK, Dirichlet(1.0)),)
    if not isinstance(given, Mapping):
        raise ModelError(
            f"priors is {str(given)[:60]!r}; a dict such as {{'transition': "
            "avem.priors.Sticky(10)} is wanted, or the word 'weak'."
        )
    if len(given) > _MOST:
        raise ModelError(f"priors has {len(given):,} entries; {_MOST:,} are the most.")
    for name, prior in given.items():
        if not isinstance(prior, Prior):
            raise ModelError(
                f"priors[{name!r}] is {str(prior)[:60]!r}; a prior such as "
                "avem.priors.Normal(0, 2) is wanted: see avem.priors."
            )
        reference(str(name))
    return tuple((str(name), prior) for name, prior in given.items())


def code_of(priors: Given) -> str:
    """Python for what a user gives."""
    if any(name == WEAK for name, _ in priors):
        return repr(WEAK)
    return "{" + ", ".join(f"{name!r}: avem.priors.{prior!r}" for name, prior in priors) + "}"


def told(model: HMMModel) -> Given:
    """The priors of a model one by one: a word's as they are in the units of its data."""
    given = model.spec.priors
    if not any(name == WEAK for name, _ in given):
        return given
    return tuple(_weak(model))


def _weak(model: HMMModel) -> Iterator[tuple[str, Prior]]:
    """One prior for each parameter that may run to an end of its range."""
    units, info = model.scaling, model.param_info()
    stays = {} if model.duration is None else model.duration.param_info()
    for name, own in info.items():
        if own.kind == "simplex" and own.shape[-1] > 1 and name not in stays:
            yield name, Dirichlet(1 + _COUNT)
    for part in model.parts:
        for name, scale in part.variance_units(units).items():
            d = scale.shape[-1] if info[name].kind == "covariance" else 1
            yield name, InverseWishart(float(d), _SHARE * (2 * d + 1) * scale)
        for name, size in () if part is model.duration else part.slope_units(units):
            yield name, Normal(0.0, _SLOPE / size)
    if model.n_effects:
        yield "effect_covariance", Wishart(model.n_effects + 2.0)
