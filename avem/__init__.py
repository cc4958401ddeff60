"""Hidden Markov models with subject-specific random effects."""

from avem.data import Panel
from avem.data.examples import load_affect
from avem.errors import AvemError, AvemWarning, DataError, FileError, ModelError
from avem.families import Gaussian
from avem.inference.stop import Stop
from avem.mixed_hmm import MixedHMM
from avem.models.simulate import Simulation
from avem.results.hmm_fit import HMMFit
from avem.results.saving import load

__version__ = "0.1.0"

__all__ = [
    "AvemError",
    "AvemWarning",
    "DataError",
    "FileError",
    "Gaussian",
    "HMMFit",
    "MixedHMM",
    "ModelError",
    "Panel",
    "Simulation",
    "Stop",
    "load",
    "load_affect",
]
