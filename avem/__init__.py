"""Hidden Markov models with subject-specific random effects.

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
    from avem.mixed_hmm import MixedHMM
    from avem.models.outcome import outcome
    from avem.models.simulate import Simulation
    from avem.results.hmm_fit import HMMFit
    from avem.results.saving import load

__version__ = "0.1.0"

__all__ = [
    "AvemError",
    "AvemWarning",
    "Bernoulli",
    "Beta",
    "Binomial",
    "Categorical",
    "Custom",
    "DataError",
    "Exponential",
    "FileError",
    "Gamma",
    "Gaussian",
    "HMMFit",
    "LogNormal",
    "MixedHMM",
    "ModelError",
    "NegativeBinomial",
    "Panel",
    "Poisson",
    "Simulation",
    "Stop",
    "StudentT",
    "VonMises",
    "WrappedCauchy",
    "ZeroAugmentedGamma",
    "ZeroInflatedNegativeBinomial",
    "ZeroInflatedPoisson",
    "load",
    "load_affect",
    "outcome",
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
    "avem.mixed_hmm": ("MixedHMM",),
    "avem.models.outcome": ("outcome",),
    "avem.models.simulate": ("Simulation",),
    "avem.results.hmm_fit": ("HMMFit",),
    "avem.results.saving": ("load",),
}


def __getattr__(name: str) -> Any:
    for module, names in _HOMES.items():
        if name in names:
            return getattr(import_module(module), name)
    raise AttributeError(f"module 'avem' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
