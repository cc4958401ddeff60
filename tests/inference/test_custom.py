"""A user's own emission against families that exist, and against plain loops."""

import sys
import warnings
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

import avem
from avem.families import UnivariateGaussian
from avem.numerics.precision import in_float64
from tests.chosen import chosen
from tests.panels import awkward_frame, passes_at, prepare_model, start_state

CHAIN = {"initial": [0.4, 0.6], "transition": [[0.8, 0.2], [0.3, 0.7]]}


def choice_log_prob(y, x, history, params, effect):
    eta = params["level"]
    return jnp.where(y == 1, jax.nn.log_sigmoid(eta), jax.nn.log_sigmoid(-eta))


@pytest.mark.slow
@in_float64
def test_a_bernoulli_written_by_hand_is_the_bernoulli():
    rows = awkward_frame()
    rows["y"] = (rows["y1"] > 0).astype(float).where(rows["y1"].notna())
    own = avem.Custom(choice_log_prob, {"level": 0.0}, effects=("level",))
    hand = avem.MixedHMM(avem.outcome("y ~ 1", own), 2)
    known = avem.MixedHMM("y ~ 1 + (1 | who)", 2, "bernoulli")
    level = np.array([-1.0, 1.2])
    anchors = 0.4 * np.random.default_rng(0).standard_normal((1, 5))
    passes = []
    for hmm, params in (
        (hand, {**CHAIN, "level": level}),
        (known, {**CHAIN, "coef": level[:, None, None]}),
    ):
        params = {**params, "effect_covariance": np.array([[0.6]])}
        model, encoded, em = prepare_model(hmm, rows)
        state = start_state(model, encoded, params, anchors)
        step = em.step(state)
        passes.append((passes_at(em.e, step.before)[0], step.state.theta["0.coef"]))
    (a, a_coef), (b, b_coef) = passes
    np.testing.assert_allclose(a.loglik, b.loglik, rtol=1e-12)
    np.testing.assert_allclose(a.mean, b.mean, atol=1e-8)
    np.testing.assert_allclose(a.covariance, b.covariance, atol=1e-8)
    # Expectations under q use fewer nodes for a function that may be dear.
    np.testing.assert_allclose(a.bound, b.bound, atol=2e-4)
    np.testing.assert_allclose(a_coef, b_coef, atol=2e-3)


def walk_log_prob(y, x, history, params, effect):
    seen, last = history
    mean = params["level"] + params["lag"] * last
    sd = jnp.exp(params["log_sd"])
    density = -0.5 * ((y - mean) / sd) ** 2 - jnp.log(sd) - 0.5 * jnp.log(2 * jnp.pi)
    return jnp.where(seen, density, 0.0)  # the first value is only looked back at


def walk_update(history, y, x, params, effect):
    return jnp.ones(()), y


@pytest.mark.slow
@in_float64
def test_a_history_written_by_hand_is_the_lag():
    rng = np.random.default_rng(1)
    rows = pd.DataFrame({"who": np.repeat(range(4), 15), "session": 0})
    rows["t"] = np.tile(range(15), 4)
    rows["y"] = rng.standard_normal(60).cumsum() * 0.3
    own = avem.Custom(
        walk_log_prob,
        {"level": 0.0, "lag": 0.0, "log_sd": 0.0},
        effects=("level",),
        history=(0.0, 0.0),
        update=walk_update,
    )
    hand = avem.MixedHMM(avem.outcome("y ~ 1", own), 2)
    known = avem.MixedHMM("y ~ lag(y) + (1 | who)", 2, UnivariateGaussian())
    level, lag, sd = np.array([-0.5, 0.8]), np.array([0.2, 0.9]), np.array([0.7, 1.1])
    anchors = 0.2 * rng.standard_normal((1, 4))
    found, passes = [], []
    for hmm, params in (
        (hand, {"level": level, "lag": lag, "log_sd": np.log(sd)}),
        (known, {"coef": np.stack([level, lag], 1)[:, None], "sd": sd[:, None]}),
    ):
        params = {**CHAIN, **params, "effect_covariance": np.array([[0.5]])}
        model, encoded, em = prepare_model(hmm, rows)
        found.append(em.step(start_state(model, encoded, params, anchors)))
        passes.append(passes_at(em.e, found[-1].before)[0])
    a, b = found
    np.testing.assert_allclose(*(p.loglik for p in passes), rtol=1e-10)
    np.testing.assert_allclose(*(p.mean for p in passes), atol=1e-8)
    # A Gaussian is quadratic in the effect: three nodes are exact.
    np.testing.assert_allclose(a.bound, b.bound, rtol=1e-10)
    np.testing.assert_allclose(a.state.theta["0.coef"], b.state.theta["0.coef"], atol=1e-5)


