"""Most of the tests' time is compiling: it is kept short, and its results are shared.

Compiled code is kept for the length of a run, so that its processes compile once for all; and the
last stage of the compiler optimises little, which changes the speed of the code and nothing else.
"""

import gc
import os
import shutil
import tempfile
from pathlib import Path

import pytest

_MAPS = Path("/proc/self/maps")
_MOST_MAPS = 25_000
_FOLDER = "JAX_COMPILATION_CACHE_DIR"
_made = None


def pytest_configure(config):
    """In the process that starts the others: they inherit the environment."""
    global _made
    os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0")
    if _FOLDER not in os.environ:
        _made = tempfile.mkdtemp(prefix="avem-tests-")
        os.environ[_FOLDER] = _made
        os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0.1"
        os.environ["JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES"] = "-1"


def pytest_unconfigure(config):
    if _made is not None:
        shutil.rmtree(_made, ignore_errors=True)


@pytest.fixture(autouse=True, scope="module")
def _few_memory_maps():
    """Compiled code takes pieces of memory, of which Linux gives a process 65,530."""
    yield
    if _MAPS.exists() and len(_MAPS.read_bytes().splitlines()) > _MOST_MAPS:
        import jax

        jax.clear_caches()
        gc.collect()
