"""Hidden semi-Markov models from fit to report."""

import jax
import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import avem
from avem.cli import app
from avem.fits.durations import beyond
from avem.fits.estimates import estimates
from avem.inference.after.hmm_states import total_loglik
from avem.models import hmm_layout
from avem.numerics.precision import in_float64
from tests.panels import awkward_frame, chunk_of, prepare_model

N, T = 16, 60
FORMULA = "y ~ 1 + (1 | subject)"
STAYS = avem.Duration("shifted_poisson", "~ 1 + (1 | subject)", max=20)
PARAMS = {
    "initial": np.array([0.5, 0.5]),
    "transition": np.array([[0.0, 1.0], [1.0, 0.0]]),
    "duration_coef": np.log([[3.0], [7.0]]),
    "coef": np.array([-1.0, 1.0]).reshape(2, 1, 1),
    "variance": np.full((2, 1), 0.16),
    "effect_covariance": np.diag([0.1, 0.16]),
}


@pytest.fixture(scope="module")
def model():
    return avem.MixedHMM(FORMULA, 2, duration=STAYS)


@pytest.fixture(scope="module")
def drawn(model):
    return model.simulate(PARAMS, N, T, seed=4)


@pytest.fixture(scope="module")
def fit(model, drawn):
    return model.fit(drawn.frame, time="time", n_starts=1, refine=None)


def plain_loglik(fit, effects):
    """Log likelihood of the first subject at given effects: a forward pass over (state, row)."""
    params, longest = fit.params, fit.model.duration.longest
    from scipy import stats

    y = fit.panel.table["y"].to_numpy()[fit.panel.row_subject == 0]
    level, longer = effects
    mean = np.exp(params["duration_coef"][:, 0] + longer)
    own = stats.poisson(mean)
    d = np.arange(longest)[:, None]
    reach = own.sf(d - 1)  # 1 + a count
    leave = own.pmf(d) / reach
    phase = reach.copy()
    phase[-1] /= leave[-1]
    phase /= phase.sum(0)
    now, total = params["initial"] * phase, 0.0
    sd = np.sqrt(params["variance"][:, 0])
    for t, value in enumerate(y):
        if t:
            ends, on = (now * leave).sum(0), now * (1 - leave)
            now = np.roll(on, 1, axis=0)
            now[-1] += on[-1]
            now[0] = ends @ params["transition"]
        if not np.isnan(value):
            now = now * stats.norm.pdf(value, params["coef"][:, 0, 0] + level, sd)
        total += np.log(now.sum())
        now = now / now.sum()
    return total


def test_it_finds_the_truth(fit, drawn):
    np.testing.assert_allclose(fit.params["coef"], PARAMS["coef"], atol=0.25)
    stay = 1 + np.exp(fit.params["duration_coef"][:, 0])
    np.testing.assert_allclose(stay, [4.0, 8.0], rtol=0.25)
    assert (np.asarray(fit.decode()) == drawn.states).mean() > 0.95
    assert np.corrcoef(fit.effects_mean[:, 1], drawn.effects[:, 1])[0, 1] > 0.6
    assert fit.bound > fit_without(drawn).bound + 20


def fit_without(drawn):
    return avem.MixedHMM(FORMULA, 2).fit(drawn.frame, time="time", n_starts=1, refine=None)


def test_the_likelihood_is_that_of_a_plain_forward_pass(fit):
    effects = np.array([0.3, -0.2])
    at = np.zeros((2, N))
    at[:, 0] = fit.model.effects_in(effects[None])[:, 0]
    one = fit.model.encode(fit.panel)
    unit = fit.model.scaling.log_jacobian(~np.isnan(one.y)).sum()
    others = at.copy()
    others[:, 0] = 0.0
    gained = total_loglik(one, fit.theta, at) - total_loglik(one, fit.theta, others)
    wanted = plain_loglik(fit, effects) - plain_loglik(fit, np.zeros(2))
    assert gained == pytest.approx(wanted, abs=1e-8)
    assert np.isfinite(unit)


