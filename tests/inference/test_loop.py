"""The loop: acceleration, endings, interruption, progress."""

import signal
import threading
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

import avem
from avem.execution.dataset import PerShard
from avem.inference.accelerate import Anderson
from avem.inference.e_steps import State
from avem.inference.em import EM
from avem.inference.progress import Watch
from tests.chosen import chosen

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

    one = SimpleNamespace(n_subjects=1)
    anderson = Anderson(one, anchors=False)
    accelerated, plain = State({"x": np.zeros(5)}, PerShard(())), np.zeros(5)
    for _ in range(8):
        after = replace(accelerated, theta={"x": image(accelerated.theta["x"])})
        accelerated = anderson.propose(accelerated, after) or after
        plain = image(plain)
    assert np.abs(accelerated.theta["x"] - solution).max() < 1e-6
    assert np.abs(plain - solution).max() > 0.1


def test_acceleration_and_recentring_save_iterations(frame):
    fast = MODEL.fit(frame, time="time")
    slow = MODEL.fit(frame, time="time", plain=True, init=fast_start(), tol=1e-10, max_iter=2000)
    assert fast.bound >= slow.bound - 1e-3
    assert fast.n_iter < slow.n_iter / 2


def fast_start():
    return {**PARAMS, "coef": [[[-0.5]], [[0.8]]]}


def test_out_of_steps_is_said(frame):
    with pytest.warns(avem.AvemWarning, match="Raise max_iter"):
        fit = MODEL.fit(frame, time="time", init=fast_start(), max_iter=2)
    assert fit.stop is avem.Stop.OUT_OF_STEPS
    assert fit.n_iter == 2


@pytest.mark.usefixtures("ctrl_c")
@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize("given", [None, fast_start()])
def test_ctrl_c_keeps_the_best_so_far(frame, monkeypatch, plain, given):
    """The signal arrives in the middle of an iteration, not the first, which finishes first."""
    finish, calls = EM._finish, []

    def interrupted(self, found):
        calls.append(found)
        if len(calls) == 6:
            signal.raise_signal(signal.SIGINT)
        return finish(self, found)

    monkeypatch.setattr(EM, "_finish", interrupted)
    handler = signal.getsignal(signal.SIGINT)
    with pytest.warns(avem.AvemWarning, match="Stopped by the user"):
        fit = MODEL.fit(frame, time="time", init=given, plain=plain, tol=0.0)
    assert fit.stop is avem.Stop.INTERRUPTED
    assert np.isfinite(fit.bound)
    assert len(calls) <= 8
    assert signal.getsignal(signal.SIGINT) is handler
    assert len(fit.decode()) == len(frame)


@pytest.mark.usefixtures("ctrl_c")
def test_a_second_ctrl_c_stops_at_once():
    with Watch(False, 10) as watch:
        watch(1, -1.0, 0.1, {})
        signal.raise_signal(signal.SIGINT)
        assert watch.interrupted
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


@pytest.mark.usefixtures("ctrl_c")
def test_before_the_first_iteration_ctrl_c_stops_at_once(frame, monkeypatch):
    """There is nothing to keep, and what is being compiled may take long."""
    monkeypatch.setattr(EM, "step", lambda *_, **__: signal.raise_signal(signal.SIGINT))
    handler = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        MODEL.fit(frame, time="time", init=fast_start())
    assert signal.getsignal(signal.SIGINT) is handler


def test_where_ctrl_c_is_ignored_it_stays_so():
    previous = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with Watch(False, 10) as watch:
            signal.raise_signal(signal.SIGINT)
            assert not watch.interrupted
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, previous)


def test_a_fit_in_another_thread_works(frame):
    fits = []
    thread = threading.Thread(target=lambda: fits.append(MODEL.fit(frame, time="time", n_starts=1)))
    thread.start()
    thread.join()
    assert fits[0].stop is avem.Stop.CONVERGED


def test_progress_is_shown_on_request_and_only_on_long_fits(capsys, monkeypatch):
    with Watch(True, 10) as watch:
        watch(1, -1234.5, 0.1, {})
    assert capsys.readouterr().err == ""  # not two seconds yet
    monkeypatch.setattr("avem.inference.display.QUIET_SECONDS", 0.0)
    with Watch(True, 10) as watch:
        watch.stage("start 2/8")
        watch(3, -1234.5, 0.1, {})
    shown = capsys.readouterr().err
    assert "start 2/8" in shown
    assert "-1234.5" in shown
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    with Watch(None, 10) as watch:
        watch(3, -1234.5, 0.1, {})
    assert "it/s" in capsys.readouterr().err
    with Watch(False, 10) as watch:
        watch(3, -1234.5, 0.1, {})
    assert capsys.readouterr().err == ""


