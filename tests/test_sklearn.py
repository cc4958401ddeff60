"""The adapter for scikit-learn, with scikit-learn's own tools."""

import importlib
import inspect
import sys

import numpy as np
import polars as pl
import pytest

import avem
from avem.integrations.sklearn import HMMEstimator, SSMEstimator
from tests.ssm_panels import ONE, one

pytest.importorskip("sklearn")

from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, GroupKFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

FORMULA = "y ~ 1 + (1 | who)"
PARAMS = {
    "initial": [0.5, 0.5],
    "transition": [[0.9, 0.1], [0.1, 0.9]],
    "coef": [[[0.0]], [[5.0]]],
    "variance": [[1.0], [1.0]],
    "effect_covariance": [[0.3]],
}
QUICK = {"n_starts": 2, "refine": None}


@pytest.fixture(scope="module")
def frame():
    drawn = avem.MixedHMM(FORMULA, 2).simulate(PARAMS, n_subjects=8, n_times=30, seed=1).frame
    return drawn.sample(frac=1.0, random_state=0)


def estimator(**options):
    return HMMEstimator(FORMULA, time="time", **{"fit_options": QUICK, **options})


@pytest.fixture(scope="module")
def fitted(frame):
    return estimator().fit(frame)


def test_what_it_finds_is_what_avem_finds(frame, fitted):
    own = avem.MixedHMM(FORMULA, 2).fit(frame, time="time", **QUICK)
    np.testing.assert_array_equal(fitted.predict(frame), own.decode(frame).to_numpy())
    chances = own.state_probabilities(frame).to_numpy()
    np.testing.assert_array_equal(fitted.predict_proba(frame), chances)
    np.testing.assert_array_equal(fitted.transform(frame), chances)
    assert fitted.score(frame) == float(own.loglik(frame)) / len(frame)
    assert fitted.feature_names_in_.tolist() == list(frame)
    assert fitted.n_features_in_ == 3


def test_parameters_are_scikit_learns(fitted):
    other = clone(fitted)
    assert other.get_params() == fitted.get_params()
    assert not hasattr(other, "fit_")
    other.set_params(n_states=3, effect_covariance="isotropic")
    assert (other.n_states, fitted.n_states) == (3, 2)
    with pytest.raises(NotFittedError):
        other.predict(None)
    model = SSMEstimator(["y", "z"], random=("transition",), effect_covariance={"loading": "full"})
    assert clone(model).get_params() == model.get_params()


@pytest.mark.parametrize(
    ("estimator_type", "model_type"),
    [(HMMEstimator, avem.MixedHMM), (SSMEstimator, avem.MixedSSM)],
)
def test_every_option_of_the_model_is_one_of_the_estimator(estimator_type, model_type):
    own = inspect.signature(estimator_type).parameters
    sizes = ("n_states", "n_latent")  # have a default there, that grids may choose them
    for name, option in inspect.signature(model_type).parameters.items():
        assert name in own, name
        assert name in sizes or own[name].default == option.default, name


def test_all_options_reach_the_model(frame, monkeypatch):
    told = frame.assign(
        known=np.where(frame["time"] == 0, np.where(frame["y"] > 2, "up", "down"), None)
    )
    options = {
        "transition": "~ 1",
        "state_names": ["down", "up"],
        "known": "known",
        "constraints": "variance[0] == variance[1]",
        "priors": {"transition": avem.priors.Sticky(10)},
        "n_clusters": 2,
        "time_scale": "discrete",
    }
    fit_options = {"n_starts": 1, "refine": None, "tol": 1e-2}
    model = clone(estimator(**options, fit_options=fit_options)).fit(told)
    own = avem.MixedHMM(FORMULA, 2, **options)
    assert model.fit_.model.spec.options == own.spec.options
    assert own.spec.options.keys() > {"known", "constraints", "priors", "n_clusters", "state_names"}
    assert set(model.predict(told)) == {"down", "up"}
    assert model.get_feature_names_out().tolist() == ["down", "up"]
    assert list(clone(model).set_output(transform="pandas").fit(told).transform(told)) == [
        "down",
        "up",
    ]
    monkeypatch.setattr(avem.MixedHMM, "fit", lambda self, *_, **options: self)
    stays = avem.Duration("negative_binomial", max=5)
    assert clone(estimator(duration=stays)).fit(frame).fit_.spec.duration == stays
    assert estimator(time_scale="continuous").fit(frame).fit_.spec.transition.clock is not None


