"""Emission families, one per file."""

from avem.families.base import Family
from avem.families.bernoulli import Bernoulli
from avem.families.beta import Beta
from avem.families.binomial import Binomial
from avem.families.categorical import Categorical
from avem.families.custom import Custom
from avem.families.exponential import Exponential
from avem.families.gamma import Gamma
from avem.families.gaussian import Gaussian
from avem.families.log_normal import LogNormal
from avem.families.negative_binomial import NegativeBinomial
from avem.families.normal import Normal
from avem.families.poisson import Poisson
from avem.families.student_t import StudentT
from avem.families.von_mises import VonMises
from avem.families.wrapped_cauchy import WrappedCauchy
from avem.families.zero_augmented_gamma import ZeroAugmentedGamma
from avem.families.zero_inflated import ZeroInflatedNegativeBinomial, ZeroInflatedPoisson

_LISTED: tuple[type[Family], ...] = (
    Bernoulli,
    Binomial,
    Categorical,
    Poisson,
    NegativeBinomial,
    ZeroInflatedPoisson,
    ZeroInflatedNegativeBinomial,
    Exponential,
    Gamma,
    ZeroAugmentedGamma,
    LogNormal,
    Beta,
    StudentT,
    VonMises,
    WrappedCauchy,
)

FAMILIES: dict[str, type] = {"gaussian": Gaussian, **{family.name: family for family in _LISTED}}
"""The class for each word users type. `Normal` has none: it stands in for a Gaussian inside."""

__all__ = [
    "FAMILIES",
    "Bernoulli",
    "Beta",
    "Binomial",
    "Categorical",
    "Custom",
    "Exponential",
    "Family",
    "Gamma",
    "Gaussian",
    "LogNormal",
    "NegativeBinomial",
    "Normal",
    "Poisson",
    "StudentT",
    "VonMises",
    "WrappedCauchy",
    "ZeroAugmentedGamma",
    "ZeroInflatedNegativeBinomial",
    "ZeroInflatedPoisson",
]
