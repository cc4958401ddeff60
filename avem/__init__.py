"""Hidden Markov and state-space models with subject-specific random effects.

The names below are imported when they are first used, so that `import avem` and `avem --help` are
quick: JAX and pandas take a second to load.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from avem.components.outcome import outcome
    from avem.data.examples import load_affect
    from avem.data.panel import Panel
    from avem.errors import AvemError, AvemWarning, DataError, FileError, ModelError
    from avem.families import (
        Bernoulli,
        Beta,
        Binomial,
        Categorical,
        Custom,
        Exponential,
        Gamma,
        Gaussian,
        LogNormal,
        NegativeBinomial,
        Poisson,
        StudentT,
        VonMises,
        WrappedCauchy,
        ZeroAugmentedGamma,
        ZeroInflatedNegativeBinomial,
        ZeroInflatedPoisson,
    )
    from avem.fits.hmm_fit import HMMFit
    from avem.fits.io.saving import load
    from avem.fits.ssm_fit import SSMFit
    from avem.inference.methods.adaptive.method import Adaptive
    from avem.inference.methods.avem import AVEM
    from avem.inference.methods.base import Method
    from avem.inference.methods.mean_field import MeanField
    from avem.inference.methods.partial import Partial
    from avem.inference.methods.prior_nodes import MonteCarlo, Quadrature
    from avem.inference.methods.structured import Structured
    from avem.inference.progress import Iteration
    from avem.inference.stop import Stop
    from avem.mixed_hmm import MixedHMM
    from avem.mixed_ssm import MixedSSM
    from avem.models.hmm_simulate import Simulation
    from avem.workflows import cross_validate, select
    from avem.workflows.bootstrap import bootstrap
    from avem.workflows.bootstrap_table import Bootstrap
    from avem.workflows.comparison import likelihood_ratio_test

__version__ = "0.1.0"

__all__ = [
    "AVEM",
    "Adaptive",
    "AvemError",
    "AvemWarning",
    "Bernoulli",
    "Beta",
    "Binomial",
    "Bootstrap",
    "Categorical",
    "Custom",
    "DataError",
    "Exponential",
    "FileError",
    "Gamma",
    "Gaussian",
    "HMMFit",
    "Iteration",
    "LogNormal",
    "MeanField",
    "Method",
    "MixedHMM",
    "MixedSSM",
    "ModelError",
    "MonteCarlo",
    "NegativeBinomial",
    "Panel",
    "Partial",
    "Poisson",
    "Quadrature",
    "SSMFit",
    "Simulation",
    "Stop",
    "Structured",
    "StudentT",
    "VonMises",
    "WrappedCauchy",
    "ZeroAugmentedGamma",
    "ZeroInflatedNegativeBinomial",
    "ZeroInflatedPoisson",
    "bootstrap",
    "cross_validate",
    "likelihood_ratio_test",
    "load",
    "load_affect",
    "outcome",
    "select",
]

_HOMES = {
    "avem.errors": ("AvemError", "AvemWarning", "DataError", "FileError", "ModelError"),
    "avem.data.examples": ("load_affect",),
    "avem.data.panel": ("Panel",),
    "avem.families": (
        "Bernoulli",
        "Beta",
        "Binomial",
        "Categorical",
        "Custom",
        "Exponential",
        "Gamma",
        "Gaussian",
        "LogNormal",
        "NegativeBinomial",
        "Poisson",
        "StudentT",
        "VonMises",
        "WrappedCauchy",
        "ZeroAugmentedGamma",
        "ZeroInflatedNegativeBinomial",
        "ZeroInflatedPoisson",
    ),
    "avem.inference.methods.adaptive.method": ("Adaptive",),
    "avem.inference.methods.avem": ("AVEM",),
    "avem.inference.methods.base": ("Method",),
    "avem.inference.methods.mean_field": ("MeanField",),
    "avem.inference.methods.partial": ("Partial",),
    "avem.inference.methods.prior_nodes": ("MonteCarlo", "Quadrature"),
    "avem.inference.methods.structured": ("Structured",),
    "avem.inference.stop": ("Stop",),
    "avem.inference.progress": ("Iteration",),
    "avem.mixed_hmm": ("MixedHMM",),
    "avem.mixed_ssm": ("MixedSSM",),
    "avem.components.outcome": ("outcome",),
    "avem.models.hmm_simulate": ("Simulation",),
    "avem.workflows.bootstrap": ("bootstrap",),
    "avem.workflows.bootstrap_table": ("Bootstrap",),
    "avem.workflows.comparison": ("likelihood_ratio_test",),
    "avem.fits.hmm_fit": ("HMMFit",),
    "avem.fits.io.saving": ("load",),
    "avem.fits.ssm_fit": ("SSMFit",),
    "avem.workflows": ("cross_validate", "select"),
}


def __getattr__(name: str) -> Any:
    for module, names in _HOMES.items():
        if name in names:
            return getattr(import_module(module), name)
    raise AttributeError(f"module 'avem' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
