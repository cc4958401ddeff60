"""Puts the kernels into a wheel, compiled for the platform it is built on.

Where there is no C++ compiler, or with ``AVEM_PURE=1`` in the environment, the wheel has sources
only, and they are compiled when they are first used.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import sys
import sysconfig
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CompiledKernels(BuildHookInterface):
    """Libraries of all kernels, for every set of instructions of the platform."""

    def dependencies(self) -> list[str]:
        """XLA's header comes with jaxlib."""
        return ["jaxlib>=0.8"] if self._wanted() else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, and have the wheel take what was made."""
        if version == "editable" or not self._wanted():
            return
        cpp = self._compile_module()
        self._folder = tempfile.TemporaryDirectory(prefix="avem-kernels-")
        place, include = Path(self._folder.name), _header()
        sets = cpp.INSTRUCTIONS[platform.machine().lower()]

        def make(word: str, name: str, numbers: dict[str, int]) -> Path:
            folder = place / word
            folder.mkdir(exist_ok=True)
            return cpp.compiled(name, numbers, include, folder, [sets[word]])

        jobs = [(word, *kernel) for word in sets for kernel in cpp.in_a_wheel()]
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            for number, library in enumerate(pool.map(lambda job: make(*job), jobs), 1):
                inside = library.relative_to(place).as_posix()
                build_data["force_include"][str(library)] = f"avem/kernels/cpp/built/{inside}"
                self.app.display_info(f"{number}/{len(jobs)} {inside}")
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{_platform()}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove what was made on the way."""
        if hasattr(self, "_folder"):
            self._folder.cleanup()

    def _wanted(self) -> bool:
        if self.target_name != "wheel" or os.environ.get("AVEM_PURE") == "1":
            return False
        cpp = self._compile_module()
        try:
            cpp.find_compiler()
        except FileNotFoundError:
            return False
        return platform.machine().lower() in cpp.INSTRUCTIONS and sys.platform != "win32"

    def _compile_module(self) -> ModuleType:
        """Of the source tree: avem itself cannot be imported here."""
        path = Path(self.root) / "avem" / "kernels" / "cpp" / "compile.py"
        spec = importlib.util.spec_from_file_location("avem_compile", path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module


def _platform() -> str:
    """What the libraries run on, as the name of a wheel says it.

    Python itself may be for several processors of a Mac: the libraries are for this one.
    """
    system = sysconfig.get_platform()
    if sys.platform == "darwin":
        newest = platform.mac_ver()[0].partition(".")[0] + ".0"
        target = os.environ.get("MACOSX_DEPLOYMENT_TARGET", newest)
        system = f"macosx-{target}-{platform.machine()}"
    return system.replace("-", "_").replace(".", "_")


def _header() -> Path:
    """Where XLA's header is, of the jaxlib of the environment that builds."""
    found = importlib.util.find_spec("jaxlib")
    assert found is not None
    assert found.origin is not None
    return Path(found.origin).parent / "include"
