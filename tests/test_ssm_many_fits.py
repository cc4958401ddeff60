"""What fits a state-space model many times: selection, cross-validation, the bootstrap."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import avem
from tests.ssm_panels import ONE, dense_loglik, one, sequences, two, without_effects

# Subjects alike: the likelihood is a joint normal density, written down in NumPy alone.
ALIKE = one(random="none")
QUICK = {"time": "time", "n_starts": 1, "tol": 1e-3}
NAMES = ["y", "z"]


@pytest.fixture(scope="module")
def frame():
    return ALIKE.simulate(without_effects(ONE), n_subjects=8, n_times=30, seed=3).frame


@pytest.fixture(scope="module")
def selection(frame):
    return avem.select(ALIKE, frame, latent=[2, 1, 3], **QUICK)


@pytest.fixture(scope="module")
def differing():
    return one().fit(one().simulate(ONE, n_subjects=8, n_times=20, seed=1).frame, **QUICK)


def exact(frame, params):
    """(subjects,) log likelihoods."""
    return np.array([dense_loglik(y, params) for y in sequences(frame, NAMES)])


# --- numbers of latent states -------------------------------------------------------------------


def test_the_one_latent_state_that_there_is_is_found(selection, frame):
    assert selection.n_latent == 1
    assert selection.criteria == ["aic", "bic"]
    assert selection.best is selection.fits[1]
    table = selection.table.set_index("n_latent")
    assert table["loglik"].idxmax() == 2  # the likelihood alone would have taken the largest
    for q in (1, 2):
        row, fit = table.loc[q], selection.fits[q]
        # Dynamics, loadings, intercepts, noise, mean and covariance of the first states.
        n_params = q * q + 2 * q - q * (q - 1) // 2 + 2 + 2 + q + q * (q + 1) // 2
        assert row["n_params"] == n_params
        assert row["loglik"] == pytest.approx(exact(frame, fit.params).sum(), abs=1e-6)
        assert row["bic"] == pytest.approx(np.log(8) * n_params - 2 * row["loglik"])


def test_words_and_picture_speak_of_latent_states(selection):
    words = repr(selection)
    assert "Best by BIC: 1 latent state; next is 2," in words
    assert "3 latent states: n_latent is 3, with 2 outcome(s)" in words
    figure = selection.plot()
    assert [ax.get_xlabel() for ax in figure.axes] == ["number of latent states"] * 2
    assert figure.get_suptitle() == "1 latent state by BIC"


def test_each_model_has_its_own_argument(frame):
    with pytest.raises(avem.ModelError, match=r"states= is not for a MixedSSM: use latent=\[1\]"):
        avem.select(ALIKE, frame, [1], time="time")
    hmm = avem.MixedHMM("y ~ 1", 2)
    with pytest.raises(avem.ModelError, match=r"latent= is not for a MixedHMM: use states=\[1\]"):
        avem.select(hmm, frame, latent=[1], subject="id")
    with pytest.raises(avem.ModelError, match="available: aic, bic, held_out"):
        avem.select(ALIKE, frame, latent=[1], criterion="icl", time="time")
    with pytest.raises(avem.ModelError, match="latent is 3; several numbers"):
        avem.select(ALIKE, frame, latent=3, time="time")


def test_a_model_of_another_size_is_otherwise_the_same():
    model = two(random="loading", effect_covariance="diagonal", state="~ 0 + x")
    other = model.with_latent(1)
    assert other.spec == model.spec._replace(n_latent=1)
    assert avem.MixedSSM.from_spec(model.spec).spec == model.spec
    with pytest.raises(avem.ModelError, match="n_latent is 4"):
        model.with_latent(4)


# --- cross-validation ---------------------------------------------------------------------------


def test_held_out_subjects_are_scored_as_new_ones(frame):
    done = avem.cross_validate(ALIKE, frame, folds=2, **QUICK)
    assert done.by_subject["n_values"].tolist() == [60] * 8
    # Each subject's score is its density under a fit to the others of the other fold.
    held = done.by_subject["loglik"].to_numpy()
    order = np.random.default_rng(0).permutation(8)
    for fold in range(2):
        new = np.isin(np.arange(8), order[np.arange(8) % 2 == fold])
        out = np.isin(frame["id"], np.flatnonzero(new))
        fit = ALIKE.fit(frame[~out], **QUICK)
        np.testing.assert_allclose(held[new], exact(frame, fit.params)[new], rtol=1e-6)
        # Two outcomes in a row are one row, as in `score`, and two values.
        assert done.table["per_row"][fold] == pytest.approx(fit.score(frame[out]), rel=1e-9)
        assert done.table["per_row"][fold] == 2 * done.table["per_value"][fold]
    assert "per held-out row, which is what fit.score gives" in repr(done)


def test_held_out_stretches_are_scored_by_their_predictive_density(frame):
    done = avem.cross_validate(ALIKE, frame, folds=3, by="time", **QUICK)
    total = np.zeros(8)
    for fold in range(3):
        others = frame.copy()
        others.loc[others["time"] // 10 == fold, NAMES] = np.nan
        params = ALIKE.fit(others, **QUICK).params
        total += exact(frame, params) - exact(others, params)
    np.testing.assert_allclose(done.by_subject["loglik"], total, rtol=1e-5)


@pytest.mark.parametrize(
    "model",
    [
        avem.MixedSSM("y + z ~ 1 + lag(y)", 1, subject="id"),
        avem.MixedSSM(["y", "z"], 1, subject="id", state="~ 0 + lag(z)"),
    ],
)
def test_models_that_look_back_are_not_cut_in_time(frame, model):
    with pytest.raises(avem.ModelError, match="Use by='subjects'"):
        avem.cross_validate(model, frame, by="time", **QUICK)


# --- bootstrap ----------------------------------------------------------------------------------


@pytest.mark.slow
def test_spread_of_replicates_is_that_of_the_information(differing, tmp_path):
    n, path = 40, tmp_path / "boot.jsonl"
    found = avem.bootstrap(differing, n, path=path)
    table, errors = found.table(), differing.standard_errors()
    pd.testing.assert_frame_equal(table[differing.table().columns], differing.table())
    assert "n_latent=1, 40 replicates" in repr(found)
    well_known = ["transition_mean", "loading_mean", "coef", "noise"]
    rows = table["parameter"].isin(well_known).to_numpy()
    ratio = (table["se"] / errors["se"])[rows]
    # A standard deviation from 40 draws is known to 11 %, and curvature is not all there is to it.
    assert ((ratio > 0.6) & (ratio < 1.7)).all(), ratio.tolist()
    # Finished replicates are taken from the file, and a draw never depends on how many there are.
    again = avem.bootstrap(differing, 3, path=path)
    for one_, other in zip(again.done, found.done, strict=False):
        assert one_.bound == other.bound


def test_replicates_leave_the_boundary_and_keep_what_is_held(differing):
    none = np.array([[1e-9]])
    flat = replace(differing, params={**differing.params, "transition_covariance": none})
    found = avem.bootstrap(flat, 6).replicates["transition_covariance[0,0]"]
    assert (found > 1e-6).any()
    fixed = replace(differing, info=replace(differing.info, fixed=("noise",)))
    held = avem.bootstrap(fixed, 2)
    for replicate in held.done:
        np.testing.assert_allclose(replicate.params["noise"], differing.params["noise"])
    table = held.table()
    assert (table.loc[table["parameter"] == "noise", "note"] == "held").all()


def test_another_fit_s_file_is_refused(differing, tmp_path):
    path = tmp_path / "boot.jsonl"
    avem.bootstrap(differing, 2, path=path)
    other = replace(differing, info=replace(differing.info, max_radius=0.9))
    with pytest.raises(avem.AvemError, match="with 1 states on 160 rows"):
        avem.bootstrap(other, 2, path=path)
