"""Export to ArviZ: what is uncertain is in the posterior, what is not is not."""

import sys
from dataclasses import replace

import numpy as np
import pytest
from matplotlib import pyplot

import avem
from avem.fits.io.arviz import to_arviz
from tests.chosen import chosen
from tests.fits.kinds import KINDS, fit_of
from tests.ssm_panels import TWO, two


@pytest.fixture(autouse=True, scope="module")
def arviz():
    """Not while tests are collected: on the first import of a day ArviZ writes a file, and of two
    processes that do so at once, one fails.
    """
    return pytest.importorskip("arviz", exc_type=ImportError)


PARAMS = {
    "initial": [0.5, 0.5],
    "transition": [[0.9, 0.1], [0.1, 0.9]],
    "coef": [[[-2.0], [0.0]], [[2.0], [1.0]]],
    "variance": [[1.0, 1.0], [1.0, 1.0]],
    "effect_covariance": [[1.0, 0.5], [0.5, 1.0]],
}


@pytest.fixture(scope="module")
def fit():
    model = avem.MixedHMM("y1 + y2 ~ 1 + (1 | who)", n_states=2)
    data = model.simulate(PARAMS, n_subjects=8, n_times=20, seed=0).frame
    data.loc[3, "y1"] = np.nan
    return model.fit(data, time="time", n_starts=1, refine=None)


def test_groups_and_labels(fit):
    made = to_arviz(fit, n_draws=300)
    effects = made["posterior"]["effects"]
    assert effects.dims == ("chain", "draw", "subject", "effect")
    assert effects.shape == (1, 300, 8, 2)
    assert effects["subject"].values.tolist() == fit.subjects.tolist()
    assert effects["effect"].values.tolist() == ["y1: Intercept", "y2: Intercept"]
    assert list(made["posterior"].data_vars) == ["effects"]
    constant = made["constant_data"]
    for name, value in fit.params.items():
        np.testing.assert_array_equal(constant[name].values, value)
    assert (
        constant["coef"].sel(state=1, outcome="y2", term="Intercept") == fit.params["coef"][1, 1, 0]
    )
    assert constant["variance"].dims == ("state", "outcome")
    observed = made["observed_data"]["outcomes"]
    table = fit.panel.table[["y1", "y2"]].to_numpy()
    np.testing.assert_array_equal(observed.values, table)
    assert "point estimates" in made["posterior"].attrs["note"]


def test_draws_have_the_moments_of_q(fit):
    draws = to_arviz(fit, n_draws=20_000, seed=1)["posterior"]["effects"].values[0]
    sd = np.sqrt(np.diagonal(fit.effects_cov, axis1=1, axis2=2))
    assert np.abs((draws.mean(0) - fit.effects_mean) / sd).max() < 0.03
    for i in range(len(fit.subjects)):
        np.testing.assert_allclose(
            np.cov(draws[:, i].T), fit.effects_cov[i], atol=0.03 * sd[i].max() ** 2
        )


def test_the_same_seed_gives_the_same_draws(fit):
    one, same, other = (to_arviz(fit, 10, seed)["posterior"]["effects"] for seed in (1, 1, 2))
    assert (one == same).all()
    assert not (one == other).any()


def test_a_loaded_fit_has_no_observed_data(fit):
    made = to_arviz(replace(fit, panel=None))
    groups = made.groups() if callable(made.groups) else made.groups  # ArviZ 0.x, 1.x
    names = {group.strip("/") for group in groups}
    assert "observed_data" not in names
    assert "posterior" in names


def test_without_arviz_the_error_says_what_to_install(fit, monkeypatch):
    monkeypatch.setitem(sys.modules, "arviz", None)
    with pytest.raises(avem.AvemError, match=r"pip install 'avem\[arviz\]'"):
        to_arviz(fit)


def test_the_number_of_draws_is_checked(fit):
    with pytest.raises(avem.ModelError, match="n_draws"):
        to_arviz(fit, n_draws=0)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_has_its_numbers_and_labels(kind):
    fit = fit_of(kind)
    made = to_arviz(fit, n_draws=5)
    constant = made["constant_data"]
    for name, value in fit.params.items():
        np.testing.assert_array_equal(constant[name].values, value)
    for dim in constant.dims:  # a name of its own, not one that ArviZ made up
        assert "_dim_" not in dim
        assert dim in constant.coords
    if fit.model.n_effects:
        assert made["posterior"]["effects"].shape == (1, 5, 8, fit.model.n_effects)
    assert made["observed_data"]["outcomes"].shape == (192, len(fit.model.outcomes))