def pair_log_prob(y, x, history, params, effect):
    """Two Gaussians with a correlation."""
    mean = jnp.stack([params["first"], params["second"]])
    sd, r = jnp.exp(params["log_sd"]), jnp.tanh(params["link"])
    z = (y - mean) / sd
    square = (z[0] ** 2 - 2 * r * z[0] * z[1] + z[1] ** 2) / (1 - r**2)
    return -0.5 * square - jnp.log(2 * jnp.pi * sd**2) - 0.5 * jnp.log(1 - r**2)


def pair_draw(rng, x, history, params, effect):
    r = np.tanh(params["link"])
    cov = np.exp(2 * params["log_sd"]) * np.array([[1.0, r], [r, 1.0]])
    return rng.multivariate_normal([params["first"], params["second"]], cov)


PAIR = avem.Custom(
    pair_log_prob,
    {"first": 0.0, "second": 0.0, "log_sd": 0.0, "link": 0.0},
    effects=("first", "second"),
    draw=pair_draw,
)
PAIR_PARAMS = {
    **CHAIN,
    "first": np.array([-1.0, 1.2]),
    "second": np.array([0.5, -2.0]),
    "log_sd": np.log([0.7, 1.1]),
    "link": np.arctanh([0.6, -0.3]),
    "effect_covariance": np.array([[0.6, 0.2], [0.2, 0.5]]),
}


@pytest.mark.slow
@in_float64
def test_a_density_of_two_outcomes_is_the_gaussian_with_full_covariance():
    rows = awkward_frame()
    rows.loc[rows[["y1", "y2"]].isna().any(axis=1), ["y1", "y2"]] = np.nan
    hand = avem.MixedHMM("y1 + y2 ~ 1", 2, PAIR)
    known = avem.MixedHMM("y1 + y2 ~ 1 + (1 | who)", 2, avem.Gaussian("full"))
    means = np.stack([PAIR_PARAMS["first"], PAIR_PARAMS["second"]], axis=1)
    r = np.tanh(PAIR_PARAMS["link"])
    noise = np.exp(2 * PAIR_PARAMS["log_sd"]) * np.array([[np.ones(2), r], [r, np.ones(2)]])
    same = {**CHAIN, "effect_covariance": PAIR_PARAMS["effect_covariance"]}
    same |= {"coef": means[:, :, None], "covariance": noise.transpose(2, 0, 1)}
    anchors = 0.4 * np.random.default_rng(0).standard_normal((2, 5))
    found = []
    for hmm, params in ((hand, PAIR_PARAMS), (known, same)):
        model, encoded, em = prepare_model(hmm, rows)
        found.append(passes_at(em.e, start_state(model, encoded, params, anchors))[0])
    a, b = found
    np.testing.assert_allclose(a.loglik, b.loglik, rtol=1e-12)
    np.testing.assert_allclose(a.mean, b.mean, atol=1e-8)
    np.testing.assert_allclose(a.covariance, b.covariance, atol=1e-8)
    np.testing.assert_allclose(a.bound, b.bound, rtol=1e-10)  # a Gaussian: few nodes are exact


