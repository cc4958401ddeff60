"""Mixed-effects state-space models through the public API: fits, simulation, bad input."""

import re

import numpy as np
import pandas as pd
import pytest

import avem
from avem.errors import DataError, ModelError
from tests.ssm_panels import ONE, TWO, one, two, without_effects

QUICK = {"time": "time", "n_starts": 1, "max_iter": 3, "refine": None, "progress": False}


@pytest.fixture(scope="module")
def truth():
    return two().simulate(TWO, 40, 30, max_radius=0.98, seed=1)


@pytest.fixture(scope="module")
def fit(truth):
    return two().fit(truth.frame, time="time", refine=None)


# --- fits ---------------------------------------------------------------------------------------


def test_a_known_truth_is_recovered(truth, fit):
    assert fit.stop is avem.Stop.CONVERGED
    wanted = {
        "transition_mean": 0.12,
        "loading_mean": 0.18,
        "coef": 0.2,
        "noise": 0.2,
    }

    def recovered(params):
        return all(
            np.abs(params[name] - np.array(TWO[name])).max() < limit
            for name, limit in wanted.items()
        )

    assert recovered(fit.params)
    own = fit.transitions - fit.params["transition_mean"]
    assert np.corrcoef(own[:, 0, 0], truth.effects[:, 0])[0, 1] > 0.3
    # Negative control: an iteration from elsewhere does not pass.
    far = TWO | {
        "transition_mean": 0.1 * np.eye(2),
        "loading_mean": [[0.3, 0], [0, 0.3], [0, 0]],
        "noise": [3.0, 3.0, 3.0],
    }
    with pytest.warns(avem.AvemWarning, match="max_iter"):
        early = two().fit(truth.frame, init=far, **{**QUICK, "max_iter": 1})
    assert not recovered(early.params)


def test_names_and_shapes(fit):
    assert {name: value.shape for name, value in fit.params.items()} == {
        "initial_mean": (2,),
        "initial_covariance": (2, 2),
        "transition_mean": (2, 2),
        "loading_mean": (3, 2),
        "coef": (3, 1),
        "noise": (3,),
        "transition_covariance": (4, 4),
        "loading_covariance": (5, 5),
    }
    assert fit.effects_mean.shape == (40, 9)
    assert fit.effects_cov.shape == (40, 9, 9)
    assert fit.transitions.shape == (40, 2, 2)
    assert fit.loadings.shape == (40, 3, 2)
    assert (np.diagonal(fit.params["loading_mean"]) > 0).all()
    assert fit.params["loading_mean"][0, 1] == 0.0
    assert (fit.loadings[:, 0, 1] == 0.0).all()
    # Entries of the transitions run column by column, as in the paper.
    names = fit.effects()["effect"].tolist()[:9]
    assert names[:4] == [f"transition[{a}, {b}]" for b in range(2) for a in range(2)]
    np.testing.assert_allclose(
        fit.transitions[:, 1, 0], fit.params["transition_mean"][1, 0] + fit.effects_mean[:, 1]
    )
    np.testing.assert_allclose(
        fit.loadings[:, 2, 1], fit.params["loading_mean"][2, 1] + fit.effects_mean[:, 8]
    )


def test_an_earlier_fit_as_start_stays_where_it_is(truth, fit):
    again = two().fit(truth.frame, time="time", init=fit, refine=None)
    assert again.bound == pytest.approx(fit.bound, abs=1e-3)
    for name, value in fit.params.items():
        np.testing.assert_allclose(again.params[name], value, atol=2e-3)


def test_the_order_of_rows_and_the_units_do_not_matter(truth, fit):
    frame = truth.frame.sample(frac=1.0, random_state=0)
    frame["b"] = 1000.0 * frame["b"] + 5.0
    other = two().fit(frame, time="time", refine=None)
    n = truth.frame["b"].notna().sum()
    assert other.bound + n * np.log(1000.0) == pytest.approx(fit.bound, abs=0.02)
    np.testing.assert_allclose(
        other.params["loading_mean"][1], 1000.0 * fit.params["loading_mean"][1], rtol=5e-3
    )
    np.testing.assert_allclose(
        other.params["transition_mean"], fit.params["transition_mean"], atol=5e-3
    )


