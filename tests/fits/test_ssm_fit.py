"""The fit of a state-space model: likelihood, uncertainty, effects, tables, files."""

import json
import zipfile
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import avem
from avem.errors import DataError, FileError, ModelError
from avem.fits.estimates import estimates
from avem.inference.after.marginal import uncertainty
from avem.inference.methods.adaptive.grade import grade
from avem.inference.methods.adaptive.method import AdaptiveNodes
from tests.ssm_panels import (
    ONE,
    TWO,
    dense_loglik,
    grid_posterior,
    one,
    sequences,
    two,
    without_effects,
)


@pytest.fixture(scope="module")
def frame():
    drawn = one().simulate(ONE, 16, 30, max_radius=0.98, seed=3).frame
    drawn.loc[[4, 5, 30], "y"] = np.nan
    return drawn


@pytest.fixture(scope="module")
def fit(frame):
    return one().fit(frame, time="time", refine="adaptive")


@pytest.fixture(scope="module")
def alike():
    drawn = two(random="none").simulate(without_effects(TWO), 12, 20, seed=0).frame
    drawn.loc[[3, 7], "b"] = np.nan
    return drawn, two(random="none").fit(drawn, time="time")


def exact(frame, params):
    return sum(grid_posterior(y, params)[0] for y in sequences(frame, ["y", "z"]))


# --- likelihood ---------------------------------------------------------------------------------


def test_loglik_is_the_integral_over_a_dense_grid(frame, fit):
    by_subject = [grid_posterior(y, fit.params)[0] for y in sequences(frame, ["y", "z"])]
    found = fit.loglik()
    np.testing.assert_allclose(found.by_subject, by_subject, atol=1e-4)
    assert found.error < 1e-4
    assert fit.info.refined
    assert fit.bound == pytest.approx(found, abs=1e-3)
    assert fit.bound_name == "log likelihood"


def test_score_conditions_on_the_rows_of_the_fit(frame, fit):
    """A known subject's later rows go on from its data; a new subject has nothing but its own."""
    rows = one().simulate(ONE, 2, 6, max_radius=0.98, seed=8).frame
    known, new = frame["id"].unique()[3], frame["id"].max() + 1
    later = rows.assign(id=np.where(rows["id"] == rows["id"].iloc[0], known, new))
    later["time"] += 100
    own = frame[frame["id"] == known]
    both = pd.concat([own, later[later["id"] == known]])
    wanted = exact(both, fit.params) - exact(own, fit.params)
    wanted += exact(later[later["id"] == new], fit.params)
    assert fit.score(later.sample(frac=1, random_state=0)) == pytest.approx(wanted / 12, abs=1e-5)
    with pytest.raises(DataError, match="has seen 30 of these rows already"):
        fit.score(own)


def test_loglik_of_other_data(frame, fit):
    new = one().simulate(ONE, 3, 30, seed=9).frame
    assert fit.loglik(new) == pytest.approx(exact(new, fit.params), abs=1e-4)


def test_without_effects_the_likelihood_is_the_joint_normal(alike):
    frame, fit = alike
    wanted = sum(dense_loglik(y, fit.params) for y in sequences(frame, ["a", "b", "c"]))
    assert fit.loglik() == pytest.approx(wanted, abs=1e-8)
    assert fit.bound == pytest.approx(wanted, abs=1e-8)
    assert fit.effects().empty
    assert "no effects" in fit.diagnose().advice


def test_without_effects_the_likelihood_is_that_of_statsmodels(alike):
    statespace = pytest.importorskip("statsmodels.tsa.statespace.mlemodel")
    frame, fit = alike
    params, total = fit.params, 0.0
    for y in sequences(frame, ["a", "b", "c"]):
        other = statespace.MLEModel(y, k_states=2, k_posdef=2)
        other["design"], other["obs_intercept"] = params["loading_mean"], params["coef"]
        other["obs_cov"], other["transition"] = np.diag(params["noise"]), params["transition_mean"]
        other["selection"] = other["state_cov"] = np.eye(2)
        other.ssm.initialize_known(params["initial_mean"], params["initial_covariance"])
        other.ssm.loglikelihood_burn = 0
        total += other.ssm.loglike()
    assert fit.loglik() == pytest.approx(total, abs=1e-6)


