"""Compiled code is kept for the length of a run, so that its processes compile once for all."""

import os
import shutil
import tempfile

_FOLDER = "JAX_COMPILATION_CACHE_DIR"
_made = None


def pytest_configure(config):
    """In the process that starts the others: they inherit the environment."""
    global _made
    if _FOLDER not in os.environ:
        _made = tempfile.mkdtemp(prefix="avem-tests-")
        os.environ[_FOLDER] = _made
        os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0.1"
        os.environ["JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES"] = "-1"


def pytest_unconfigure(config):
    if _made is not None:
        shutil.rmtree(_made, ignore_errors=True)
