"""Most of the tests' time is compiling: it is kept short, and its results are shared and kept.

Compiled code serves all processes of a run, and later runs (`compiled.py`). The last stages of the
compiler optimise little, which changes the speed of the code and the last digits of its results.
"""

import gc
import os
import signal
from importlib.metadata import version
from pathlib import Path

import pytest

from tests import compiled
from tests.costs import Costs

_MAPS = Path("/proc/self/maps")
_MOST_MAPS = 25_000
_FLAGS = "--xla_backend_optimization_level=0"
_KNOWN = ("0.8.", "0.9.", "0.10.")
"""Of jaxlib, whose compiler has a quicker way that can be asked for; a flag that an XLA does not
know ends the process."""
if version("jaxlib").startswith(_KNOWN):
    _FLAGS += " --xla_cpu_use_fusion_emitters=false"
_FOLDER = "JAX_COMPILATION_CACHE_DIR"
_made = None


def pytest_addoption(parser):
    parser.addoption("--costs", type=int, metavar="N", help="show the N most expensive tests")


def pytest_configure(config):
    """In the process that starts the others: they inherit the environment."""
    global _made
    os.environ.setdefault("XLA_FLAGS", _FLAGS)
    if _FOLDER not in os.environ:
        _made = compiled.begin()
        os.environ[_FOLDER] = str(_made)
        os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
        os.environ["JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES"] = "-1"
        # Otherwise the folder's name is a part of every key.
        os.environ["JAX_PERSISTENT_CACHE_ENABLE_XLA_CACHES"] = "none"
    if config.getoption("costs"):
        config.pluginmanager.register(Costs(config.getoption("costs")))


def pytest_unconfigure(config):
    if _made is not None:
        compiled.end(_made)


@pytest.fixture(autouse=True, scope="module")
def _few_memory_maps():
    """Compiled code takes pieces of memory, of which Linux gives a process 65,530."""
    yield
    if _MAPS.exists() and len(_MAPS.read_bytes().splitlines()) > _MOST_MAPS:
        import jax

        jax.clear_caches()
        gc.collect()


@pytest.fixture
def ctrl_c():
    """Ctrl-C as in a terminal, also where the run began with it ignored (nohup, `make test &`)."""
    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, previous)
