"""What a callback is told, and that it can end a fit."""

import numpy as np
import pandas as pd
import pytest

import avem


@pytest.fixture(scope="module")
def made():
    model = avem.MixedHMM("y ~ 1 + (1 | subject)", 2)
    params = {
        "initial": np.full(2, 0.5),
        "transition": np.array([[0.9, 0.1], [0.1, 0.9]]),
        "coef": np.array([[[-1.5]], [[1.5]]]),
        "variance": np.full((2, 1), 0.3),
        "effect_covariance": np.array([[0.3]]),
    }
    return model, model.simulate(params, 8, 60, seed=1).frame


def test_every_iteration_is_told(made):
    model, frame = made
    told = []
    # Two runs, the first of which only comes near: they count as one.
    fit = model.fit(frame, time="time", refine="auto", callback=told.append)
    assert not fit.info.refined
    assert [each.number for each in told] == list(range(1, told[-1].number + 1))
    assert {each.stage for each in told} == {"avem"}
    # In the user's units: as the fit itself gives them.
    assert told[-1].bound == pytest.approx(fit.bound, rel=1e-6)
    for name, value in fit.params.items():
        np.testing.assert_allclose(np.sort(told[-1].params[name], None), np.sort(value, None), 1e-3)
    assert told[-1].change < 1e-6


def test_returning_true_ends_the_fit(made):
    model, frame = made
    seen = []

    def enough(now):
        seen.append(now)
        return now.number == 3

    with pytest.warns(avem.AvemWarning, match="Stopped by the user"):
        fit = model.fit(frame, time="time", plain=True, callback=enough)
    assert len(seen) == fit.n_iter == 3
    assert fit.stop is avem.Stop.INTERRUPTED
    for name, value in fit.params.items():
        np.testing.assert_array_equal(np.sort(seen[-1].params[name], None), np.sort(value, None))


def test_refinement_is_a_stage_of_its_own(made):
    model, frame = made
    stages = []
    model.fit(
        frame,
        time="time",
        refine="adaptive",
        callback=lambda now: stages.append(now.stage),
    )
    assert list(dict.fromkeys(stages)) == ["refine"]


@pytest.mark.slow
def test_state_space_models_have_it_too():
    model = avem.MixedSSM(["a", "b"], n_latent=1, subject="subject", random="loading")
    rng = np.random.default_rng(3)
    states = rng.normal(size=(6, 20)).cumsum(1) * 0.3
    rows = [
        {"subject": i, "time": t, "a": x + rng.normal(), "b": 0.5 * x + rng.normal()}
        for i, series in enumerate(states)
        for t, x in enumerate(series)
    ]
    told = []
    with pytest.warns(avem.AvemWarning, match="iteration limit"):
        model.fit(pd.DataFrame(rows), time="time", refine=None, max_iter=4, callback=told.append)
    assert [each.number for each in told] == list(range(1, 5))
    assert set(told[-1].params) >= {"transition_mean", "loading_mean"}


def test_what_cannot_be_called_is_said(made):
    model, frame = made
    with pytest.raises(avem.ModelError, match="callback is 3; a function"):
        model.fit(frame, time="time", callback=3)