def test_starts_are_reported(frame):
    fit = MODEL.fit(frame, time="time", n_starts=3)
    assert len(fit.info.start_gaps) == 3
    assert 1 <= fit.info.starts_agreeing <= 3
    assert "of 3 starts found the same solution" in str(fit.summary(errors=False))
    assert min(fit.info.start_gaps) == 0.0


def test_large_panels_compare_starts_on_a_part_of_the_data(frame, monkeypatch):
    monkeypatch.setattr("avem.models.encoded._LANES", (8, 8))
    monkeypatch.setattr("avem.inference.gate.START_CELLS", 200)
    part = MODEL.fit(frame, time="time")
    whole = MODEL.fit(frame, time="time", init=part)
    assert len(part.bound_history) < 60  # the starts' history, on fewer rows, is not in front
    assert part.bound_history[0] < part.bound + 1
    np.testing.assert_allclose(part.bound, whole.bound, atol=1e-3)


@pytest.mark.parametrize("seed", chosen(range(4), (0,)))
def test_overlapping_states_converge(seed):
    """There the solution lies a little below the highest bound that is passed on the way."""
    close = {**PARAMS, "coef": [[[-0.6]], [[0.6]]]}
    frame = MODEL.simulate(close, n_subjects=40, n_times=40, seed=seed).frame
    fit = MODEL.fit(frame, time="time")
    assert fit.stop is avem.Stop.CONVERGED
    again = MODEL.fit(frame, time="time", init=fit)
    np.testing.assert_allclose(again.params["coef"], fit.params["coef"], atol=1e-3)
    assert fit.bound > max(fit.bound_history) - 0.5


def test_effects_without_a_fixed_term_keep_their_mean():
    """The slopes' mean has no fixed part to go to; the intercepts' mean must not take it along."""
    rng = np.random.default_rng(0)
    n, n_times = 60, 30
    x = rng.standard_normal((n, n_times))
    slope = 2 + rng.standard_normal((n, 1))
    own = 0.8 * (slope - 2) + 0.5 * rng.standard_normal((n, 1))
    y = own + slope * x + rng.standard_normal((n, n_times))
    frame = pd.DataFrame({"who": np.repeat(np.arange(n), n_times), "x": x.ravel(), "y": y.ravel()})
    model = avem.MixedHMM("y ~ 1 + (1 + x | who)", 1)
    fit = model.fit(frame)
    start = {**fit.params, "coef": fit.params["coef"] + 0.3}
    plain = model.fit(frame, plain=True, init=start, tol=1e-12, max_iter=5000)
    np.testing.assert_allclose(fit.bound, plain.bound, atol=1e-3)
    np.testing.assert_allclose(fit.params["coef"], plain.params["coef"], atol=0.02)


@pytest.mark.parametrize(
    "formula", ["y ~ 1", pytest.param("y ~ 1 + (1 | subject)", marks=pytest.mark.slow)]
)
def test_left_to_right_chains(formula):
    """Unreachable states overflow the scaled backward pass; the log form takes over."""
    params = {
        "initial": [1.0, 0.0, 0.0],
        "transition": [[0.95, 0.05, 0.0], [0.0, 0.95, 0.05], [0.0, 0.0, 1.0]],
        "coef": [[[-6.0]], [[0.0]], [[6.0]]],
        "variance": [[0.5], [0.5], [0.5]],
        "effect_covariance": [[0.3]],
    }
    truth = avem.MixedHMM("y ~ 1 + (1 | subject)", 3).simulate(params, 15, 300, seed=1)
    held = {name: params[name] for name in ("initial", "transition")}
    fit = avem.MixedHMM(formula, 3).fit(truth.frame, subject="subject", time="time", fixed=held)
    assert np.isfinite(fit.state_probabilities()).all(axis=None)
    assert (fit.decode() == truth.states).mean() > 0.98
    np.testing.assert_array_equal(fit.params["transition"], held["transition"])


FIXED = {
    "initial": [0.3, 0.7],
    "transition": [[0.6, 0.4], [0.1, 0.9]],
    "coef": [[[0.9]], [[-1.1]]],
    "variance": [[1.4], [0.6]],
    "effect_covariance": [[0.25]],
}


