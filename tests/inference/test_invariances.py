"""What must not matter does not: units, order of rows and subjects, labels, padding, neighbours."""

import jax
import numpy as np
import pandas as pd
import pytest

import avem
from avem.inference.methods.anchored import anchored_pass
from tests.panels import random_params

K3 = {
    "initial": np.ones(3) / 3,
    "transition": np.full((3, 3), 0.04) + 0.88 * np.eye(3),
    "coef": np.array([[[-2.0, 0.5]], [[0.0, -0.5]], [[2.5, 0.0]]]),
    "variance": np.array([[0.5], [1.0], [0.7]]),
    "effect_covariance": np.diag([0.4, 0.1]),
}
FORMULA = "y ~ x + (1 + x | who)"


def panel(seed=0, n=12, n_times=30):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {"who": np.repeat([f"s{i}" for i in range(n)], n_times), "t": np.tile(range(n_times), n)}
    )
    frame["x"] = rng.standard_normal(len(frame))
    model = avem.MixedHMM(FORMULA, 3)
    frame = model.simulate(K3, data=frame, time="t", seed=seed).frame
    frame.loc[rng.choice(len(frame), 30, replace=False), "y"] = np.nan
    return frame


@pytest.fixture(scope="module")
def frame():
    return panel()


@pytest.fixture(scope="module")
def fit(frame):
    return avem.MixedHMM(FORMULA, 3).fit(frame, time="t", n_starts=4)


def assert_same(a, b, scale=1.0, rtol=1e-4):
    np.testing.assert_allclose(
        b.params["coef"], a.params["coef"] * scale, rtol=rtol, atol=1e-4 * scale
    )
    np.testing.assert_allclose(b.params["variance"], a.params["variance"] * scale**2, rtol=rtol)
    np.testing.assert_allclose(b.params["transition"], a.params["transition"], atol=1e-4)


def test_recovers_the_truth_and_the_start_does_not(fit, frame):
    error = np.abs(fit.params["coef"] - K3["coef"]).max()
    assert error < 0.5
    with pytest.warns(avem.AvemWarning, match="iteration limit"):
        poor = avem.MixedHMM(FORMULA, 3).fit(frame, time="t", plain=True, max_iter=1)
    assert np.abs(poor.params["coef"] - K3["coef"]).max() > 0.5


def test_units_do_not_matter(fit, frame):
    scaled = frame.assign(y=frame["y"] * 1e6, x=frame["x"] * 1e-3)
    other = avem.MixedHMM(FORMULA, 3).fit(scaled, time="t", n_starts=4)
    size = 1e6 * np.array([1.0, 1e3])
    np.testing.assert_allclose(other.params["coef"], fit.params["coef"] * size, rtol=1e-5)
    n_observed = int(frame["y"].notna().sum())
    np.testing.assert_allclose(other.bound, fit.bound - n_observed * np.log(1e6), rtol=1e-9)


def test_a_shift_of_the_outcome_moves_only_the_intercepts(fit, frame):
    other = avem.MixedHMM(FORMULA, 3).fit(frame.assign(y=frame["y"] + 1e5), time="t", n_starts=4)
    shift = np.array([1e5, 0.0])
    np.testing.assert_allclose(other.params["coef"] - shift, fit.params["coef"], atol=1e-4)
    np.testing.assert_allclose(other.bound, fit.bound, rtol=1e-9)


def test_row_order_does_not_matter_and_results_follow_the_rows(fit, frame):
    shuffled = frame.sample(frac=1.0, random_state=1)
    other = avem.MixedHMM(FORMULA, 3).fit(shuffled, time="t", n_starts=4)
    assert_same(fit, other)
    states = other.decode()
    assert (states.index == shuffled.index).all()
    pd.testing.assert_series_equal(states.sort_index(), fit.decode(), check_names=False)
    probabilities = other.state_probabilities().sort_index()
    np.testing.assert_allclose(probabilities, fit.state_probabilities(), atol=1e-4)


def test_states_come_out_in_order_and_labels_of_init_are_kept(fit, frame):
    intercepts = fit.params["coef"][:, 0, 0]
    assert (np.diff(intercepts) > 0).all()
    order = [2, 0, 1]
    turned = {
        "initial": fit.params["initial"][order],
        "transition": fit.params["transition"][np.ix_(order, order)],
        "coef": fit.params["coef"][order],
        "variance": fit.params["variance"][order],
        "effect_covariance": fit.params["effect_covariance"],
    }
    other = avem.MixedHMM(FORMULA, 3).fit(frame, time="t", init=turned)
    np.testing.assert_allclose(other.params["coef"], fit.params["coef"][order], atol=1e-4)


def test_starting_from_a_fit_stays_there(fit, frame):
    again = avem.MixedHMM(FORMULA, 3).fit(frame, time="t", init=fit)
    assert again.n_iter <= 8  # few nodes first, then as many as it takes
    assert_same(fit, again)