def test_a_grid_finds_the_number_of_states(frame):
    grid = {"n_states": [1, 2], "effect_covariance": ["full", "diagonal"]}
    search = GridSearchCV(estimator(), grid, cv=GroupKFold(2), error_score="raise")
    search.fit(frame, groups=frame["who"])
    assert search.best_params_["n_states"] == 2
    scores = search.cv_results_["mean_test_score"].reshape(2, 2)
    # One effect: its covariance is the same matrix under either name.
    np.testing.assert_allclose(scores[0], scores[1], rtol=1e-6)
    assert search.predict(frame).shape == (len(frame),)
    # Held-out subjects are scored under a fit to the others.
    train, test = next(GroupKFold(2).split(frame, groups=frame["who"]))
    assert not set(frame["who"].iloc[train]) & set(frame["who"].iloc[test])
    fit = avem.MixedHMM(FORMULA, 2).fit(frame.iloc[train], time="time", **QUICK)
    expected = float(fit.loglik(frame.iloc[test])) / len(test)
    assert search.cv_results_["split0_test_score"][1] == pytest.approx(expected, rel=1e-9)


def test_it_works_in_a_pipeline_and_keeps_row_labels(frame, fitted):
    doubled = FunctionTransformer(lambda rows: rows.assign(y=2 * rows["y"]))
    chain = make_pipeline(doubled, estimator().set_output(transform="pandas")).fit(frame)
    found = chain.transform(frame)
    assert list(found) == ["state_0", "state_1"]
    assert found.index.equals(frame.index)
    np.testing.assert_allclose(found, fitted.transform(frame), atol=1e-6)
    assert chain.score(frame) == pytest.approx(fitted.score(frame) - np.log(2), abs=1e-6)


def test_polars_and_groups_beside_the_table(frame, fitted):
    table = pl.from_pandas(frame)
    np.testing.assert_array_equal(fitted.predict(table), fitted.predict(frame))
    model = HMMEstimator("y ~ 1", time="time", fit_options={"n_starts": 1})
    bare, groups = table.drop("who"), table["who"].to_numpy()
    named = clone(model).set_params(subject="who").fit(table)
    beside = model.fit(bare, groups=groups)
    np.testing.assert_array_equal(beside.predict(bare, groups), named.predict(table))
    folds = GroupKFold(2)
    held_out = cross_val_score(clone(named), table, groups=groups, cv=folds, error_score="raise")
    assert held_out.shape == (2,)


def test_errors_say_what_is_wanted(frame, fitted):
    with pytest.raises(avem.DataError, match=r"set_output\(transform='pandas'\)"):
        estimator().fit(frame.to_numpy())
    with pytest.raises(avem.ModelError, match="no column 'who'"):
        fitted.predict(frame.drop(columns="who"))
    with pytest.raises(avem.DataError, match="one subject for each of the 240 rows"):
        fitted.predict(frame, groups=[1, 2])
    with pytest.raises(avem.DataError, match="differ"):
        fitted.predict(frame, groups=np.zeros(240))


def test_state_space_models_transform_and_score():
    frame = one().simulate(ONE, n_subjects=6, n_times=20, seed=0).frame
    options = {"n_starts": 1, "refine": None, "tol": 1e-2}
    model = SSMEstimator(["y", "z"], random="transition", subject="id", time="time")
    model.set_params(fit_options=options).fit(frame)
    own = one().fit(frame, time="time", **options)
    np.testing.assert_array_equal(model.transform(frame)[:, 0], own.states(frame)["state_0"])
    assert model.score(frame) == float(own.loglik(frame)) / len(frame)
    assert not hasattr(model, "predict")
    named = clone(model).set_params(state_names=["mood"]).set_output(transform="pandas").fit(frame)
    assert list(named.transform(frame)) == ["mood"]


def test_without_scikit_learn_it_says_what_to_install(monkeypatch):
    monkeypatch.setattr(avem.integrations, "sklearn", avem.integrations.sklearn)  # put back
    monkeypatch.delitem(sys.modules, "avem.integrations.sklearn")
    for name in ("sklearn", "sklearn.base"):
        monkeypatch.setitem(sys.modules, name, None)
    anew = importlib.import_module("avem.integrations.sklearn")
    assert anew.HMMEstimator is not HMMEstimator
    with pytest.raises(avem.AvemError, match=r"needs scikit-learn: pip install 'avem\[sklearn\]'"):
        anew.HMMEstimator("y ~ 1")
