"""From a source file to a function that XLA can call."""

from __future__ import annotations

import ctypes
import hashlib
import logging
import os
import platform
import shutil
import subprocess
import tempfile
import time
from contextlib import suppress
from functools import cache
from importlib.metadata import version
from pathlib import Path
from threading import Lock

import jax

from avem.kernels.folder import cache_folder

_SOURCES = Path(__file__).parent
_COMPILERS = ("c++", "g++", "clang++")
_FLAGS = ("-std=c++17", "-O3", "-fno-math-errno", "-fno-trapping-math", "-shared", "-fPIC")
_FOR_THIS_PROCESSOR = "-march=native"
_PATIENCE = 120
_UNFINISHED = "tmp"
_log = logging.getLogger("avem")
_lock = Lock()


def find(name: str, **numbers: int) -> str | None:
    """What to call as `jax.ffi.ffi_call`'s target, or None where it cannot be had.

    Parameters
    ----------
    name
        Of the source, ``name.cc``, which defines the handler ``avem_name``.
    numbers
        Constants that the compiler is given; each choice of them is a target of its own.
    """
    with _lock:  # threads that trace at the same time build once
        return _find(name, tuple(sorted(numbers.items())))


@cache
def _find(name: str, numbers: tuple[tuple[str, int], ...]) -> str | None:
    defines = [f"-D{key}={value}" for key, value in numbers]
    try:
        library = ctypes.CDLL(str(_built(name, defines)))
        handler = getattr(library, f"avem_{name}")
        target = "_".join([f"avem_{name}", *(f"{key}{value}" for key, value in numbers)])
        jax.ffi.register_ffi_target(target, jax.ffi.pycapsule(handler), platform="cpu")
    except (OSError, subprocess.SubprocessError, AttributeError) as error:
        _log.info("avem: no native %s (%s); the portable code runs instead", name, error)
        return None
    return target


def _built(name: str, defines: list[str]) -> Path:
    """The shared library, from the cache or made now."""
    compiler = _compiler()
    folder = cache_folder()
    if folder is None:
        folder = Path(tempfile.mkdtemp(prefix="avem-native-"))
    library = folder / f"{name}-{_fingerprint(compiler, defines)}.so"
    if library.exists():
        return library
    _remove_left_over(folder)
    fd, made = tempfile.mkstemp(suffix=".so", prefix=_UNFINISHED, dir=folder)
    os.close(fd)
    try:
        source = str(_SOURCES / f"{name}.cc")
        include = f"-I{jax.ffi.include_dir()}"
        command = [compiler, *_FLAGS, *defines, include, source, "-o", made]
        try:
            _run([*command, _FOR_THIS_PROCESSOR])
        except subprocess.CalledProcessError:  # not every compiler knows that flag
            _run(command)
        os.replace(made, library)  # at once: other processes may be looking
    finally:
        Path(made).unlink(missing_ok=True)
    return library


def _remove_left_over(folder: Path) -> None:
    """Remove what processes that were killed while they compiled have left."""
    for made in folder.glob(f"{_UNFINISHED}*.so"):
        with suppress(OSError):
            if time.time() - made.stat().st_mtime > 4 * _PATIENCE:
                made.unlink()


def _run(command: list[str]) -> None:
    subprocess.run(command, check=True, capture_output=True, timeout=_PATIENCE)


def _compiler() -> str:
    for name in (os.environ.get("CXX"), *_COMPILERS):
        found = shutil.which(name) if name else None
        if found:
            return found
    raise FileNotFoundError("no C++ compiler: looked for " + ", ".join(_COMPILERS))


def _fingerprint(compiler: str, defines: list[str]) -> str:
    """Of everything that the library depends on."""
    told = hashlib.sha256()
    for source in sorted(_SOURCES.glob("*.[ch]*")):
        told.update(source.read_bytes())
    for word in (compiler, version("jaxlib"), *_FLAGS, *defines, _processor()):
        told.update(word.encode())
    return told.hexdigest()[:16]


def _processor() -> str:
    """What tells processors apart: code made for one may not run on another."""
    known = Path("/proc/cpuinfo")
    flags = ""
    if known.exists():
        lines = known.read_text(encoding="utf-8", errors="replace").splitlines()
        flags = next((line for line in lines if line.startswith(("flags", "Features"))), "")
    return " ".join([platform.machine(), platform.processor(), flags])
