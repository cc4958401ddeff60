"""Hidden Markov and state-space models with subject-specific random effects.

The names below are imported when they are first used, so that `import avem` and `avem --help` are
quick: JAX and pandas take a second to load.
"""

import gc
from importlib import import_module
from typing import TYPE_CHECKING, Any

from avem import _moved

if TYPE_CHECKING:
    from avem.components.duration import Duration
    from avem.components.generator import rates
    from avem.components.outcome import Outcome, outcome
    from avem.data.examples import load_affect
    from avem.data.movement import steps_and_turns
    from avem.data.panel import Panel
    from avem.data.scanning.scan import Scan
    from avem.errors import AvemError, AvemWarning, DataError, FileError, ModelError
    from avem.families import (
        Bernoulli,
        Beta,
        Binomial,
        Categorical,
        Censored,
        Custom,
        Dirichlet,
        Exponential,
        Gamma,
        Gaussian,
        HurdleNegativeBinomial,
        HurdlePoisson,
        LogNormal,
        NegativeBinomial,
        Ordinal,
        Poisson,
        StudentT,
        Truncated,
        VonMises,
        Weibull,
        WrappedCauchy,
        ZeroAugmentedGamma,
        ZeroInflatedNegativeBinomial,
        ZeroInflatedPoisson,
        ZeroOneInflatedBeta,
    )
    from avem.fits.fit import Fit
    from avem.fits.hmm_fit import HMMFit
    from avem.fits.info import FitInfo
    from avem.fits.io.saving import load
    from avem.fits.lazy import LazyTable
    from avem.fits.likelihood import LogLik
    from avem.fits.monitor import Monitor, Update
    from avem.fits.plots.hmm_plots import Plots
    from avem.fits.plots.ssm_plots import SSMPlots
    from avem.fits.questions.check import Check
    from avem.fits.questions.diagnosis import Diagnosis
    from avem.fits.ssm_fit import SSMFit
    from avem.fits.tables import Summary
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
    from avem.models.ssm_simulate import SSMSimulation
    from avem.workflows.bootstrap import bootstrap
    from avem.workflows.bootstrap_table import Bootstrap, Replicate
    from avem.workflows.compare import compare
    from avem.workflows.compared import Comparison
    from avem.workflows.comparison import LRTest, likelihood_ratio_test
    from avem.workflows.cross_validation import CrossValidation
    from avem.workflows.folds import cross_validate
    from avem.workflows.pooling import Pooled, pool
    from avem.workflows.selection import Selection
    from avem.workflows.states import select

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
    "Censored",
    "Check",
    "Comparison",
    "CrossValidation",
    "Custom",
    "DataError",
    "Diagnosis",
    "Dirichlet",
    "Duration",
    "Exponential",
    "FileError",
    "Fit",
    "FitInfo",
    "Gamma",
    "Gaussian",
    "HMMFit",
    "HurdleNegativeBinomial",
    "HurdlePoisson",
    "Iteration",
    "LRTest",
    "LazyTable",
    "LogLik",
    "LogNormal",
    "MeanField",
    "Method",
    "MixedHMM",
    "MixedSSM",
    "ModelError",
    "Monitor",
    "MonteCarlo",
    "NegativeBinomial",
    "Ordinal",
    "Outcome",
    "Panel",
    "Partial",
    "Plots",
    "Poisson",
    "Pooled",
    "Quadrature",
    "Replicate",
    "SSMFit",
    "SSMPlots",
    "SSMSimulation",
    "Scan",
    "Selection",
    "Simulation",
    "Stop",
    "Structured",
    "StudentT",
    "Summary",
    "Truncated",
    "Update",
    "VonMises",
    "Weibull",
    "WrappedCauchy",
    "ZeroAugmentedGamma",
    "ZeroInflatedNegativeBinomial",
    "ZeroInflatedPoisson",
    "ZeroOneInflatedBeta",
    "bootstrap",
    "compare",
    "cross_validate",
    "likelihood_ratio_test",
    "load",
    "load_affect",
    "outcome",
    "pool",
    "rates",
    "select",
    "steps_and_turns",
]