def test_tolerance_is_tight_enough(fit, frame):
    """Halving the default tolerance changes no estimate in its third significant digit."""
    tighter = avem.MixedHMM(FORMULA, 3).fit(frame, time="t", n_starts=4, tol=5e-7)
    for name, value in fit.params.items():
        np.testing.assert_allclose(tighter.params[name], value, rtol=5e-4, atol=1e-6)


def test_no_spread_between_subjects_is_the_ordinary_hmm(frame):
    """With Sigma held near 0, AVEM is plain EM for the model without effects."""
    held = avem.MixedHMM("y ~ x + (1 | who)", 2).fit(
        frame, time="t", fixed={"effect_covariance": [[1e-10]]}, n_starts=4
    )
    none = avem.MixedHMM("y ~ x", 2).fit(frame, subject="who", time="t", n_starts=4)
    np.testing.assert_allclose(held.params["coef"], none.params["coef"], atol=1e-4)
    np.testing.assert_allclose(held.bound, none.bound, rtol=1e-7)


def test_fixed_parameters_stay(frame):
    transition = [[0.9, 0.1], [0.2, 0.8]]
    fit = avem.MixedHMM("y ~ 1 + (1 | who)", 2).fit(
        frame, time="t", fixed={"transition": transition}, n_starts=2
    )
    np.testing.assert_allclose(fit.params["transition"], transition, rtol=1e-12)
    assert not np.allclose(fit.params["initial"], 0.5)


def test_splitting_into_many_chunks_changes_nothing(frame, monkeypatch):
    model = avem.MixedHMM(FORMULA, 3)
    start = random_params(np.random.default_rng(0), 3, 1, 2, 2)
    options = {"time": "t", "init": start, "max_iter": 5, "plain": True}
    with pytest.warns(avem.AvemWarning, match="iteration limit"):
        one = model.fit(frame, **options)
    monkeypatch.setattr("avem.models.encoded._LANES", (3, 3))
    with pytest.warns(avem.AvemWarning, match="iteration limit"):
        many = model.fit(frame, **options)
    assert len(many._own_data.chunks) == 4
    np.testing.assert_allclose(many.effects_mean, one.effects_mean, rtol=1e-9)
    np.testing.assert_allclose(many.bound, one.bound, rtol=1e-12)
    np.testing.assert_array_equal(many.decode(), one.decode())


def test_the_same_shape_is_compiled_once(frame):
    model = avem.MixedHMM(FORMULA, 3)
    model.fit(frame, time="t", n_starts=1, refine=None)
    before = anchored_pass.n_compiled()
    other = panel(seed=9)
    model.fit(other, time="t", n_starts=2, seed=4, refine=None)
    assert anchored_pass.n_compiled() == before


@pytest.mark.parametrize("flag", [False, True])
def test_the_users_own_precision_setting_does_not_matter(fit, frame, flag):
    with jax.enable_x64(flag):
        other = avem.MixedHMM(FORMULA, 3).fit(frame, time="t", n_starts=4)
        assert jax.numpy.zeros(1).dtype == (np.float64 if flag else np.float32)
    np.testing.assert_allclose(other.bound, fit.bound, rtol=1e-12)


@pytest.mark.usefixtures("own_shapes")
@pytest.mark.parametrize(("name", "exact"), [("_round_up_times", True), ("_round_up", False)])
def test_padding_changes_nothing(frame, monkeypatch, name, exact):
    """More padded times: not one bit. More padded lanes and subjects: nothing beyond rounding."""
    model = avem.MixedHMM(FORMULA, 3)
    start = random_params(np.random.default_rng(0), 3, 1, 2, 2)
    options = {"time": "t", "init": start, "max_iter": 1, "plain": True}
    with pytest.warns(avem.AvemWarning, match="iteration limit"):
        one = model.fit(frame, **options)
    shape = one._own_data.chunks[0].y.shape
    usual = getattr(avem.data.layout, name)
    monkeypatch.setattr(avem.data.layout, name, lambda *sizes: usual(*sizes) + 24)
    with pytest.warns(avem.AvemWarning, match="iteration limit"):
        padded = model.fit(frame, **options)
    assert padded._own_data.chunks[0].y.shape != shape
    for name in ("effects_mean", "effects_cov", "bound_history", "loglik_history"):
        a, b = getattr(one, name), getattr(padded, name)
        if exact:
            np.testing.assert_array_equal(a, b)
        else:
            np.testing.assert_allclose(a, b, rtol=1e-12)


def test_a_covariate_on_the_first_state_that_does_nothing_changes_nothing():
    """The same pass by two routes; one of them was once compiled into something else."""
    diary = avem.load_affect()
    bounds = []
    for initial in ("~ 1", "~ stress"):
        hmm = avem.MixedHMM("valence ~ 1 + (1 | person)", 2, initial=initial)
        with pytest.warns(avem.AvemWarning, match="iteration limit"):
            fit = hmm.fit(diary, time="beep", sequence="day", plain=True, max_iter=2)
        bounds.append(fit.bound_history)
    # Both start from equal chances; then the covariate may only help.
    np.testing.assert_allclose(bounds[1][0], bounds[0][0], rtol=1e-12)
    assert bounds[0][1] <= bounds[1][1] < bounds[0][1] + 10