def test_geometric_durations_are_the_markov_chain(drawn):
    frame, options = drawn.frame, {"time": "time", "n_starts": 1, "refine": None, "tol": 1e-8}
    hmm = avem.MixedHMM(FORMULA, 2).fit(frame, **options)
    model = avem.MixedHMM(FORMULA, 2, duration="geometric")
    semi = model.fit(frame, **options)
    assert semi.model.duration.longest == 1
    assert semi.bound == pytest.approx(hmm.bound, abs=1e-6)
    assert semi.n_params == hmm.n_params
    stay = np.diagonal(hmm.params["transition"])
    odds = np.log(stay / (1 - stay))[:, None]
    np.testing.assert_allclose(semi.params["duration_coef"], odds, atol=1e-5)
    np.testing.assert_allclose(semi.params["coef"], hmm.params["coef"], atol=1e-6)
    # At the same parameters everything is the same to rounding.
    held = {name: hmm.params[name] for name in ("initial", "coef", "variance", "effect_covariance")}
    held |= {"transition": PARAMS["transition"], "duration_coef": odds}
    same = model.fit(frame, time="time", fixed=held, refine=None)
    own, other = (np.asarray(one.state_probabilities()) for one in (same, hmm))
    np.testing.assert_allclose(own, other, atol=1e-6)
    assert float(same.loglik()) == pytest.approx(float(hmm.loglik()), rel=1e-8)
    assert (np.asarray(same.decode()) == np.asarray(hmm.decode())).all()
    for table in ("dwell", "stationary"):
        own, other = (getattr(one, table)(level=None).iloc[:, 1] for one in (same, hmm))
        np.testing.assert_allclose(own, other, rtol=1e-8)


def test_stays_and_shares_are_those_of_a_long_sequence(model, fit):
    free = {**fit.params, "effect_covariance": 1e-12 * np.eye(2)}
    states = model.simulate(free, n_subjects=1, n_times=20_000, seed=1).states
    changes = np.flatnonzero(np.diff(states)) + 1
    lengths, of = np.diff(changes), states[changes[:-1]]
    mean = [lengths[of == k].mean() for k in range(2)]
    dwell, shares = fit.dwell(level=None), fit.stationary(level=None)
    np.testing.assert_allclose(dwell["expected"], mean, rtol=0.03)
    np.testing.assert_allclose(shares["share"], np.bincount(states) / len(states), atol=0.02)
    implied = fit.dwell(by="length").query("state == 0 and length <= 4")["implied"].to_numpy()
    assert implied.argmax() > 0  # a geometric one would be highest at a single row
    assert fit.model.duration.at(fit.theta, np.ones((1, 1)), np.zeros((1, 2))).mean[0] == (
        pytest.approx(dwell["expected"].to_numpy(), rel=1e-9)
    )


def test_the_summary_has_the_intervals_of_dwell(fit):
    parts = estimates(fit, True, 0.95).parts
    (stays,) = [part for part in parts if part.section.title.startswith("Mean stay")]
    shown = [(cell.estimate, cell.lower, cell.upper) for cell in stays.cells]
    wanted = fit.dwell()[["expected", "lower", "upper"]].to_numpy()
    np.testing.assert_allclose(shown, wanted, rtol=1e-4)


def test_it_is_saved_named_and_told(fit, drawn, tmp_path, blank_pictures):
    fit.save(tmp_path / "fit.avem")
    again = avem.load(tmp_path / "fit.avem")
    assert again.model.spec.duration == STAYS
    assert (np.asarray(again.decode(drawn.frame)) == np.asarray(fit.decode())).all()
    text = str(fit.summary(errors=False))
    assert "semi-Markov" in text
    assert "Mean stay at effect 0" in text
    assert "Moves when a stay ends" in text
    assert "shifted_poisson" in repr(avem.MixedHMM.from_spec(fit.model.spec))
    fit.report(tmp_path / "page.html", thorough=False)
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "1 + Poisson" in page
    assert "duration=avem.Duration" in page
    assert fit.model.effect_names == ["y: Intercept", "duration: Intercept"]


def test_forecasts_know_how_long_a_stay_has_lasted(fit):
    """The longer the last stay has lasted, the sooner it ends."""
    y = np.repeat([1.0, -1.0, 1.0], [8, 3, 12])
    stays = {}
    for last in (2, 12):
        frame = pd.DataFrame({"subject": 0, "time": np.arange(11 + last), "y": y[: 11 + last]})
        ahead = fit.predict(frame, horizon=1, of="states", effects="fitted")
        stays[last] = ahead.set_index("state")["probability"]["state_1"]
    assert stays[2] > stays[12] + 0.1
    residuals = fit.residuals()["y"]
    assert abs(residuals.mean()) < 0.15
    assert 0.85 < residuals.std() < 1.15