def test_two_outcomes_are_drawn_together():
    hmm = avem.MixedHMM("y1 + y2 ~ 1", 2, PAIR)
    made = hmm.simulate(PAIR_PARAMS | {"effect_covariance": np.eye(2) * 1e-6}, 20, 50, seed=0)
    for k, r in enumerate([0.6, -0.3]):
        own = made.frame[["y1", "y2"]][made.states == k]
        assert abs(np.corrcoef(own.T)[0, 1] - r) < 0.1
        wanted = [PAIR_PARAMS["first"][k], PAIR_PARAMS["second"][k]]
        np.testing.assert_allclose(own.mean(), wanted, atol=0.15)


def test_half_of_a_pair_is_refused():
    frame = pd.DataFrame({"who": np.repeat(range(4), 15), "y1": np.arange(60.0), "y2": 1.0})
    frame["y2"] += frame["y1"] ** 2
    frame.loc[7, "y2"] = np.nan
    with pytest.raises(avem.DataError, match=r"Some of y1, y2 are missing and some observed.*7"):
        avem.MixedHMM("y1 + y2 ~ 1", 2, PAIR).fit(frame, subject="who")


def test_a_draw_of_the_wrong_shape_is_told():
    one = avem.Custom(pair_log_prob, dict(PAIR.params), draw=lambda *of: 1.0)
    params = {name: value for name, value in PAIR_PARAMS.items() if name != "effect_covariance"}
    with pytest.raises(avem.ModelError, match=r"2 number\(s\) are wanted: y1, y2"):
        avem.MixedHMM("y1 + y2 ~ 1", 2, one).simulate(params, 2, 3, seed=0)


@pytest.fixture(scope="module")
def bandit():
    sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))
    import bandit as example

    yield example
    sys.path.pop(0)


@in_float64
def test_the_bandit_example_equals_a_plain_loop(bandit):
    people = bandit.make_people(n=3, n_trials=20)
    people.loc[[4, 30], "choice"] = np.nan  # a missed trial teaches nothing
    people = people.rename(columns={"person": "who", "trial": "t"}).assign(session=0)
    model, encoded, em = prepare_model(bandit.model(2), people)
    rate, temperature = np.array([-1.0, 0.5]), np.array([0.5, 3.0])
    params = {
        **CHAIN,
        "rate": rate,
        "temperature": temperature,
        "effect_covariance": np.diag([0.3, 0.4]),
    }
    anchors = 0.3 * np.random.default_rng(0).standard_normal((2, 3))
    found = passes_at(em.e, start_state(model, encoded, params, anchors))[0]
    for i in range(3):
        own = people[people["who"] == i]
        values, alpha, total = np.zeros((2, 2)), np.array(CHAIN["initial"]), 0.0
        for t, (choice, reward) in enumerate(zip(own["choice"], own["reward"], strict=True)):
            alpha = alpha if t == 0 else alpha @ np.array(CHAIN["transition"])
            if np.isnan(choice):
                continue
            preference = (temperature + anchors[1, i]) * (values[:, 1] - values[:, 0])
            chance = 1 / (1 + np.exp(-preference * (1 if choice == 1 else -1)))
            alpha = alpha * chance
            total += np.log(alpha.sum())
            alpha = alpha / alpha.sum()
            speed = 1 / (1 + np.exp(-(rate + anchors[0, i])))
            values[:, int(choice)] += speed * (reward - values[:, int(choice)])
        np.testing.assert_allclose(found.loglik[i], total, rtol=1e-10)


@pytest.mark.slow
def test_the_bandit_example_recovers_its_people(bandit):
    people = bandit.make_people()
    fit = bandit.model(2).fit(people, subject="person", time="trial")
    np.testing.assert_allclose(fit.params["temperature"], [0.2, 4.0], atol=0.6)
    assert np.mean(fit.decode() == people["state"]) > 0.85


def wrong_shape(y, x, history, params, effect):
    return jnp.zeros(3)


def wrong_name(y, x, history, params, effect):
    return params["slope"] * y