def test_axes_of_several_formulas_are_told_apart():
    constant = to_arviz(fit_of("movement"), n_draws=5)["constant_data"]
    assert constant["step.shape_coef"].dims == ("state", "step.outcome", "step.shape_term")
    shape = constant["step.shape_coef"].sel({"state": 1, "step.shape_term": "x"})
    assert shape.values.tolist() == [0.1]
    moving = to_arviz(fit_of("moving"), n_draws=5)["constant_data"]
    found = moving["transition_coef"].sel(state=1, to_state=0, transition_term="x")
    assert found == -0.4


def test_levels_are_numbered_and_named():
    fit = fit_of("choice")
    observed = to_arviz(fit, n_draws=5)["observed_data"]
    assert observed.attrs["levels"] == "choice: right, left"
    codes = fit.panel.table["choice"].map({"right": 0.0, "left": 1.0})
    np.testing.assert_array_equal(observed["outcomes"].sel(outcome="choice"), codes)
    labels = to_arviz(fit_of("labels"), n_draws=5)["constant_data"]["coef"]
    assert labels.sel(state=0, level="a[4]", term="Intercept") == -1.0


@pytest.fixture(scope="module")
def ssm_fit():
    frame = two().simulate(TWO, n_subjects=6, n_times=12, seed=0).frame
    frame["w"] = np.linspace(-1, 1, len(frame))
    model = two(state="~ 0 + w")
    return model.fit(frame, time="time", n_starts=1, refine=None, tol=0.1, plain=True)


def test_a_state_space_fit_has_its_numbers_and_labels(ssm_fit):
    made = ssm_fit.to_arviz()
    constant = made["constant_data"]
    for name, value in ssm_fit.params.items():
        np.testing.assert_array_equal(constant[name].values, value)
    assert not [dim for dim in constant.dims if "_dim_" in dim or dim not in constant.coords]
    params = ssm_fit.params
    assert constant["loading_mean"].sel(outcome="c", state=1) == params["loading_mean"][2, 1]
    moves = constant["transition_mean"].sel(to_state=1, state=0)
    assert moves == params["transition_mean"][1, 0]
    assert constant["state_coef"].sel(state=0, state_term="w") == params["state_coef"][0, 0]
    names = {"loading_effect": "loading[b, 0]", "other_loading_effect": "loading[b, 1]"}
    place = [ssm_fit.model.effect_names[4:].index(name) for name in names.values()]
    assert constant["loading_covariance"].sel(names) == params["loading_covariance"][*place]
    effects = made["posterior"]["effects"]
    assert effects.shape == (1, 500, 6, 9)
    sd = np.sqrt(np.diagonal(ssm_fit.effects_cov, axis1=1, axis2=2))
    assert np.abs((effects.values[0].mean(0) - ssm_fit.effects_mean) / sd).max() < 0.25
    observed = made["observed_data"]["outcomes"].sel(outcome="b")
    np.testing.assert_array_equal(observed.values, ssm_fit.panel.table["b"])


@pytest.mark.filterwarnings("ignore")  # ArviZ's own, of Matplotlib's newer ways and one chain
@pytest.mark.parametrize("kind", chosen(("hmm", "ssm"), ("hmm",)))
def test_arviz_draws_and_summarises_it(kind, fit, ssm_fit, arviz):
    made = (fit if kind == "hmm" else ssm_fit).to_arviz()
    n_effects = (fit if kind == "hmm" else ssm_fit).model.n_effects
    if int(arviz.__version__.partition(".")[0]) >= 1:
        traced = arviz.plot_trace_dist
        options = {"backend": "matplotlib"}
    else:
        traced, options = arviz.plot_trace, {}
    some = {"effect": [made["posterior"]["effect"].values[0]]}
    assert arviz.plot_forest(made, var_names=["effects"], **options) is not None
    assert traced(made, var_names=["effects"], coords=some, **options) is not None
    table = arviz.summary(made, var_names=["effects"])
    assert len(table) == n_effects * len(made["posterior"]["subject"])
    pyplot.close("all")
