"""A user's own emission against families that exist, and against plain loops."""

import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

import avem
from avem.families import Normal
from avem.numerics.precision import in_float64
from tests.panels import awkward_frame, passes_at, prepare_model, start_state

CHAIN = {"initial": [0.4, 0.6], "transition": [[0.8, 0.2], [0.3, 0.7]]}


def choice_log_prob(y, x, history, params, effect):
    eta = params["level"]
    return jnp.where(y == 1, jax.nn.log_sigmoid(eta), jax.nn.log_sigmoid(-eta))


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
    known = avem.MixedHMM("y ~ lag(y) + (1 | who)", 2, Normal())
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