_HOMES = {
    "avem.components.duration": ("Duration",),
    "avem.components.generator": ("rates",),
    "avem.components.outcome": (
        "Outcome",
        "outcome",
    ),
    "avem.data.examples": ("load_affect",),
    "avem.data.movement": ("steps_and_turns",),
    "avem.data.panel": ("Panel",),
    "avem.data.scanning.scan": ("Scan",),
    "avem.errors": (
        "AvemError",
        "AvemWarning",
        "DataError",
        "FileError",
        "ModelError",
    ),
    "avem.families": (
        "Bernoulli",
        "Beta",
        "Binomial",
        "Categorical",
        "Censored",
        "Custom",
        "Dirichlet",
        "Exponential",
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
        "VonMises",
        "Weibull",
        "WrappedCauchy",
        "ZeroAugmentedGamma",
        "ZeroInflatedNegativeBinomial",
        "ZeroInflatedPoisson",
        "ZeroOneInflatedBeta",
    ),
    "avem.fits.fit": ("Fit",),
    "avem.fits.hmm_fit": ("HMMFit",),
    "avem.fits.info": ("FitInfo",),
    "avem.fits.io.saving": ("load",),
    "avem.fits.lazy": ("LazyTable",),
    "avem.fits.likelihood": ("LogLik",),
    "avem.fits.monitor": (
        "Monitor",
        "Update",
    ),
    "avem.fits.plots.hmm_plots": ("Plots",),
    "avem.fits.plots.ssm_plots": ("SSMPlots",),
    "avem.fits.questions.check": ("Check",),
    "avem.fits.questions.diagnosis": ("Diagnosis",),
    "avem.fits.ssm_fit": ("SSMFit",),
    "avem.fits.tables": ("Summary",),
    "avem.inference.methods.adaptive.method": ("Adaptive",),
    "avem.inference.methods.avem": ("AVEM",),
    "avem.inference.methods.base": ("Method",),
    "avem.inference.methods.mean_field": ("MeanField",),
    "avem.inference.methods.partial": ("Partial",),
    "avem.inference.methods.prior_nodes": (
        "MonteCarlo",
        "Quadrature",
    ),
    "avem.inference.methods.structured": ("Structured",),
    "avem.inference.progress": ("Iteration",),
    "avem.inference.stop": ("Stop",),
    "avem.mixed_hmm": ("MixedHMM",),
    "avem.mixed_ssm": ("MixedSSM",),
    "avem.models.hmm_simulate": ("Simulation",),
    "avem.models.ssm_simulate": ("SSMSimulation",),
    "avem.workflows.bootstrap": ("bootstrap",),
    "avem.workflows.bootstrap_table": (
        "Bootstrap",
        "Replicate",
    ),
    "avem.workflows.compare": ("compare",),
    "avem.workflows.compared": ("Comparison",),
    "avem.workflows.comparison": (
        "LRTest",
        "likelihood_ratio_test",
    ),
    "avem.workflows.cross_validation": ("CrossValidation",),
    "avem.workflows.folds": ("cross_validate",),
    "avem.workflows.pooling": (
        "Pooled",
        "pool",
    ),
    "avem.workflows.selection": ("Selection",),
    "avem.workflows.states": ("select",),
}
"""Where each public name is defined."""

_MODULES = {"families": "avem.families", "priors": "avem.priors"}
"""Modules that are public names."""

_moved.install()


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return _imported(_MODULES[name])  # which makes it a name of this package
    for module, names in _HOMES.items():
        if name in names:
            found = globals()[name] = getattr(_imported(module), name)
            return found
    from avem.errors import did_you_mean

    hint = did_you_mean(name, __all__)
    raise AttributeError(f"module 'avem' has no attribute {name!r}.{hint}", name=name)


def _imported(module: str) -> Any:
    """Import, without looking for garbage among what comes: that takes a quarter of the time."""
    looks = gc.isenabled() and not gc.get_freeze_count()
    if looks:
        gc.disable()
    try:
        return import_module(module)
    finally:
        if looks:
            gc.freeze()
            gc.unfreeze()  # what there is now counts as old
            gc.enable()


def __dir__() -> list[str]:
    return [*__all__, "__version__", *_MODULES]
