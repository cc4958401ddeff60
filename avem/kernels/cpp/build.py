"""A kernel's library: the wheel's, or one kept from another time, or made now."""

from __future__ import annotations

import ctypes
import hashlib
import logging
import platform
import subprocess
import tempfile
from collections.abc import Iterator
from functools import cache
from importlib.metadata import version
from pathlib import Path
from threading import Event, Lock
from typing import Any

import jax
import numpy as np

from avem.kernels.cpp import compile as cpp
from avem.kernels.folder import cache_folder, is_own

SHIPPED = Path(__file__).parent / "built"
"""Where a wheel has its libraries, by instruction set."""
_NEEDS = {"avx512": ("AVX512_SKX",), "avx2": ("AVX2", "FMA3"), "any": ()}
"""What a processor must have, in NumPy's words."""
_log = logging.getLogger("avem")
_lock = Lock()
_gave_up = Event()


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
    stem = cpp.stem_of(name, dict(numbers))
    reason: Exception | str = "none was found"
    try:
        for library in _libraries(name, dict(numbers), stem):
            try:
                handler = getattr(ctypes.CDLL(str(library)), f"avem_{name}")
                capsule = jax.ffi.pycapsule(handler)
                jax.ffi.register_ffi_target(f"avem_{stem}", capsule, platform="cpu")
                return f"avem_{stem}"
            except (OSError, AttributeError, RuntimeError) as error:  # made for another version
                reason = error
    except (OSError, subprocess.SubprocessError) as error:
        reason = error
    _log.info("avem: no native %s (%s); the portable code runs instead", name, reason)
    return None


def _libraries(name: str, numbers: dict[str, int], stem: str) -> Iterator[Path]:
    """Libraries that are whole, and that no one else has put there."""
    for library in _shipped(stem):
        if cpp.is_whole(library):
            yield library
        else:
            _say_once(f"{library} is damaged: install avem again.")
    folder, tag = cache_folder() or _folder_for_now(), f"-{_fingerprint()}"
    for library in sorted(folder.glob(f"{stem}{tag}-*.so")):
        if is_own(library) and cpp.is_whole(library):
            yield library
            return
        _say_once(f"{library} is not what was put there; it is made again.")
        library.unlink()
    if _gave_up.is_set():
        raise OSError("the compiler hangs")
    here = (("-march=native",), ())
    try:
        yield cpp.compiled(name, numbers, jax.ffi.include_dir(), folder, here, tag)
    except subprocess.TimeoutExpired:
        _gave_up.set()
        _say_once(
            f"{cpp.find_compiler()} gave no answer in {cpp.PATIENCE:.0f} s; the slower portable "
            "code runs instead. With AVEM_NATIVE=0 in the environment it is not tried."
        )
        raise


def _shipped(stem: str) -> Iterator[Path]:
    """Of the wheel, for the best instructions that this processor has."""
    if SHIPPED.is_dir():
        for word in cpp.INSTRUCTIONS.get(platform.machine().lower(), {}):
            if all(_processor().get(need) for need in _NEEDS[word]):
                yield from sorted((SHIPPED / word).glob(f"{stem}-*.so"))


@cache
def _processor() -> dict[str, Any]:
    """What the processor can do, as NumPy found out."""
    core = getattr(np, "_core", None)
    return getattr(getattr(core, "_multiarray_umath", None), "__cpu_features__", {})


@cache
def _fingerprint() -> str:
    """Of everything that a library depends on beside its constants."""
    told = hashlib.sha256()
    for source in sorted(cpp.SOURCES.glob("*.[ch]*")):
        told.update(source.read_bytes())
    features = sorted(name for name, has in _processor().items() if has)
    words = (cpp.find_compiler(), version("jaxlib"), *cpp.FLAGS, platform.machine(), *features)
    told.update("\0".join(words).encode())
    return told.hexdigest()[:16]


@cache
def _kept_for_now() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="avem-native-")  # removed at exit


def _folder_for_now() -> Path:
    return Path(_kept_for_now().name)


@cache
def _say_once(words: str) -> None:
    _log.warning("avem: %s", words)