def test_the_estimates_are_at_the_maximum(frame, fit):
    best = exact(frame, fit.params)
    assert best > exact(frame, ONE)
    for name, step in (("transition_mean", 0.02), ("noise", 0.02), ("loading_mean", 0.02)):
        for sign in (-1, 1):
            moved = {**fit.params, name: fit.params[name] + sign * step}
            assert exact(frame, moved) < best


def test_criteria_count_the_parameters(fit, alike):
    assert fit.n_params == 10
    assert alike[1].n_params == 2 + 3 + 4 + 5 + 3 + 3
    assert fit.aic() == pytest.approx(-2 * fit.loglik() + 20)
    assert fit.bic() == pytest.approx(-2 * fit.loglik() + np.log(16) * 10)
    assert two().simulate(TWO, 2, 2, seed=0).effects.shape == (2, 9)


# --- uncertainty --------------------------------------------------------------------------------


def test_the_summary_has_the_standard_errors(fit):
    told, errors = estimates(fit, True, 0.95), fit.standard_errors()
    for title, name in (("Loadings, mean", "loading_mean"), ("Coefficients", "coef")):
        (part,) = [part for part in told.parts if part.section.title == title]
        own = errors[errors["parameter"] == name]
        for column in ("se", "lower", "upper"):
            found = sorted(getattr(cell, column) for cell in part.cells)
            np.testing.assert_allclose(found, sorted(own[column].dropna()), rtol=1e-5)
    (noise,) = [part for part in told.parts if part.section.title.startswith("Noise")]
    own = errors[errors["parameter"] == "noise"]
    np.testing.assert_allclose([cell.upper**2 for cell in noise.cells], own["upper"], rtol=1e-5)
    assert all(np.isnan(cell.z) for cell in noise.cells)


def test_standard_errors_are_those_of_the_numerical_curvature(frame, fit):
    table = fit.standard_errors()
    assert (table["note"] == "").all()
    names, estimate = table["parameter"].tolist(), table["estimate"].to_numpy()
    y = np.stack(sequences(frame, ["y", "z"]))

    def loglik(values):
        params = {n: [v for m, v in zip(names, values, strict=True) if m == n] for n in fit.params}
        params = {n: np.reshape(v, fit.params[n].shape) for n, v in params.items()}
        return grid_posterior(y, params, 161)[0].sum()

    assert loglik(estimate) == pytest.approx(exact(frame, fit.params), abs=1e-9)
    step = 0.02 * np.maximum(np.abs(estimate), 0.1)
    step[names.index("transition_covariance")] = 0.1 * fit.params["transition_covariance"][0, 0]
    k = len(step)
    second = np.zeros((k, k))
    for i in range(k):
        for j in range(i + 1):
            e, d = step * (np.arange(k) == i), step * (np.arange(k) == j)
            corners = [loglik(estimate + s * e + t * d) for s in (1, -1) for t in (1, -1)]
            change = corners[0] - corners[1] - corners[2] + corners[3]
            second[i, j] = second[j, i] = change / (4 * step[i] * step[j])
    wanted = np.sqrt(np.diagonal(np.linalg.inv(-second)))
    np.testing.assert_allclose(table["se"], wanted, rtol=0.05)
    sandwich = fit.standard_errors(errors="sandwich")["se"]
    assert ((sandwich / wanted).between(0.3, 3.0)).all()


def test_draws_know_how_far_they_are_off(fit):
    grid = fit._marginal
    few = AdaptiveNodes.make(grid.e.kernel.n_effects, n_draws=64)
    drawn = grade(replace(grid.e, method=few), grid.state, np.random.default_rng(0))
    off = np.abs(drawn.loglik - grid.loglik)
    assert drawn.drawn
    assert drawn.error.mean() > 0
    assert off.mean() < 4 * drawn.error.mean() < 40 * off.mean()


def test_a_model_with_few_effects_takes_no_draws(fit):
    with pytest.raises(ModelError, match="n_draws is 64, but this model has at most three effects"):
        fit.standard_errors(n_draws=64)


