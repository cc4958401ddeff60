"""Where the kernels' libraries come from, and which of them are not loaded."""

import logging
import os
import subprocess
import sys
import time

import pytest

from avem.kernels import folder
from avem.kernels.cpp import build
from avem.kernels.cpp import compile as cpp
from avem.kernels.dispatch import engine
from tests.chosen import chosen

pytestmark = pytest.mark.skipif(
    engine("inverse", "float64", rows=8) is None,
    reason="no C++ compiler, or no CPU: the portable code runs",
)
posix = pytest.mark.skipif(sys.platform == "win32", reason="owners and modes are POSIX's")


@pytest.fixture
def place(monkeypatch, tmp_path):
    """A cache of the test's own, and nothing remembered."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(build, "_find", build._find.__wrapped__)
    # Libraries are loaded, but XLA takes no second one under a name.
    monkeypatch.setattr(build.jax.ffi, "register_ffi_target", lambda *_, **__: None)
    build._say_once.cache_clear()
    build._fingerprint.cache_clear()
    yield folder.cache_folder()
    build._fingerprint.cache_clear()


@pytest.fixture
def builds(monkeypatch):
    """The sources that were compiled."""
    made, real = [], cpp.compiled

    def compiled(name, *rest):
        made.append(name)
        return real(name, *rest)

    monkeypatch.setattr(cpp, "compiled", compiled)
    return made


def only_library(place):
    (library,) = place.glob("*.so")
    return library


def test_a_library_is_kept_for_the_next_process(place, builds):
    assert build.find("inverse") == "avem_inverse"
    assert build.find("inverse") == "avem_inverse"
    assert builds == ["inverse"]
    assert [path.suffix for path in place.iterdir()] == [".so"]  # nothing temporary is left


@pytest.mark.parametrize("damage", chosen(("cut", "garbage", "empty"), ("cut",)))
def test_what_is_damaged_is_made_again_and_said_once(place, builds, caplog, damage):
    build.find("inverse")
    library = only_library(place)
    whole = library.read_bytes()
    library.unlink()  # this process has it in use
    library.write_bytes({"cut": whole[:4096], "garbage": b"x" * len(whole), "empty": b""}[damage])
    with caplog.at_level(logging.WARNING, "avem"):
        assert build.find("inverse") == "avem_inverse"
        assert build.find("inverse") == "avem_inverse"
    assert builds == ["inverse", "inverse"]
    assert caplog.text.count("made again") == 1
    assert cpp.is_whole(only_library(place))


@posix
def test_what_others_may_have_changed_is_made_again(place, builds):
    build.find("inverse")
    only_library(place).chmod(0o777)
    assert build.find("inverse") == "avem_inverse"
    assert builds == ["inverse", "inverse"]


@posix
def test_a_folder_of_someone_else_is_not_used(place, builds, monkeypatch):
    assert place.stat().st_mode & 0o077 == 0
    monkeypatch.setattr(folder, "_belongs_to_us", lambda path: False)
    assert folder.cache_folder() is None
    assert build.find("inverse") == "avem_inverse"  # in a folder for the time being
    assert not list(place.iterdir())


def test_folders_for_the_time_being_do_not_stay(tmp_path):
    """Where there is nowhere to keep a library."""
    code = "from avem.kernels.cpp import build; assert build.find('inverse') == 'avem_inverse'"
    blocked = tmp_path / "no-folder"
    blocked.write_text("")
    env = {**os.environ, "XDG_CACHE_HOME": str(blocked), "TMPDIR": str(tmp_path)}
    subprocess.run([sys.executable, "-c", code], env=env, check=True)
    assert [path.name for path in tmp_path.iterdir()] == ["no-folder"]


def test_without_a_compiler_the_portable_code_runs(place, monkeypatch):
    monkeypatch.setattr(cpp, "COMPILERS", ("no-such-compiler",))
    monkeypatch.delenv("CXX", raising=False)
    assert build.find("inverse") is None


def test_a_source_that_does_not_compile_is_not_used(place, monkeypatch, tmp_path):
    (tmp_path / "inverse.cc").write_text("no C++", encoding="utf-8")
    monkeypatch.setattr(cpp, "SOURCES", tmp_path)
    assert build.find("inverse") is None
    assert not list(place.iterdir())


@posix
def test_a_compiler_that_hangs_is_waited_for_once(place, monkeypatch, tmp_path, caplog):
    lazy = tmp_path / "lazy-c++"
    lazy.write_text("#!/bin/sh\nexec sleep 600\n")
    lazy.chmod(0o755)
    monkeypatch.setenv("CXX", str(lazy))
    monkeypatch.setattr(cpp, "PATIENCE", 0.3)
    began = time.perf_counter()
    with caplog.at_level(logging.WARNING, "avem"):
        assert build.find("inverse") is None
        assert build.find("posterior") is None
    build._gave_up.clear()
    assert time.perf_counter() - began < 20
    assert caplog.text.count("gave no answer") == 1
    assert not list(place.iterdir())


def test_a_wheel_has_its_libraries(place, builds, monkeypatch, tmp_path):
    """Made for a set of instructions, chosen by what the processor has."""
    import jax

    sets = cpp.INSTRUCTIONS.get(build.platform.machine().lower(), {})
    usable = [word for word in sets if all(build._processor().get(n) for n in build._NEEDS[word])]
    if not usable:
        pytest.skip("no wheel has code for this processor")
    for word in sets:
        (tmp_path / word).mkdir()
    cpp.compiled("inverse", {}, jax.ffi.include_dir(), tmp_path / usable[0], [sets[usable[0]]])
    builds.clear()
    monkeypatch.setattr(build, "SHIPPED", tmp_path)
    assert build.find("inverse") == "avem_inverse"
    assert builds == []
    assert build.find("posterior") == "avem_posterior"  # which this wheel does not have
    assert builds == ["posterior"]
