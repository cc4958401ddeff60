"""Hidden semi-Markov models from fit to report."""

import numpy as np
import pytest

import avem
from avem.inference.after.hmm_states import total_loglik

N, T = 16, 60
FORMULA = "y ~ 1 + (1 | subject)"
STAYS = avem.Duration("negative_binomial", "~ 1 + (1 | subject)", max=20)
PARAMS = {
    "initial": np.array([0.5, 0.5]),
    "transition": np.array([[0.0, 1.0], [1.0, 0.0]]),
    "duration_coef": np.log([[3.0], [7.0]]),
    "duration_shape": np.array([20.0, 20.0]),
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
    return model.fit(drawn.frame, time="time", n_starts=2, refine=None)


def plain_loglik(fit, effects):
    """Log likelihood of the first subject at given effects: a forward pass over (state, row)."""
    params, longest = fit.params, fit.model.duration.longest
    from scipy import stats

    y = fit.panel.table["y"].to_numpy()[fit.panel.row_subject == 0]
    level, longer = effects
    mean = np.exp(params["duration_coef"][:, 0] + longer)
    size = params["duration_shape"]
    own = stats.nbinom(size, size / (size + mean))
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
    assert (fit.params["duration_shape"] > 4).all()  # far from geometric, which is 1
    assert (np.asarray(fit.decode()) == drawn.states).mean() > 0.95
    assert np.corrcoef(fit.effects_mean[:, 1], drawn.effects[:, 1])[0, 1] > 0.6
    assert fit.bound > fit_without(drawn).bound + 20


def fit_without(drawn):
    return avem.MixedHMM(FORMULA, 2).fit(drawn.frame, time="time", n_starts=2, refine=None)


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
    frame = drawn.frame
    hmm = avem.MixedHMM(FORMULA, 2).fit(frame, time="time", n_starts=2, refine=None, tol=1e-8)
    semi = avem.MixedHMM(FORMULA, 2, duration="geometric").fit(
        frame, time="time", n_starts=2, refine=None, tol=1e-8
    )
    assert semi.model.duration.longest == 1
    assert semi.bound == pytest.approx(hmm.bound, abs=1e-6)
    assert semi.n_params == hmm.n_params
    stay = np.diagonal(hmm.params["transition"])
    odds = semi.params["duration_coef"][:, 0]
    np.testing.assert_allclose(odds, np.log(stay / (1 - stay)), atol=1e-5)
    np.testing.assert_allclose(semi.params["coef"], hmm.params["coef"], atol=1e-6)
    # At the same parameters everything is the same to rounding.
    init = {name: hmm.params[name] for name in ("initial", "coef", "variance", "effect_covariance")}
    moves = {
        "transition": PARAMS["transition"],
        "duration_coef": np.log(stay / (1 - stay))[:, None],
    }
    model = avem.MixedHMM(FORMULA, 2, duration="geometric")
    same = model.fit(frame, time="time", fixed={**init, **moves}, refine=None)
    np.testing.assert_allclose(same.state_probabilities(), hmm.state_probabilities(), atol=1e-6)
    np.testing.assert_allclose(float(same.loglik()), float(hmm.loglik()), rtol=1e-8)
    np.testing.assert_allclose(
        same.dwell(level=None)["expected"], hmm.dwell(level=None)["expected"]
    )
    np.testing.assert_allclose(
        same.stationary(level=None)["share"], hmm.stationary(level=None)["share"], atol=1e-8
    )