@pytest.mark.slow
def test_more_draws_come_closer_to_the_curvature_on_a_grid(fit):
    grid = fit._marginal
    few = AdaptiveNodes.make(grid.e.kernel.n_effects, n_draws=8)
    drawn = replace(grid, e=replace(grid.e, method=few), method=few)
    free, exact = fit._curvature.free, fit._curvature.information
    unit = 1 / np.sqrt(np.diagonal(exact))

    def error(n_draws):
        away = uncertainty(drawn, free, n_draws).information - exact
        return np.abs(away * np.outer(unit, unit)).max()

    assert error(256) < 0.1 * error(8)
    assert error(None) < error(256)  # with 16 subjects, 4096


def test_intervals_keep_variances_positive(fit):
    table = fit.standard_errors(level=0.99).set_index("parameter")
    variances = table.loc[["noise", "initial_covariance", "transition_covariance"]]
    assert (variances["lower"] > 0).all()
    assert (variances["lower"] < variances["estimate"]).all()
    wider = table["upper"] - table["lower"]
    usual = fit.standard_errors().set_index("parameter")
    assert (wider > usual["upper"] - usual["lower"]).all()


def test_what_is_held_or_constant_has_no_standard_error():
    drawn = two(random="none").simulate(without_effects(TWO), 12, 20, seed=0).frame
    held = {"initial_mean": [0.0, 0.0], "initial_covariance": np.eye(2)}
    fit = two(random="none").fit(drawn, time="time", fixed=held)
    table = fit.standard_errors()
    rows = table["parameter"].isin(list(held))
    assert (table.loc[rows, "note"] == "held").all()
    assert table.loc[rows, "se"].isna().all()
    assert table.loc[~rows, "se"].notna().all()
    assert fit.n_params == 4 + 5 + 3 + 3


def test_effects_are_the_posterior_on_a_grid(frame, fit):
    table = fit.effects(posterior="adaptive")
    assert table.columns.tolist() == ["id", "effect", "mean", "sd", "lower", "upper"]
    wanted = np.array([grid_posterior(y, fit.params)[1:] for y in sequences(frame, ["y", "z"])])
    np.testing.assert_allclose(table[["mean", "sd"]], wanted, atol=2e-3)
    np.testing.assert_allclose(
        fit.transitions[:, 0, 0], fit.params["transition_mean"][0, 0] + fit.effects_mean[:, 0]
    )
    with pytest.raises(ModelError, match="posterior is 'mode'"):
        fit.effects(posterior="mode")


def test_effects_of_new_subjects(frame, fit):
    new = fit.infer_effects(frame.assign(id=frame["id"] + 100))
    np.testing.assert_allclose(new[["mean", "sd"]], fit.effects()[["mean", "sd"]], atol=5e-3)
    assert new["id"].unique().tolist() == [i + 100 for i in range(16)]
    half = frame[frame["id"] < 3].assign(id=lambda f: f["id"].replace(2, 99))
    encoded = fit._encode(half)
    effects = fit._effects_for(encoded)
    np.testing.assert_allclose(effects[:, :2].T, fit.effects_mean[:2])


def test_diagnosis_splits_the_gap(fit):
    found = fit.diagnose()
    parts = found.subjects[["bound", "anchoring_gap", "gaussian_gap"]].sum(axis=1)
    np.testing.assert_allclose(parts, found.subjects["loglik"])
    assert (found.subjects["anchoring_gap"] > -1e-3).all()
    assert found.subjects["loglik"].sum() == pytest.approx(fit.loglik(), abs=1e-2)
    assert found.effects["sd"].tolist() == pytest.approx(
        [np.sqrt(fit.params["transition_covariance"][0, 0])]
    )


# --- tables and words ---------------------------------------------------------------------------


def test_the_table_has_every_parameter_once(alike):
    _, fit = alike
    table = fit.table()
    assert len(table) == 2 + 3 + 4 + 5 + 3 + 3
    own = table[table["parameter"] == "transition_mean"].set_index(["state", "to_state"])
    assert own.loc[(0, 1), "estimate"] == fit.params["transition_mean"][1, 0]
    own = table[table["parameter"] == "loading_mean"].set_index(["outcome", "state"])
    assert own.loc[("c", 1), "estimate"] == fit.params["loading_mean"][2, 1]
    assert ("a", 1) not in own.index


