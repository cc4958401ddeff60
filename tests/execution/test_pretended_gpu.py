"""A default fit on the way it takes on a GPU, with the definitions of kernels on the processor.

Subjects' values are JAX's, small work on them is compiled, and sums are added up where they are.
"""

import logging
import re
from collections import Counter
from contextlib import contextmanager
from types import SimpleNamespace

import numpy as np
import pytest

import avem
from avem.execution.dataset import Wanted
from avem.execution.threads import Threads
from avem.inference.on_shard import Setting
from avem.numerics import devices
from tools.pretended_gpu import pretended_gpu

MODEL = avem.MixedHMM("y ~ 1 + (1 | subject)", n_states=2)
TRUTH = {
    "initial": [0.5, 0.5],
    "transition": [[0.9, 0.1], [0.1, 0.9]],
    "coef": [[[-1.0]], [[1.0]]],
    "variance": [[1.0], [1.0]],
    "effect_covariance": [[0.3]],
}
_COMPILING = re.compile(r"Compiling (\S+) with global shapes and types (.*?)\. Argument")
_SHOW_LESS = ("jit(_unpacked)", "jit(first_ones)", "jit(_nothing)")
"""Programs that differ in more than what they read."""


@pytest.fixture
def pretended(monkeypatch):
    """The processor is taken for a GPU, on which there are several chunks."""
    monkeypatch.setenv("AVEM_NATIVE", "0")
    # The price of code beside work that little is a small one.
    with pretended_gpu(n_lanes=128, speed=0.5):
        yield


@contextmanager
def compilations():
    """(name, shapes) of every program that is compiled meanwhile."""
    found = []

    class Heard(logging.Handler):
        def emit(self, record):
            match = _COMPILING.match(record.getMessage())
            if match:
                found.append(match.groups())

    logger, handler = logging.getLogger("jax._src.interpreters.pxla"), Heard()
    before = logger.level, logger.propagate
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    logger.propagate = False
    try:
        yield found
    finally:
        logger.removeHandler(handler)
        logger.level, logger.propagate = before


@pytest.mark.slow
def test_a_default_fit_is_the_same_and_nothing_is_compiled_twice(request):
    frame = MODEL.simulate(TRUTH, n_subjects=300, n_times=16, seed=1).frame
    wanted = MODEL.fit(frame, time="time")
    request.getfixturevalue("pretended")
    with compilations() as programs:
        found = MODEL.fit(frame, time="time")
    assert found.bound == pytest.approx(wanted.bound, rel=1e-6)
    for name, value in wanted.params.items():
        np.testing.assert_allclose(found.params[name], value, atol=1e-4)
    assert len(programs) > 30
    # As it would be if some of the arrays were bound to the device and others were not.
    times = Counter(program for program in programs if program[0] not in _SHOW_LESS)
    assert [program for program, n in times.items() if n > 1] == []


def test_what_is_sent_is_not_bound_to_where_it_is(pretended):
    """Neither the driver's numbers nor chunks that are sent for every pass."""
    setting = Setting(None, None, {}, "scaled", ())  # type: ignore[arg-type]
    shard = SimpleNamespace(source=(np.zeros(3),))
    cpu, seen = devices._cpu(), []

    def function(chunk, own):
        seen.extend([chunk[0].committed, setting.sent("shift", np.ones(2)).committed])
        return own, None

    handles = (Threads().place([shard], [1.0])[0],)
    Threads(cpu).run(function, [shard], [handles], (), Wanted.EACH)
    assert seen == [False, False]