def test_a_maximum_that_is_too_short_is_told(fit):
    assert not beyond(fit.model, fit.theta)
    long = {**fit.theta, "duration.coef": fit.theta["duration.coef"] + [[0.0], [1.5]]}
    (told,) = beyond(fit.model, long)
    assert "state 1" in told
    assert "larger max" in told


def test_what_a_fit_with_durations_cannot_do_is_said(drawn, fit):
    with pytest.raises(avem.ModelError, match="how long the stay has lasted"):
        fit.transition_probabilities(3)
    whole = avem.MixedHMM("y ~ 1", 2, duration=avem.Duration("gamma", cut=False, max=9))
    params = {name: value for name, value in PARAMS.items() if name != "effect_covariance"}
    params["duration_shape"] = np.ones(2)
    with pytest.raises(avem.ModelError, match="whole stay"):
        whole.simulate(params, 2, 9)
    with pytest.raises(avem.ModelError, match="0 on its diagonal"):
        whole.fit(drawn.frame, "subject", init={"transition": np.full((2, 2), 0.5)})


# --- derivatives ----------------------------------------------------------------------------------

LINES = {
    "each": ("~ x + (1 | who)", "negative_binomial"),
    "cells": ("~ dose + (1 | who)", "negative_binomial"),
    "lane": ("~ age + (1 | who)", "shifted_poisson"),
}


def prepared(way, cut=True):
    formula, family = LINES[way]
    rng = np.random.default_rng(0)
    frame = awkward_frame(n_outcomes=1).rename(columns={"y1": "y"})
    frame["dose"] = rng.integers(0, 2, len(frame)).astype(float)
    frame["age"] = frame.groupby(["who", "session"])["x"].transform("first")
    stays = avem.Duration(family, formula, max=3, cut=cut)
    model = avem.MixedHMM("y ~ 1 + (1 | who)", 2, duration=stays)
    model, data, em = prepare_model(model, frame)
    theta = {**model.middle(), **model.chain_start(2.0)}
    theta["0.coef"] = np.array([-1.0, 1.0]).reshape(2, 1, 1)
    theta["0.covariance"] = np.full((2, 1, 1), 0.8)
    theta["duration.coef"] = theta["duration.coef"] + rng.normal(
        0, 0.4, theta["duration.coef"].shape
    )
    return em, theta, rng.normal(0, 0.5, (2, data.chunks[0].real.shape[0]))


@pytest.mark.parametrize(
    "way", ["each", *(pytest.param(w, marks=pytest.mark.slow) for w in ("cells", "lane"))]
)
@in_float64
def test_derivatives_are_those_of_the_expected_log_likelihood(way, monkeypatch):
    if way == "each":
        monkeypatch.setattr(hmm_layout, "_MAX_CELLS", 1)
    em, theta, f = prepared(way)
    kernel, chunk = em.kernel, chunk_of(em)
    block = kernel.process.duration
    assert (block.pattern >= 0, block.by_lane) == {
        "each": (False, False),
        "cells": (True, False),
        "lane": (False, True),
    }[way]

    @jax.jit
    def found(theta, f):
        posterior = kernel.path_posterior(theta, f, chunk, "log")
        local = kernel.local(theta, f, chunk, "scaled")
        quadratic = kernel.quadratic(theta, local)
        terms = kernel.effect_terms(theta, f, None, local, quadratic, chunk)
        coef = kernel.coef_terms("duration.coef", theta["duration.coef"], f, None, local, chunk)

        def height(part, at):
            return kernel.expected_complete({**theta, "duration.coef": part}, at, posterior, chunk)

        own = theta["duration.coef"]
        by_coef = jax.grad(lambda b: height(b, f).sum())(own)
        by_effect = jax.grad(lambda g: height(own, g).sum())(f)
        entropy = posterior.loglik.sum() - height(own, f).sum()
        return terms.gradient, by_effect, coef.gradient, by_coef, entropy

    slope, by_effect, coef, by_coef, entropy = map(np.asarray, found(theta, f))
    np.testing.assert_allclose(slope, by_effect, atol=1e-8)
    np.testing.assert_allclose(coef.reshape(by_coef.shape), by_coef, atol=1e-8)
    assert entropy > 0