def wrong_history(history, y, x, params, effect):
    return jnp.zeros(7)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"log_prob": wrong_shape}, "one number for one step"),
        ({"log_prob": wrong_name}, "params has level"),
        ({"log_prob": choice_log_prob, "update": wrong_history}, "history like the first one"),
        ({"log_prob": choice_log_prob, "params": {}}, "a dict from names"),
        ({"log_prob": choice_log_prob, "params": {"level": "x"}}, "a name and a number"),
        ({"log_prob": choice_log_prob, "effects": "level"}, "list of different names"),
        ({"log_prob": 3}, "a function of"),
    ],
)
def test_mistakes_in_a_custom_family_are_told(options, words):
    rows = pd.DataFrame({"who": np.repeat(range(4), 15), "y": np.tile([0.0, 1.0, 1.0], 20)})

    def fit():
        own = avem.Custom(**{"params": {"level": 0.0}, **options})
        avem.MixedHMM(avem.outcome("y ~ 1", own), 1).fit(rows, subject="who")

    with pytest.raises(avem.ModelError, match=words):
        fit()


def test_a_custom_family_takes_no_group_terms():
    own = avem.Custom(choice_log_prob, {"level": 0.0})
    with pytest.raises(avem.ModelError, match="named in Custom"):
        avem.outcome("y ~ 1 + (1 | who)", own)


def test_simulated_lags_need_no_outcome_column():
    hmm = avem.MixedHMM("y ~ lag(y) + (1 | who)", 2)
    params = {
        **CHAIN,
        "coef": np.array([[[0.0, 0.9]], [[3.0, 0.1]]]),
        "variance": [[0.1], [0.1]],
        "effect_covariance": [[0.1]],
    }
    made = hmm.simulate(params, 5, 40, seed=0)
    calm = made.states == 0
    last = made.frame.groupby("who")["y"].shift()
    both = calm & last.notna().to_numpy()
    slope = np.polyfit(last[both], made.frame["y"][both], 1)[0]
    assert 0.6 < slope < 1.2


# --- parameters that run away --------------------------------------------------------------------


def steep_log_prob(y, x, history, params, effect):
    """A choice that follows x, the more the larger the parameter; a middle far from 0."""
    eta = jnp.exp(params["log_beta"]) * x["x"]
    choice = jnp.where(y[0] == 1, jax.nn.log_sigmoid(eta), jax.nn.log_sigmoid(-eta))
    return choice - 0.5 * (y[1] - params["middle"]) ** 2 - 0.5 * jnp.log(2 * jnp.pi)


@pytest.mark.parametrize("errors", chosen((0, 40), (0,)))
def test_a_parameter_that_runs_away_is_told(errors):
    """With choices that follow x without an error there is no best slope; with errors there is."""
    rng = np.random.default_rng(0)
    rows = pd.DataFrame({"who": np.repeat(range(6), 40), "x": rng.choice([-1.0, 1.0], 240)})
    rows["choice"] = (rows["x"] > 0).astype(float)
    rows.loc[rng.choice(240, errors, replace=False), "choice"] = (rows["x"] < 0).astype(float)
    rows["y"] = 500 + rng.standard_normal(240)
    own = avem.Custom(steep_log_prob, {"log_beta": 0.0, "middle": 490.0})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", avem.AvemWarning)  # it may not converge
        fit = avem.MixedHMM("choice + y ~ x", 1, own).fit(rows, subject="who")
        far = avem.MixedHMM("choice + y ~ x", 1, own).fit(
            rows, subject="who", init={"log_beta": [29.0]}, fixed={"middle": [500.0]}, max_iter=1
        )
    np.testing.assert_allclose(fit.params["middle"], rows["y"].mean(), atol=1e-3)
    assert any("'log_beta' of state 0 ran away" in note for note in fit.info.notes) == (errors == 0)
    told = [note for note in far.info.notes if "'log_beta' of state 0 ran away, to 29" in note]
    assert len(told) == (errors == 0)
    assert not [note for note in (*fit.info.notes, *far.info.notes) if "'middle'" in note]