@pytest.mark.parametrize("name", FIXED)
def test_every_parameter_can_be_held(frame, name):
    fit = MODEL.fit(frame, time="time", fixed={name: FIXED[name]}, n_starts=2)
    np.testing.assert_allclose(fit.params[name], FIXED[name], rtol=1e-9)
    free = next(other for other in ("coef", "transition") if other != name)
    assert not np.allclose(fit.params[free], FIXED[free], atol=1e-3)


def test_a_held_covariance_must_have_the_models_structure(frame):
    model = avem.MixedHMM("y + z ~ 1 + (1 | subject)", 2, effect_covariance="diagonal")
    held = {"effect_covariance": [[1.0, 0.5], [0.5, 1.0]]}
    with pytest.raises(avem.ModelError, match="is not diagonal"):
        model.fit(frame.assign(z=frame["y"] ** 2), time="time", fixed=held)


def test_an_earlier_fit_of_another_model_is_no_start(frame):
    fit = MODEL.fit(frame, time="time", n_starts=1)
    other = avem.MixedHMM("y ~ 0 + time + (0 + time | subject)", 2)
    with pytest.raises(avem.ModelError, match="other parameters"):
        other.fit(frame, init=fit)


def test_outcomes_far_from_zero_without_an_intercept(frame):
    """Floors are relative to how much an outcome varies, not to where it lies."""
    far = frame.assign(y=frame["y"] + 1e4, one=1.0)
    fit = avem.MixedHMM("y ~ 0 + one + (1 | subject)", 2).fit(far, time="time")
    near = MODEL.fit(frame, time="time")
    np.testing.assert_allclose(fit.params["variance"], near.params["variance"], rtol=1e-3)


def test_a_wild_value_does_not_flatten_the_rest(frame):
    wild = frame.copy()
    wild.loc[7, "y"] = 999.0  # a missing code that nobody declared
    fit = avem.MixedHMM("y ~ 1 + (1 | subject)", 3).fit(wild, time="time")
    # With an effect in its mean, one value makes no likelihood without bound: it is a state's own.
    assert any("missing codes and outliers" in note for note in fit.info.notes)
    assert fit.degenerate == ("state 2: hardly a row",)
    near = MODEL.fit(frame, time="time")
    np.testing.assert_allclose(fit.params["coef"][:2], near.params["coef"], atol=0.1)
    np.testing.assert_allclose(fit.params["variance"][:2], near.params["variance"], rtol=0.1)


def test_the_collapsed_state_is_named_as_it_is_reported():
    rng = np.random.default_rng(0)
    state = rng.integers(3, size=(20, 6)).repeat(10, axis=1)
    y = np.where(
        state == 2, 10.0, np.array([-5.0, 0.0, 0.0])[state] + rng.standard_normal(state.shape)
    )
    with pytest.warns(avem.AvemWarning, match=r"variance of state 2, y1 fell"):
        fit = avem.MixedHMM("y1 ~ 1", 3).fit(avem.Panel.from_arrays(list(y)))
    assert fit.params["variance"][2, 0] < 1e-3
    assert fit.params["variance"][:2].min() > 0.5


def test_effects_settle_when_all_parameters_are_held(frame):
    free = MODEL.fit(frame, time="time", refine=None)
    held = MODEL.fit(frame, time="time", fixed=free.params, refine=None)
    np.testing.assert_allclose(held.bound, free.bound, atol=1e-5)
    np.testing.assert_allclose(held.effects_mean, free.effects_mean, atol=1e-3)


def test_tiny_units_in_the_papers_iteration(frame):
    small = frame.assign(y=frame["y"] * 1e-4)
    start = {name: np.array(value) for name, value in PARAMS.items()}
    scaled = {**start, "coef": start["coef"] * 1e-4, "variance": start["variance"] * 1e-8}
    scaled["effect_covariance"] = start["effect_covariance"] * 1e-8
    with pytest.warns(avem.AvemWarning, match="iteration limit"):
        one = MODEL.fit(frame, time="time", plain=True, init=start, tol=0.0, max_iter=9)
    with pytest.warns(avem.AvemWarning, match="iteration limit"):
        two = MODEL.fit(small, time="time", plain=True, init=scaled, tol=0.0, max_iter=9)
    np.testing.assert_allclose(two.params["variance"], one.params["variance"] * 1e-8, rtol=1e-8)