# --- long ones ------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    "method", ["adaptive", "mean_field", "structured", "partial", "quadrature"]
)
def test_every_method_fits(model, drawn, method):
    found = model.fit(drawn.frame, time="time", n_starts=2, method=method, refine=None)
    stay = 1 + np.exp(found.params["duration_coef"][:, 0])
    np.testing.assert_allclose(stay, [4.0, 8.0], rtol=0.3)
    assert np.sqrt(found.params["effect_covariance"][1, 1]) == pytest.approx(0.4, abs=0.25)


THREE = {
    "initial": np.full(3, 1 / 3),
    "transition": np.array([[0, 0.7, 0.3], [0.5, 0, 0.5], [0.2, 0.8, 0]]),
    "duration_coef": np.log([[4.0], [9.0], [6.0]]),
    "duration_shape": np.array([10.0, 3.0, 30.0]),
    "coef": np.array([-2.0, 0.0, 2.0]).reshape(3, 1, 1),
    "variance": np.full((3, 1), 0.5),
    "effect_covariance": np.array([[0.09]]),
}


@pytest.fixture(scope="module")
def three():
    stays = avem.Duration("negative_binomial", "~ 1 + (1 | subject)", max=40)
    return avem.MixedHMM("y ~ 1", 3, duration=stays)


@pytest.mark.slow
def test_recovery_of_three_states_with_effects_on_durations(three):
    drawn = three.simulate(THREE, 60, 300, seed=1)
    found = three.fit(drawn.frame, time="time", n_starts=2)
    np.testing.assert_allclose(found.params["duration_coef"], THREE["duration_coef"], atol=0.15)
    np.testing.assert_allclose(found.params["transition"], THREE["transition"], atol=0.06)
    # The variance beyond that of a Poisson number is mean^2 / size.
    np.testing.assert_allclose(
        1 / found.params["duration_shape"], 1 / THREE["duration_shape"], atol=0.08
    )
    assert np.sqrt(found.params["effect_covariance"][0, 0]) == pytest.approx(0.3, abs=0.08)
    assert np.corrcoef(found.effects_mean[:, 0], drawn.effects[:, 0])[0, 1] > 0.85


@pytest.mark.slow
def test_what_is_not_there_is_not_found(three):
    """Subjects that are alike, and stays of a Markov chain, whose size is 1."""
    alike = {**THREE, "effect_covariance": np.array([[1e-12]]), "duration_shape": np.ones(3)}
    found = three.fit(three.simulate(alike, 60, 150, seed=2).frame, time="time", n_starts=2)
    assert found.params["effect_covariance"][0, 0] < 0.01
    np.testing.assert_allclose(found.params["duration_shape"], 1.0, atol=0.3)


# --- the command ----------------------------------------------------------------------------------


def command(frame, folder, *options):
    frame.to_csv(folder / "data.csv", index=False)
    given = ["fit", folder / "data.csv", "y ~ 1", "--states", 2, "--out", folder / "out"]
    given += ["--subject", "subject", "--time", "time", "--starts", 1, "--no-plots", *options]
    return CliRunner().invoke(app, [str(one) for one in given], env={"AVEM_NO_CACHE": "1"})


def test_the_command_says_what_is_wrong_with_durations(drawn, tmp_path):
    assert "choose one of" in command(drawn.frame, tmp_path, "--duration", "gama").output
    alone = command(drawn.frame, tmp_path, "--duration-formula", "~ x")
    assert "goes with --duration" in alone.output
    assert alone.exit_code != 0
    assert (
        "3 families for 2"
        in command(drawn.frame, tmp_path, "--duration", "gamma,gamma,gamma").output
    )


@pytest.mark.slow
def test_the_command_fits_durations(drawn, tmp_path):
    done = command(drawn.frame, tmp_path, "--duration", "shifted_poisson,geometric")
    assert done.exit_code == 0, done.output
    found = avem.load(tmp_path / "out" / "fit.avem")
    assert found.model.spec.duration.words == ("shifted_poisson", "geometric")
    assert found.model.spec.duration.max is not None