def test_held_parameters_stay():
    drawn = one().simulate(ONE, 10, 12, seed=0)
    with pytest.warns(avem.AvemWarning, match="max_iter"):
        held = one().fit(
            drawn.frame, fixed={"transition_mean": [[0.3]], "noise": [0.7, 0.2]}, **QUICK
        )
    assert held.params["transition_mean"] == 0.3
    assert held.params["noise"] == pytest.approx([0.7, 0.2])
    assert held.info.fixed == ("noise", "transition_mean")


def test_max_radius_keeps_subjects_stable():
    wild = ONE | {"transition_mean": [[0.95]], "transition_covariance": [[0.04]]}
    drawn = one().simulate(wild, 15, 15, max_radius=0.98, seed=0)
    radius = np.abs(0.95 + drawn.effects[:, 0])
    assert radius.max() == pytest.approx(0.98)
    assert (radius < 0.97).any()
    assert np.abs(0.95 + one().simulate(wild, 15, 15, seed=0).effects).max() > 1.0
    kept = one().fit(drawn.frame, time="time", max_radius=0.9, refine=None)
    assert np.abs(kept.transitions).max() <= 0.9 + 0.02  # the last E-step is not held back
    assert kept.info.held_back > 0
    assert any("max_radius=0.9" in note for note in kept.info.notes)


@pytest.mark.slow
def test_covariates_of_states_and_outcomes_and_subjects_own_intercepts():
    formula = "y + z ~ 1 + x + (1 | id)"
    model = avem.MixedSSM(
        formula, 1, state="~ 0 + dose", random="none", effect_covariance={"coef": "diagonal"}
    )
    rng = np.random.default_rng(0)
    rows = pd.DataFrame({"id": np.repeat(np.arange(30), 25), "time": np.tile(np.arange(25), 30)})
    rows = rows.assign(x=rng.normal(size=750), dose=rng.integers(0, 2, 750))
    given = without_effects(ONE) | {
        "state_coef": [[2.0]],
        "coef": [[1.0, -0.5], [0.0, 1.0]],
        "coef_covariance": [[0.5, 0.0], [0.0, 0.4]],
    }
    drawn = model.simulate(given, data=rows, time="time", seed=1)
    # An anchored start takes own intercepts for slow states; begin with these where they are.
    fixed = {"coef_covariance": given["coef_covariance"]}
    held = model.fit(drawn.frame, time="time", fixed=fixed, refine="adaptive")
    found = model.fit(drawn.frame, time="time", init=held)
    assert found.params["state_coef"] == pytest.approx(2.0, abs=0.4)
    np.testing.assert_allclose(found.params["coef"][:, 1], [-0.5, 1.0], atol=0.15)
    np.testing.assert_allclose(found.params["coef_covariance"], given["coef_covariance"], atol=0.3)
    assert np.corrcoef(found.effects_mean[:, 0], drawn.effects[:, 0])[0, 1] > 0.5
    assert found.effects()["effect"].tolist()[:2] == ["Intercept of y", "Intercept of z"]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The bound kept falling:avem.AvemWarning")  # with prior draws
@pytest.mark.parametrize(
    "method", ["mean_field", "structured", "quadrature", "monte_carlo", "adaptive", "partial"]
)
def test_every_method_fits(method):
    drawn = one().simulate(ONE, 20, 15, seed=2)
    best = one().fit(drawn.frame, time="time", method="adaptive").bound
    found = one().fit(drawn.frame, time="time", method=method, refine=None)
    assert found.info.method == method
    assert found.bound == pytest.approx(best, abs=3.0)


def test_the_papers_iteration_runs_in_the_users_units():
    drawn = one().simulate(ONE, 10, 12, seed=0)
    plain = one().fit(drawn.frame, time="time", init=ONE, plain=True, max_iter=50)
    assert (plain.model.scaling.scale == 1.0).all()
    assert plain.info.plain
    assert (np.diff(plain.bound_history) > -1e-8).all()


# --- simulation ---------------------------------------------------------------------------------


