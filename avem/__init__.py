"""Hidden Markov and state-space models with subject-specific random effects.

The names below are imported when they are first used, so that `import avem` and `avem --help` are
quick: JAX and pandas take a second to load.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
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
    from avem.inference.stop import Stop
    from avem.inference.watch import Iteration
    from avem.mixed_hmm import MixedHMM
    from avem.mixed_ssm import MixedSSM
    from avem.models.outcome import outcome
    from avem.models.simulate import Simulation
    from avem.resampling.bootstrap import bootstrap
    from avem.results.bootstrap_table import Bootstrap
    from avem.results.comparison import likelihood_ratio_test
    from avem.results.hmm_fit import HMMFit
    from avem.results.saving import load
    from avem.results.ssm_fit import SSMFit
    from avem.selection import cross_validate, select

__version__ = "0.1.0"

__all__ = [
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
    "MixedHMM",
    "MixedSSM",
    "ModelError",
    "NegativeBinomial",
    "Panel",
    "Poisson",
    "SSMFit",
    "Simulation",
    "Stop",
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
    "avem.inference.stop": ("Stop",),
    "avem.inference.watch": ("Iteration",),
    "avem.mixed_hmm": ("MixedHMM",),
    "avem.mixed_ssm": ("MixedSSM",),
    "avem.models.outcome": ("outcome",),
    "avem.models.simulate": ("Simulation",),
    "avem.resampling.bootstrap": ("bootstrap",),
    "avem.results.bootstrap_table": ("Bootstrap",),
    "avem.results.comparison": ("likelihood_ratio_test",),
    "avem.results.hmm_fit": ("HMMFit",),
    "avem.results.saving": ("load",),
    "avem.results.ssm_fit": ("SSMFit",),
    "avem.selection": ("cross_validate", "select"),
}


def __getattr__(name: str) -> Any:
    for module, names in _HOMES.items():
        if name in names:
            return getattr(import_module(module), name)
    raise AttributeError(f"module 'avem' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
