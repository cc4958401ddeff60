"""Where a panel is computed, and how much of it at a time."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

import avem
from avem.execution.threads import Threads
from avem.models.encoded import Placement
from avem.numerics import devices

MODEL = avem.MixedHMM("y ~ 1 + (1 | subject)", 2)
TRUTH = {
    "initial": [0.5, 0.5],
    "transition": [[0.9, 0.1], [0.2, 0.8]],
    "coef": [[[-1.5]], [[1.5]]],
    "variance": [[1.0], [1.0]],
    "effect_covariance": [[0.3]],
}


def gpu(memory):
    """A device that says it is one."""
    return SimpleNamespace(platform="gpu", memory_stats=lambda: {"bytes_limit": memory})


@pytest.fixture
def with_gpu(monkeypatch):
    """A machine that has one, as far as choosing goes."""
    monkeypatch.delenv("AVEM_DEVICE", raising=False)
    found = gpu(8 << 30)
    monkeypatch.setattr(devices, "_gpus", lambda: [found])
    return found


def panel(n_subjects, n_times):
    return SimpleNamespace(
        n_rows=n_subjects * n_times, n_lanes=n_subjects, lane_length=np.full(n_subjects, n_times)
    )


def test_a_large_panel_goes_to_a_gpu_and_a_small_one_does_not(with_gpu):
    assert devices.device_for(10**8) is with_gpu
    assert devices.device_for(1000).platform == "cpu"


def test_a_wish_counts_more_than_size(with_gpu, monkeypatch):
    with devices.wanted("gpu"):
        assert devices.device_for(10) is with_gpu
    with devices.wanted("cpu"):
        assert devices.device_for(10**8).platform == "cpu"
    monkeypatch.setenv("AVEM_DEVICE", "cpu")
    assert devices.device_for(10**8).platform == "cpu"


def test_wishes_that_cannot_be_met(monkeypatch):
    monkeypatch.setattr(devices, "_gpus", list)
    with pytest.raises(avem.ModelError, match="JAX finds none here"), devices.wanted("gpu"):
        pass
    with pytest.raises(avem.ModelError, match="available: cpu, gpu"), devices.wanted("tpu"):
        pass


@pytest.mark.parametrize("memory", [1 << 30, 4 << 30, 64 << 30])
@pytest.mark.parametrize("n_subjects", [50_000, 1_000_000])
def test_what_is_laid_out_at_a_time_fits(with_gpu, monkeypatch, memory, n_subjects):
    monkeypatch.setattr(devices, "_gpus", lambda: [gpu(memory)])
    n_times, n_states, n_columns = 200, 3, 4
    with devices.wanted("gpu"):
        place = Placement.of(panel(n_subjects, n_times), n_states, n_columns, one_per_core=False)
    own = 8 * n_columns * n_times
    at_nodes = 8 * n_states * n_times * 32 * place.n_lanes
    assert own * place.n_lanes + at_nodes < memory or place.n_lanes == 1024
    assert place.stays == (own * n_subjects < 0.75 * memory / 2)


def test_a_limit_of_ones_own(with_gpu, monkeypatch):
    monkeypatch.setenv("AVEM_DEVICE_MEMORY", str(1 << 20))
    assert devices.room(with_gpu) == 1 << 20


def test_chunks_that_are_sent_each_time_give_the_same(monkeypatch):
    monkeypatch.setattr("avem.models.encoded._LANES", (16, 16))
    frame = MODEL.simulate(TRUTH, n_subjects=40, n_times=20, seed=1).frame
    wanted = MODEL.fit(frame, time="time", refine=None, n_starts=1)
    cpu = devices.device_for(1)
    monkeypatch.setattr(Placement, "executor", property(lambda self: Threads(cpu)))
    monkeypatch.setattr(Placement, "chunks", lambda self, made: tuple(made))
    found = MODEL.fit(frame, time="time", refine=None, n_starts=1)
    assert len(found._own_data.chunks) > 1
    assert found.bound == wanted.bound
    for name, value in wanted.params.items():
        np.testing.assert_array_equal(found.params[name], value)


def test_what_a_fit_took():
    frame = MODEL.simulate(TRUTH, n_subjects=21, n_times=5, seed=1).frame
    first, again = (MODEL.fit(frame, time="time", refine=None, n_starts=1) for _ in range(2))
    assert 0.0 <= first.info.compile_seconds <= first.info.seconds
    assert again.info.compile_seconds == 0.0
    assert again.info.device_memory is None
    assert "GPU" not in str(again.summary())
    info = replace(first.info, device="gpu", compile_seconds=1.5, device_memory=2_500_000_000)
    shown = str(replace(first, info=info).summary())
    assert "s on a GPU, 1.50 s of them compiling, at most 2.50 GB of its memory." in shown