def test_simulated_data_have_the_moments_of_the_model():
    params = without_effects(TWO)
    drawn = two(random="none").simulate(params, 4000, 3, seed=0)
    g, h = np.array(TWO["transition_mean"]), np.array(TWO["loading_mean"])
    spread = np.array(TWO["initial_covariance"])
    for _ in range(2):
        spread = g @ spread @ g.T + np.eye(2)
    last = drawn.frame["time"].to_numpy() == 2
    y = drawn.frame.loc[last, ["a", "b", "c"]].to_numpy()
    np.testing.assert_allclose(np.cov(drawn.states[last].T), spread, atol=0.15)
    np.testing.assert_allclose(np.cov(y.T), h @ spread @ h.T + np.diag(TWO["noise"]), atol=0.25)
    np.testing.assert_allclose(y.mean(0), np.ravel(TWO["coef"]), atol=0.12)
    assert drawn.effects.shape == (4000, 0)


def test_simulation_steps_through_outcomes_that_are_looked_back_at():
    model = avem.MixedSSM("y ~ 1 + lag(y)", 1, subject="id", random="none")
    params = without_effects(ONE) | {"coef": [[0.0, 0.9]], "noise": [1e-6], "loading_mean": [[1.0]]}
    drawn = model.simulate(params, 5, 6, seed=0)
    y, x = (np.asarray(v).reshape(5, 6) for v in (drawn.frame["y"], drawn.states[:, 0]))
    np.testing.assert_allclose(y[:, 1:], 0.9 * y[:, :-1] + x[:, 1:], atol=0.02)


def test_missing_cells_stay_missing():
    rows = pd.DataFrame({"id": [1, 1, 2, 2], "y": [0.0, np.nan, 1.0, 2.0], "z": [0.0] * 4})
    drawn = one().simulate(ONE, data=rows, seed=0)
    assert drawn.frame["y"].isna().tolist() == [False, True, False, False]


# --- bad input ----------------------------------------------------------------------------------


def refused(error, *words):
    """Expect `error` with all of these words in its message, in this order."""
    return pytest.raises(error, match="(?s)" + ".*".join(re.escape(word) for word in words))


@pytest.mark.parametrize(
    ("arguments", "options", "words"),
    [
        ((["y"], 2), {}, ["n_latent is 2", "1 outcome", "n_latent=1"]),
        ((["y"], 0), {}, ["n_latent is 0", "whole number"]),
        ((["y"], 1.5), {}, ["n_latent is 1.5", "whole number"]),
        ((["y"], True), {}, ["n_latent is True"]),
        (("y", 1), {}, ["outcomes is 'y'", "['y']", "'y ~ 1'"]),
        (([], 1), {}, ["outcomes is []"]),
        ((None, 1), {}, ["outcomes is None"]),
        (([1, 2], 1), {}, ["outcomes has 1"]),
        ((["y", "y"], 1), {}, ["names an outcome twice"]),
        (("~ x", 1), {}, ["no outcomes"]),
        ((["y"], 1), {"state": "~ x"}, ["state='~ x'", "intercept", "~ 0 + x"]),
        ((["y"], 1), {"state": "~ 1"}, ["intercept", "'~ 0'"]),
        ((["y"], 1), {"state": "z ~ x"}, ["one-sided"]),
        ((["y"], 1), {"state": "~ 0 + (x | id)"}, ["group term"]),
        ((["y"], 1), {"random": "all"}, ["random is 'all'", "both", "none"]),
        ((["y"], 1), {"random": ("noise",)}, ["random is ('noise',)", "transition and loading"]),
        ((["y"], 1), {"random": 3}, ["random is 3"]),
        ((["y"], 1), {"effect_covariance": "block"}, ["'block'", "'full' or 'diagonal'"]),
        ((["y"], 1), {"effect_covariance": {"noise": "full"}}, ["['noise']", "loading"]),
        ((["y"], 1), {"effect_covariance": {"coef": 1}}, ["effect_covariance is 1"]),
        (("y ~ 1 + (1 | a)", 1), {"subject": "b"}, ["subject='b'", "groups by 'a'"]),
        ((["y"], 1), {"subject": 3}, ["subject is 3"]),
    ],
)
def test_a_wrong_model_is_refused(arguments, options, words):
    with refused(ModelError, *words):
        avem.MixedSSM(*arguments, **options)


def sound(n_subjects=4, n_times=8):
    """A small sound data set."""
    rng = np.random.default_rng(0)
    n = n_subjects * n_times
    return pd.DataFrame(
        {
            "id": np.repeat([f"s{i}" for i in range(n_subjects)], n_times),
            "time": np.tile(np.arange(n_times), n_subjects),
            "y": rng.normal(size=n),
            "z": rng.normal(size=n),
            "x": rng.normal(size=n),
        }
    )