def test_the_summary_says_what_was_fitted(fit):
    text = str(fit.summary(errors=False))
    for words in (
        "Mixed-effects state-space model: y + z ~ 1",
        "1 latent state, of the subjects' own: transition",
        "noise of the states I, loadings lower triangular, signs by the first loading",
        "16 subjects, 16 sequences, 480 rows, 957 observed values, 3 missing",
        "CONVERGED",
        "Transitions, mean (to row from column)",
        "Transitions, sd between 16 subjects",
    ):
        assert words in text
    assert "16 subjects" in repr(fit)


def test_copies_of_an_outcome_are_told(frame):
    twice = frame.assign(w=frame["y"])
    model = avem.MixedSSM(["y", "w"], 1, subject="id", random="none")
    with pytest.warns(avem.AvemWarning, match="noise of 'y', 'w' went to 0"):
        found = model.fit(twice, time="time", max_iter=2000)
    assert any("copies or sums" in note for note in found.info.notes)


def test_growing_states_are_told():
    wild = ONE | {"transition_mean": [[1.0]], "transition_covariance": [[0.01]]}
    drawn = one().simulate(wild, 16, 30, seed=1).frame
    with pytest.warns(avem.AvemWarning, match="max_iter"):
        found = one().fit(drawn, time="time", refine=None, max_iter=20)
    n = int((np.abs(found.transitions[:, 0, 0]) > 1).sum())
    assert n > 0
    assert any(f"{n} of 16 subjects grow without bound" in note for note in found.info.notes)


# --- simulation and files -----------------------------------------------------------------------


def test_simulation_from_the_fit(frame, fit):
    drawn = fit.simulate(effects="fitted", seed=1)
    np.testing.assert_array_equal(drawn.effects, fit.effects_mean)
    assert drawn.states.shape == (480, 1)
    assert (drawn.frame["y"].isna() == frame["y"].isna()).all()
    assert not np.array_equal(fit.simulate(seed=1).effects, fit.effects_mean)
    with pytest.raises(DataError, match="No fitted effects"):
        fit.simulate(frame.assign(id=frame["id"] + 100), effects="fitted")


def test_a_saved_fit_comes_back(frame, fit, tmp_path):
    fit.save(tmp_path / "one.avem")
    back = avem.load(tmp_path / "one.avem")
    assert isinstance(back, avem.SSMFit)
    assert back.panel is None
    for name, value in fit.params.items():
        np.testing.assert_array_equal(back.params[name], value, strict=True)
    for name in ("effects_mean", "effects_cov", "bound_history", "loglik_history", "subjects"):
        np.testing.assert_array_equal(getattr(back, name), getattr(fit, name), strict=True)
    for name in ("bound", "n_iter", "stop", "info"):
        assert getattr(back, name) == getattr(fit, name)
    assert back.model.spec == fit.model.spec
    assert back.model.scaling.to_json() == fit.model.scaling.to_json()
    assert str(back.summary(errors=False)) == str(fit.summary(errors=False))
    pd.testing.assert_frame_equal(back.table(), fit.table(), check_exact=True)
    with pytest.raises(DataError, match="holds no data"):
        back.loglik()
    assert back.with_data(frame).loglik() == fit.loglik()
    with pytest.raises(DataError, match="not the data of the fit"):
        back.with_data(frame[:60])
    back.save(tmp_path / "again.avem")
    assert (tmp_path / "again.avem").read_bytes() == (tmp_path / "one.avem").read_bytes()


def rewritten(path, change):
    """The file with its JSON changed."""
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    record = json.loads(members["fit.json"])
    change(record)
    members["fit.json"] = json.dumps(record).encode()
    other = path.with_name("other.avem")
    with zipfile.ZipFile(other, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return other


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda r: r.update(kind="arma"), "kind 'arma'"),
        (lambda r: r["model"].update(n_latent=3), "3 latent states and 2 outcomes"),
        (lambda r: r["model"].update(n_latent=0), "0 latent states"),
        (lambda r: r["model"].update(random=["loading", "loading"]), "random parts"),
        (lambda r: r["model"].update(effect_covariance=["full"]), "effect_covariance"),
        (lambda r: r["model"].update(effect_covariance=["full", "no", "full"]), "effect_cov"),
        (lambda r: r["model"].update(state="~ 0 + (1 | id)"), "has effects"),
        (lambda r: r["model"].update(state="y ~ 0"), "has an outcome"),
        (lambda r: r["model"]["scaling"].update(scale=[0.0, 1.0]), "scaling"),
        (lambda r: r["model"].pop("state"), "lacks 'state'"),
        (lambda r: r["model"].update(random=["loading"]), "missing"),
    ],
)
def test_a_damaged_file_is_refused(fit, tmp_path, change, words):
    fit.save(tmp_path / "one.avem")
    with pytest.raises(FileError, match=words):
        avem.load(rewritten(tmp_path / "one.avem", change))


