"""Most of the tests' time is compiling: it is kept short, and its results are shared and kept.

Compiled code serves all processes of a run, and later runs (`compiled.py`). The last stages of the
compiler optimise little, which changes the speed of the code and the last digits of its results.
"""

import gc
import os
import signal
from base64 import b64decode
from contextlib import contextmanager
from functools import partial
from importlib.metadata import version
from pathlib import Path

import pytest

from tests import compiled
from tests.costs import Costs

_MAPS = Path("/proc/self/maps")
_MOST_MAPS = 40_000
_FLAGS = "--xla_backend_optimization_level=0"
_TOGETHER = " --xla_cpu_parallel_codegen_split_count=1"
"""The parts that a program is otherwise compiled in, side by side, cost a third more in all."""
_KNOWN = ("0.8.", "0.9.", "0.10.")
"""Of jaxlib, whose compiler has a quicker way that can be asked for; a flag that an XLA does not
know ends the process."""
if version("jaxlib").startswith(_KNOWN):
    _FLAGS += " --xla_cpu_use_fusion_emitters=false" + _TOGETHER
_FOLDER = "JAX_COMPILATION_CACHE_DIR"
_made = None
_SIZES = {4: (8, 32), 8: (8, 32), 64: (256, 1024)}
"""Of times, of lanes and subjects, and of lists of rows."""
_PIXEL = b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNgAAAAAgABSK+kcQAAAABJRU5ErkJggg=="
)
_SVG = b'<svg viewBox="0 0 1 1"/>'


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


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """The tests of a file share fits and compiled code, those of `fits/` with each other, too.

    They run in one process. Marks for that would be a part of what tests are called, which
    pytest-xdist 3.8 cannot change in pytest 9.2.
    """
    from xdist.scheduler import LoadScopeScheduling

    class Together(LoadScopeScheduling):
        def _split_scope(self, nodeid):
            file = nodeid.split("::")[0]
            return "tests/fits" if file.startswith("tests/fits/") else file

    return Together(config, log)


def pytest_collection_finish():
    """What tracing makes is looked through less often, and what is there already never again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


def pytest_unconfigure(config):
    if _made is not None:
        compiled.end(_made)


@pytest.fixture(autouse=True, scope="session")
def _few_shapes(request):
    """Panels of all the small sizes that tests use are padded to the same few shapes.

    What is padded adds exactly 0: `test_padding_changes_nothing` of the invariances says so. It and
    `data/test_layout.py` have the library's own shapes, as has the slow run.
    """
    if request.config.getoption("markexpr") == "slow":
        yield
        return
    from avem.data import layout

    usual = layout._round_up
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(layout, "_round_up", partial(_rounded, usual))
        yield


def _rounded(usual, size, smallest):
    return next((few for few in _SIZES[smallest] if 0 < size <= few), None) or usual(size, smallest)


@pytest.fixture
def own_shapes(monkeypatch):
    """The shapes that users have."""
    from avem.data import layout

    now = layout._round_up
    monkeypatch.setattr(layout, "_round_up", now.args[0] if isinstance(now, partial) else now)


@pytest.fixture(autouse=True, scope="module")
def _few_memory_maps():
    """Compiled code takes pieces of memory, of which Linux gives a process 65,530."""
    yield
    if _MAPS.exists() and len(_MAPS.read_bytes().splitlines()) > _MOST_MAPS:
        import jax

        jax.clear_caches()
        gc.collect()


@pytest.fixture(scope="session")
def blank():
    """A context in which figures are saved as one pixel: drawing takes most of a report's time."""

    def save(figure, target, **options):
        if options.get("format") == "svg":
            target.write(_SVG)
        elif hasattr(target, "write"):
            target.write(_PIXEL)
        else:
            Path(target).write_bytes(_PIXEL)

    @contextmanager
    def context():
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("matplotlib.figure.Figure.savefig", save)
            yield

    return context


@pytest.fixture
def blank_pictures(blank):
    """For tests that do not look at pictures: those that do draw every one of them."""
    with blank():
        yield


@pytest.fixture
def ctrl_c():
    """Ctrl-C as in a terminal, also where the run began with it ignored (nohup, `make test &`)."""
    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, previous)