@pytest.mark.parametrize(
    ("frame", "error", "words"),
    [
        (sound().assign(y=1.0), DataError, ["'y' is constant"]),
        (sound().assign(y=np.nan), DataError, ["'y' has no observed value"]),
        (sound().assign(y=[np.inf] + [1.0] * 31), DataError, ["'y' is infinite"]),
        (sound().assign(y="a"), DataError, ["'y'", "numbers"]),
        (sound().drop(columns="y"), DataError, ["'y'"]),
        (sound().drop(columns="id"), DataError, ["'id'"]),
        (sound(4, 1), DataError, ["1 time point", "at least 2"]),
        (sound(1, 30), ModelError, ["1 subject", "random='none'"]),
        (sound(8, 2), ModelError, ["not identified", "random='none'"]),
    ],
)
def test_data_that_cannot_carry_the_model_are_refused(frame, error, words):
    model = avem.MixedSSM(["y", "z"], 1, subject="id")
    with refused(error, *words):
        model.fit(frame, **QUICK)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"method": "em"}, ["method is 'em'", "avem"]),
        ({"refine": "yes"}, ["refine is 'yes'"]),
        ({"anchor": "mode"}, ["anchor is 'mode'"]),
        ({"n_starts": 0}, ["n_starts is 0"]),
        ({"max_iter": 1.5}, ["max_iter is 1.5"]),
        ({"tol": -1}, ["tol is -1"]),
        ({"seed": -1}, ["seed is -1"]),
        ({"n_nodes": 5}, ["n_nodes is for the methods"]),
        ({"unanchored": ["a"]}, ["unanchored is for method='partial'"]),
        ({"method": avem.Partial(["a"])}, ["unanchored has ['a']", "transition[0, 0]"]),
        ({"max_radius": 0}, ["max_radius is 0"]),
        ({"max_radius": "0.9"}, ["max_radius is '0.9'"]),
        ({"subject": "x"}, ["subject='x'", "'id'"]),
        ({"init": 3}, ["init is a int"]),
        ({"init": {"noise": [1.0]}}, ["init['noise'] has shape (1,)", "(2,)", "y, z"]),
        ({"init": {"slope": 1}}, ["init has ['slope']", "transition_mean"]),
        ({"init": {"loading_mean": "a"}}, ["not an array of numbers"]),
        ({"fixed": {"noise": [1.0, -1.0]}}, ["fixed['noise']", "positive"]),
        ({"fixed": {"transition_covariance": [[0.1]]}}, ["loading_covariance", "or none"]),
    ],
)
def test_wrong_options_are_refused(options, words):
    model = avem.MixedSSM(["y", "z"], 1, subject="id")
    with refused(ModelError, *words):
        model.fit(sound(), **{**QUICK, **options})


def test_more_that_is_refused():
    frame = sound()
    with refused(ModelError, "Which rows belong together?"):
        avem.MixedSSM(["y"], 1).fit(frame)
    with refused(ModelError, "above the diagonal"):
        avem.MixedSSM(["y", "z"], 2, subject="id").fit(
            frame, init={"loading_mean": np.ones((2, 2))}, **QUICK
        )
    with refused(ModelError, "not diagonal"):
        avem.MixedSSM(["y", "z"], 1, subject="id", effect_covariance="diagonal").fit(
            frame, init={"loading_covariance": [[1.0, 0.5], [0.5, 1.0]]}, **QUICK
        )
    with refused(ModelError, "max_radius is for models"):
        avem.MixedSSM(["y"], 1, subject="id", random="none").fit(frame, max_radius=0.9, **QUICK)
    with refused(ModelError, "'x2'", "combination"):
        frame = frame.assign(x2=2.0)
        avem.MixedSSM(["y"], 1, subject="id", state="~ 0 + x2").fit(frame, **QUICK)
    with refused(ModelError, "9 parameters", "8 observed values"):
        avem.MixedSSM("y + z ~ 1 + x", 1, subject="id", random="none").fit(sound(2, 2), **QUICK)
    with refused(ModelError, "params lacks", "noise"):
        one().simulate({name: v for name, v in ONE.items() if name != "noise"}, 3, 3)
    with refused(ModelError, "n_subjects and n_times"):
        one().simulate(ONE)
