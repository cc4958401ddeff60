"""From a source file to a shared library, by the machine's own C++ compiler.

Nothing of avem is imported here: building a wheel runs this too.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

SOURCES = Path(__file__).parent
COMPILERS = ("c++", "g++", "clang++")
FLAGS = ("-std=c++17", "-O3", "-fno-math-errno", "-fno-trapping-math", "-shared", "-fPIC")
PATIENCE = 60.0
"""Seconds that one source may take."""
_UNFINISHED = ".part"
INSTRUCTIONS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "x86_64": {"avx512": ("-march=x86-64-v4",), "avx2": ("-march=x86-64-v3",)},
    "amd64": {"avx512": ("-march=x86-64-v4",), "avx2": ("-march=x86-64-v3",)},
    "aarch64": {"any": ()},
    "arm64": {"any": ()},
}
"""Those that a wheel has code for, the best first, and what the compiler is told."""


def in_a_wheel() -> Iterator[tuple[str, dict[str, int]]]:
    """The kernels of a wheel, with their constants: what most people need, and few megabytes."""
    for states in range(1, 9):
        yield "forward_backward", {"STATES": states}
    for states in range(1, 7):
        for outcomes in range(1, 4):
            yield "gaussian_chain", {"STATES": states, "OUTCOMES": outcomes}
    for states in range(1, 5):
        yield "kalman_moments", {"STATES": states}
    for states in range(2, 5):
        yield "rates", {"STATES": states}
    yield "semi_markov", {}
    yield "posterior", {}
    yield "inverse", {}


def find_compiler() -> str:
    """The path of a C++ compiler, ``$CXX`` first."""
    for name in (os.environ.get("CXX"), *COMPILERS):
        found = shutil.which(name) if name else None
        if found:
            return found
    raise FileNotFoundError("no C++ compiler: looked for " + ", ".join(COMPILERS))


def stem_of(name: str, numbers: Mapping[str, int]) -> str:
    """What its target is called, and its library begins with."""
    return "_".join([name, *(f"{key}{value}" for key, value in sorted(numbers.items()))])


def compiled(
    name: str,
    numbers: Mapping[str, int],
    include: str | Path,
    folder: Path,
    choices: Sequence[Sequence[str]],
    tag: str = "",
) -> Path:
    """A library in `folder`; its name ends in the hash of what is in it.

    Parameters
    ----------
    name : str
        Of the source, ``name.cc``, which defines the handler ``avem_name``.
    numbers : mapping
        Constants that the compiler is given.
    include : path
        Where XLA's header is.
    folder : path
        Where to put it.
    choices : sequence
        Further flags: of those that the compiler understands, the first are used.
    tag : str
        Stands in the file's name.
    """
    defines = [f"-D{key}={value}" for key, value in sorted(numbers.items())]
    source = str(SOURCES / f"{name}.cc")
    _remove_left_over(folder)
    fd, made = tempfile.mkstemp(suffix=_UNFINISHED, dir=folder)
    os.close(fd)
    try:
        command = [find_compiler(), *FLAGS, *defines, f"-I{include}", source, "-o", made]
        for last, flags in enumerate(choices, 1 - len(choices)):
            try:
                subprocess.run(
                    [*command, *flags], check=True, capture_output=True, timeout=PATIENCE
                )
                break
            except subprocess.CalledProcessError:  # not every compiler knows every flag
                if not last:
                    raise
        content = Path(made).read_bytes()
        library = folder / f"{stem_of(name, numbers)}{tag}-{digest(content)}.so"
        os.chmod(made, 0o755)
        with open(made, "rb+") as written:
            os.fsync(written.fileno())
        os.replace(made, library)  # at once: other processes may be looking
    finally:
        Path(made).unlink(missing_ok=True)
    return library


def _remove_left_over(folder: Path) -> None:
    """Remove what processes that were killed while they compiled have left."""
    for made in folder.glob(f"*{_UNFINISHED}"):
        with suppress(OSError):
            if time.time() - made.stat().st_mtime > 4 * PATIENCE:
                made.unlink()


def digest(content: bytes) -> str:
    """What the name of a library ends in."""
    return hashlib.sha256(content).hexdigest()[:32]


def is_whole(library: Path) -> bool:
    """Whether a library is what was once written under its name."""
    return library.stem.rpartition("-")[2] == digest(library.read_bytes())
