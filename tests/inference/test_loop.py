"""The loop: acceleration, endings, interruption, progress."""

import signal
import threading

import numpy as np
import pytest

import avem
from avem.inference.accelerate import Anderson
from avem.inference.avem import AnchoredEM
from avem.inference.watch import Watch

PARAMS = {
    "initial": [0.5, 0.5],
    "transition": [[0.9, 0.1], [0.1, 0.9]],
    "coef": [[[-1.0]], [[1.0]]],
    "variance": [[1.0], [1.0]],
    "effect_covariance": [[0.5]],
}
MODEL = avem.MixedHMM("y ~ 1 + (1 | subject)", 2)


@pytest.fixture(scope="module")
def frame():
    return MODEL.simulate(PARAMS, n_subjects=20, n_times=30, seed=0).frame


def test_anderson_solves_a_linear_fixed_point_in_a_few_steps():
    rng = np.random.default_rng(0)
    basis = np.linalg.qr(rng.standard_normal((5, 5)))[0]
    matrix = basis @ np.diag([0.99, 0.9, 0.5, 0.2, 0.1]) @ basis.T
    solution = rng.standard_normal(5)

    def image(x):
        return solution + matrix @ (x - solution)

    accelerated = plain = np.zeros(5)
    anderson = Anderson(np.ones(5))
    for _ in range(8):
        accelerated = anderson.propose(accelerated, image(accelerated))
        plain = image(plain)
    assert np.abs(accelerated - solution).max() < 1e-6
    assert np.abs(plain - solution).max() > 0.1


def test_acceleration_and_recentring_save_iterations(frame):
    fast = MODEL.fit(frame, time="time")
    slow = MODEL.fit(frame, time="time", plain=True, init=fast_start(), tol=1e-10, max_iter=2000)
    assert fast.bound >= slow.bound - 1e-3
    assert fast.n_iter < slow.n_iter / 2


def fast_start():
    return {**PARAMS, "coef": [[[-0.5]], [[0.8]]]}


def test_out_of_steps_is_said(frame):
    with pytest.warns(avem.AvemWarning, match="raise max_iter"):
        fit = MODEL.fit(frame, time="time", init=fast_start(), max_iter=2)
    assert fit.stop is avem.Stop.OUT_OF_STEPS
    assert fit.n_iter == 2


@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize("given", [None, fast_start()])
def test_ctrl_c_keeps_the_best_so_far(frame, monkeypatch, plain, given):
    """The signal arrives in the middle of an iteration, which finishes first."""
    step, calls = AnchoredEM.step, []

    def interrupted_step(self, state):
        calls.append(state)
        if len(calls) == 3:
            signal.raise_signal(signal.SIGINT)
        return step(self, state)

    monkeypatch.setattr(AnchoredEM, "step", interrupted_step)
    handler = signal.getsignal(signal.SIGINT)
    with pytest.warns(avem.AvemWarning, match="Interrupted"):
        fit = MODEL.fit(frame, time="time", init=given, plain=plain, tol=0.0)
    assert fit.stop is avem.Stop.INTERRUPTED
    assert np.isfinite(fit.bound)
    assert len(calls) <= 4
    assert signal.getsignal(signal.SIGINT) is handler
    assert len(fit.decode()) == len(frame)


def test_a_second_ctrl_c_stops_at_once(frame, monkeypatch):
    def step(self, state):
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(AnchoredEM, "step", step)
    with pytest.raises(KeyboardInterrupt):
        MODEL.fit(frame, time="time", init=fast_start())


def test_a_fit_in_another_thread_works(frame):
    fits = []
    thread = threading.Thread(target=lambda: fits.append(MODEL.fit(frame, time="time", n_starts=1)))
    thread.start()
    thread.join()
    assert fits[0].stop is avem.Stop.CONVERGED


def test_progress_is_shown_on_request_and_only_on_long_fits(capsys, monkeypatch):
    with Watch(True, 10) as watch:
        watch(1, -1234.5, 0.1)
    assert capsys.readouterr().err == ""  # not two seconds yet
    monkeypatch.setattr("avem.inference.watch._QUIET_SECONDS", 0.0)
    with Watch(True, 10) as watch:
        watch.stage("start 2/8")
        watch(3, -1234.5, 0.1)
    shown = capsys.readouterr().err
    assert "start 2/8" in shown
    assert "-1234.5" in shown
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    with Watch(None, 10) as watch:
        watch(3, -1234.5, 0.1)
    assert "it/s" in capsys.readouterr().err
    with Watch(False, 10) as watch:
        watch(3, -1234.5, 0.1)
    assert capsys.readouterr().err == ""


def test_starts_are_reported(frame):
    fit = MODEL.fit(frame, time="time", n_starts=3)
    assert len(fit.info.start_bounds) == 3
    assert 1 <= fit.info.starts_agreeing <= 3
    assert "of 3 starts found the same solution" in str(fit.summary())
    assert max(fit.info.start_bounds) <= fit.bound + 1e-3


def test_large_panels_compare_starts_on_a_part_of_the_data(frame, monkeypatch):
    monkeypatch.setattr("avem.models.hmm_model._LANES_ON_CPU", 8)
    monkeypatch.setattr("avem.inference.fit_hmm._START_CELLS", 200)
    part = MODEL.fit(frame, time="time")
    whole = MODEL.fit(frame, time="time", init=part)
    assert part.info.start_bounds[0] > part.bound / 2  # a bound on fewer rows is nearer 0
    np.testing.assert_allclose(part.bound, whole.bound, atol=1e-3)