def test_files_of_an_earlier_avem_load(frame, fit, tmp_path):
    hmm = avem.MixedHMM("y ~ 1", 2)
    given = {"max_iter": 2, "n_starts": 1, "init": {"initial": [0.5, 0.5]}}
    with pytest.warns(avem.AvemWarning, match="max_iter"):
        made = hmm.fit(frame, subject="id", method=avem.AVEM(batch_size=5), **given)
    given["batch_size"] = 5
    # What a person needs to ask for the same again.
    asked = {name: getattr(made.info, name) for name in (*given, "refine", "tol", "seed")}
    expected = {**given, "init": ("initial",), "refine": "auto", "tol": 1e-4, "seed": 0}
    assert asked == expected
    made.save(tmp_path / "hmm.avem")
    assert avem.load(tmp_path / "hmm.avem").info == made.info
    assert (fit.info.tol, fit.info.max_iter, fit.info.init) == (1e-5, 500, ())
    later = ("refine", "tol", "max_iter", "n_starts", "batch_size")
    later += ("likelihood", "options", "refine_options", "init")

    def without_options(record):
        for name in later:
            record["info"].pop(name)

    def without_kind(record):
        without_options(record)
        record.pop("kind")
        for name in ("max_radius", "held_back"):
            record["info"].pop(name)

    for change in (without_options, without_kind):
        back = avem.load(rewritten(tmp_path / "hmm.avem", change))
        assert isinstance(back, avem.HMMFit)
        assert [getattr(back.info, name) for name in later] == [*[None] * 8, ()]
    fit.save(tmp_path / "ssm.avem")
    back = avem.load(rewritten(tmp_path / "ssm.avem", without_options))
    assert back.info == replace(fit.info, **{name: None for name in later[:-1]})


# --- questions ----------------------------------------------------------------------------------


def test_check_sees_the_data_among_simulated_ones(frame, fit):
    found = fit.check(n=30)
    table = found.table.set_index(["statistic", "outcome"])
    assert table.loc[("mean", "y"), "observed"] == pytest.approx(frame["y"].mean())
    assert table.loc[("sd", "z"), "observed"] == pytest.approx(frame["z"].std(ddof=0))
    assert (table["p"] > 2 / 31).mean() > 0.7
    # Noise alone has no memory: shuffled rows do not look like the model's.
    shuffled = frame.assign(
        y=frame.groupby("id")["y"].transform(lambda y: y.sample(frac=1, random_state=0).to_numpy())
    )
    wrong = fit.with_data(shuffled).check("autocorrelation", n=30).table
    assert wrong.loc[wrong["outcome"] == "y", "p"].item() == pytest.approx(2 / 31)
    missing = fit.check(lambda table: table["y"].isna().sum(), n=2, effects="drawn")
    assert (missing.simulated == 3).all()
    assert len(found.plot().axes) == len(table)
    assert len(fit.plot.check("mean", n=2, effects="fitted").axes) == 2


def test_contrast_of_groups_and_subjects(fit):
    groups = {who: "ab"[number % 2] for number, who in enumerate(fit.subjects)}
    table = fit.contrast(groups)
    mean, sd = fit.effects_mean[:, 0], np.sqrt(fit.effects_cov[:, 0, 0])
    assert table["difference"][0] == pytest.approx(mean[::2].mean() - mean[1::2].mean())
    assert table["sd"][0] == pytest.approx(np.sqrt((sd**2).sum()) / 8)
    pair = fit.contrast(subjects=fit.subjects[:2].tolist())
    assert pair["difference"][0] == pytest.approx(mean[0] - mean[1])
    assert pair["sd"][0] == pytest.approx(np.hypot(sd[0], sd[1]))
    assert len(fit.plot.contrast(groups).axes) == 1
    with pytest.raises(ModelError, match="one of groups= and subjects="):
        fit.contrast()
