"""Emission families, one per file."""

from dataclasses import is_dataclass
from typing import Literal

from avem.errors import ModelError
from avem.families.base import Family
from avem.families.bernoulli import Bernoulli
from avem.families.beta import Beta
from avem.families.binomial import Binomial
from avem.families.categorical import Categorical
from avem.families.censored import Censored
from avem.families.custom import Custom
from avem.families.dirichlet import Dirichlet
from avem.families.exponential import Exponential
from avem.families.gamma import Gamma
from avem.families.gaussian import Gaussian
from avem.families.hurdle import HurdleNegativeBinomial, HurdlePoisson
from avem.families.log_normal import LogNormal
from avem.families.negative_binomial import NegativeBinomial
from avem.families.normal import UnivariateGaussian
from avem.families.ordinal import Ordinal
from avem.families.poisson import Poisson
from avem.families.student_t import StudentT
from avem.families.truncated import Truncated
from avem.families.univariate import Univariate
from avem.families.von_mises import VonMises
from avem.families.weibull import Weibull
from avem.families.wrapped_cauchy import WrappedCauchy
from avem.families.zero_augmented_gamma import ZeroAugmentedGamma
from avem.families.zero_inflated import ZeroInflatedNegativeBinomial, ZeroInflatedPoisson
from avem.families.zero_one_inflated_beta import ZeroOneInflatedBeta

FAMILIES: dict[str, type[Family]] = {}
"""The class for each word users type; `register` adds to it."""


def register(family: type[Family]) -> type[Family]:
    """Make a family known by its word: to models, the command line, files, reports.

    Parameters
    ----------
    family : type
        A frozen dataclass, most easily a leaf of `avem.families.Univariate`, with a ``name`` of its
        own. A saved fit can be loaded where the same class is registered.

    Returns
    -------
    type
        The class itself, so that this can stand above it as a decorator.

    Examples
    --------
    >>> avem.families.register(avem.Poisson) is avem.Poisson  # known already: nothing changes
    True
    """
    if not (isinstance(family, type) and issubclass(family, Family) and is_dataclass(family)):
        raise ModelError(f"{family!r} is no family: a dataclass below avem.families.Family is.")
    if FAMILIES.get(family.name, family) is not family:
        raise ModelError(f"There is a family {family.name!r} already: {FAMILIES[family.name]!r}.")
    FAMILIES[family.name] = family
    return family


for _family in (
    Gaussian,
    Bernoulli,
    Binomial,
    Categorical,
    Ordinal,
    Poisson,
    NegativeBinomial,
    ZeroInflatedPoisson,
    ZeroInflatedNegativeBinomial,
    HurdlePoisson,
    HurdleNegativeBinomial,
    Exponential,
    Gamma,
    ZeroAugmentedGamma,
    Weibull,
    LogNormal,
    Beta,
    ZeroOneInflatedBeta,
    Dirichlet,
    Censored,
    Truncated,
    StudentT,
    VonMises,
    WrappedCauchy,
):
    register(_family)


FamilyWord = Literal[
    "gaussian",
    "bernoulli",
    "binomial",
    "categorical",
    "ordinal",
    "poisson",
    "negative_binomial",
    "zero_inflated_poisson",
    "zero_inflated_negative_binomial",
    "hurdle_poisson",
    "hurdle_negative_binomial",
    "exponential",
    "gamma",
    "zero_augmented_gamma",
    "weibull",
    "log_normal",
    "beta",
    "zero_one_inflated_beta",
    "dirichlet",
    "censored",
    "truncated",
    "student_t",
    "von_mises",
    "wrapped_cauchy",
]
"""The words of avem's own families, for editors and type checkers; others may be registered."""


def families_in_files() -> dict[str, type[Family]]:
    """The class for each word in a file, also those that users do not type.

    One `Gaussian` outcome whose sd has a formula is a `UnivariateGaussian`.
    """
    return {**FAMILIES, UnivariateGaussian.name: UnivariateGaussian}


__all__ = [
    "FAMILIES",
    "Bernoulli",
    "Beta",
    "Binomial",
    "Categorical",
    "Censored",
    "Custom",
    "Dirichlet",
    "Exponential",
    "Family",
    "FamilyWord",
    "Gamma",
    "Gaussian",
    "HurdleNegativeBinomial",
    "HurdlePoisson",
    "LogNormal",
    "NegativeBinomial",
    "Ordinal",
    "Poisson",
    "StudentT",
    "Truncated",
    "Univariate",
    "UnivariateGaussian",
    "VonMises",
    "Weibull",
    "WrappedCauchy",
    "ZeroAugmentedGamma",
    "ZeroInflatedNegativeBinomial",
    "ZeroInflatedPoisson",
    "ZeroOneInflatedBeta",
    "families_in_files",
    "register",
]


def __dir__() -> list[str]:
    return __all__
