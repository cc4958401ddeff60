"""Predictions by simulation, against closed forms and enumeration of what may come."""

from itertools import pairwise, product

import jax
import numpy as np
import pandas as pd
import pytest
from scipy.special import expit
from scipy.stats import binom, norm, poisson

import avem
from avem.errors import ModelError
from avem.inference.after.marginal import PosteriorNodes
from tests.fits.kinds import CHAIN, fit_from

NO_EFFECTS = {"effect_covariance": np.zeros((0, 0))}
ONE = {"initial": [1.0], "transition": [[1.0]]} | NO_EFFECTS
MOVES = np.array(CHAIN["transition"])


def frame(**columns):
    """One sequence of subject a, then a shorter one of b."""
    n = len(next(iter(columns.values())))
    rows = pd.DataFrame({"who": "a", "t": np.arange(n), **columns})
    return pd.concat([rows, rows.iloc[: n - 1].assign(who="b")], ignore_index=True)


def of(table, who):
    return table[table["who"] == who].reset_index(drop=True)


def put_nodes(fit, grid, shares):
    """What is known of the effect of a and b, put where the fit keeps it once found."""
    at = [fit.model.effects_in(np.full((2, 1), value)) for value in grid]
    fit.__dict__["_nodes"] = PosteriorNodes(np.stack(at), np.stack(shares, axis=1))


# --- lag ------------------------------------------------------------------------------------------


def test_an_autoregression_has_its_closed_form():
    y, (a, b, v) = [0.3, -1.0, 2.5], (0.7, 0.8, 0.6)
    truth = ONE | {"coef": [[[a, b]]], "variance": [[v]]}
    fit = fit_from(avem.MixedHMM("y ~ lag(y)", 1), truth, frame(y=y), np.zeros((2, 0)))
    table = fit.predict(horizon=5, n_draws=4000, level=0.9)
    assert list(table.columns[:4]) == ["who", "t", "step", "outcome"]
    for who, last in (("a", 2.5), ("b", -1.0)):
        own, h = of(table, who), np.arange(1, 6)
        mean = a * (1 - b**h) / (1 - b) + b**h * last
        sd = np.sqrt(v * (1 - b ** (2 * h)) / (1 - b**2))
        np.testing.assert_allclose(own["mean"], mean, atol=4 * sd.max() / np.sqrt(4000))
        np.testing.assert_allclose(own["sd"], sd, rtol=0.04)
        np.testing.assert_allclose(own["upper"], norm.ppf(0.95, mean, sd), atol=0.12)
    # One step depends on nothing unknown, and is exact.
    first = table[table["step"] == 1]["mean"].reset_index(drop=True)
    np.testing.assert_allclose(first, [a + b * 2.5, a - b], rtol=1e-12)
    pd.testing.assert_frame_equal(table, fit.predict(horizon=5, n_draws=4000, level=0.9))
    other = fit.predict(horizon=5, n_draws=4000, level=0.9, seed=1)
    assert (other["mean"] != table["mean"])[table["step"] > 1].all()


def test_states_and_effects_are_mixed_along_the_paths():
    """Two steps ahead given effect and states is Gaussian: the rest is a sum, on a dense grid."""
    level, slope, var = np.array([-1.0, 2.0]), np.array([0.2, 0.7]), np.array([0.5, 1.0])
    truth = CHAIN | {
        "coef": [[[-1.0, 0.2]], [[2.0, 0.7]]],
        "variance": [[0.5], [1.0]],
        "effect_covariance": [[0.8]],
    }
    data = frame(y=[0.5, 1.5, -0.5, 2.0, 3.0])
    fit = fit_from(avem.MixedHMM("y ~ lag(y) + (1 | who)", 2), truth, data, np.zeros((2, 1)))
    grid, forward = np.linspace(-4, 4, 41), {}
    for who in "ab":
        y = data[data["who"] == who]["y"].to_numpy()
        alpha = np.tile(np.array(CHAIN["initial"]), (len(grid), 1))
        for before, now in pairwise(y):
            alpha = alpha @ MOVES  # nothing is modelled in the first row
            alpha *= norm.pdf(now, level + slope * before + grid[:, None], np.sqrt(var))
        alpha *= norm.pdf(grid, 0, np.sqrt(0.8))[:, None]
        forward[who] = alpha / alpha.sum()
    put_nodes(fit, grid, [forward[who].sum(1) for who in "ab"])
    table = fit.predict(horizon=2, n_draws=20_000)
    for who in "ab":
        y = data[data["who"] == who]["y"].to_numpy()
        alpha = forward[who] @ MOVES
        mean = square = 0.0
        for k, m in product(range(2), range(2)):
            weight = alpha[:, k] * MOVES[k, m]
            first = level[k] + slope[k] * y[-1] + grid
            centre = level[m] + slope[m] * first + grid
            mean += (weight * centre).sum()
            square += (weight * (centre**2 + var[m] + slope[m] ** 2 * var[k])).sum()
        own, sd = of(table, who), np.sqrt(square - mean**2)
        assert own["mean"][1] == pytest.approx(mean, abs=5 * sd / np.sqrt(20_000))
        assert own["sd"][1] == pytest.approx(sd, rel=0.02)
        # The states do not look back, so their chances are not drawn.
        states = of(fit.predict(horizon=2, of="states"), who)["probability"].to_numpy()
        np.testing.assert_allclose(states[:2], alpha.sum(0), rtol=1e-9)
        np.testing.assert_allclose(states[2:], alpha.sum(0) @ MOVES, rtol=1e-9)


def test_transitions_that_look_back_at_drawn_outcomes():
    coef = np.zeros((2, 2, 2))
    coef[0, 1], coef[1, 0] = [-0.5, 1.0], [0.2, -0.8]
    truth = {"initial": [0.4, 0.6], "transition_coef": coef} | NO_EFFECTS
    truth |= {"coef": [[[-1.0]], [[1.0]]], "variance": [[0.8], [0.8]]}
    y = [0.5, -0.2, 0.9]
    hmm = avem.MixedHMM("y ~ 1", 2, transition="~ lag(y)")
    fit = fit_from(hmm, truth, frame(y=y), np.zeros((2, 0)))

    def moves(last):
        up, down = expit(-0.5 + 1.0 * last), expit(0.2 - 0.8 * last)
        return np.moveaxis(np.array([[1 - up, up], [down, 1 - down]]), (0, 1), (-2, -1))

    alpha = np.array([0.4, 0.6]) * norm.pdf(y[0], [-1, 1], np.sqrt(0.8))
    for before, now in pairwise(y):
        alpha = (alpha @ moves(before)) * norm.pdf(now, [-1, 1], np.sqrt(0.8))
    first = alpha / alpha.sum() @ moves(y[-1])
    grid = np.linspace(-6, 6, 2001)
    heights = norm.pdf(grid[:, None], [-1, 1], np.sqrt(0.8)) * (grid[1] - grid[0])
    second = np.einsum("k,yk,ykm->m", first, heights, moves(grid))
    found = of(fit.predict(horizon=2, of="states", n_draws=20_000), "a")["probability"].to_numpy()
    np.testing.assert_allclose(found[:2], first, rtol=1e-9)
    np.testing.assert_allclose(found[2:], second, atol=0.006)
    mean = of(fit.predict(horizon=2, n_draws=20_000), "a")["mean"]
    np.testing.assert_allclose(mean, [first @ [-1, 1], second @ [-1, 1]], atol=0.02)


def test_counts_have_whole_quantiles_and_trials_are_read():
    truth = ONE | {"coef": [[[0.5, 0.2]]]}
    fit = fit_from(
        avem.MixedHMM("n ~ lag(n)", 1, "poisson"), truth, frame(n=[2, 0, 3]), np.zeros((2, 0))
    )
    counts = np.arange(60)
    step = poisson.pmf(counts, np.exp(0.5 + 0.2 * counts[:, None]))
    chance = poisson.pmf(counts, np.exp(0.5 + 0.2 * 3)) @ step
    found = of(fit.predict(horizon=2, n_draws=20_000), "a").loc[1]
    assert found["mean"] == pytest.approx(chance @ counts, rel=0.02)
    assert found["upper"] == np.searchsorted(np.cumsum(chance), 0.975)
    hmm = avem.MixedHMM("wins ~ lag(wins)", 1, avem.Binomial("trials"))
    data = frame(wins=[2, 0, 3], trials=[4, 5, 6])
    fit = fit_from(hmm, ONE | {"coef": [[[-1.0, 0.4]]]}, data, np.zeros((2, 0)))
    later = fit.predict(horizon=2, future={"trials": [4, 8]}, n_draws=20_000)
    wins = np.arange(5)
    chance = binom.pmf(wins, 4, expit(-1.0 + 0.4 * 3))
    wanted = 8 * chance @ expit(-1.0 + 0.4 * wins)
    assert of(later, "a")["mean"][1] == pytest.approx(wanted, rel=0.01)


def test_what_looks_back_to_nothing_is_not_predicted():
    truth = ONE | {"coef": [[[0.0, 0.5]]], "variance": [[1.0]]}
    data = frame(y=[0.3, -1.0, np.nan])
    fit = fit_from(avem.MixedHMM("y ~ lag(y)", 1), truth, data, np.zeros((2, 0)))
    with pytest.warns(avem.AvemWarning, match=r"3 value\(s\) ahead are not predicted \(NaN\)"):
        table = fit.predict(horizon=3, n_draws=50)
    for who in ("a", "b"):  # a monitor says the same of the first step
        row = fit.monitor(data[data["who"] == who]).forecast().iloc[0]
        assert row["mean"] == pytest.approx(of(table, who)["mean"].iloc[0], nan_ok=True)
    assert fit.monitor(subject="new").forecast()["mean"].isna().all()
    assert of(table, "a")[["mean", "sd", "lower", "upper"]].isna().all(axis=None)
    assert of(table, "b")[["mean", "sd", "lower", "upper"]].notna().all(axis=None)
    one, other = fit.plot.forecast(horizon=2).axes[:2]
    assert [text.get_text()[:5] for text in one.texts] == ["lag()"]
    assert not other.texts
    with pytest.raises(ModelError, match="n_draws is 0"):
        fit.predict(horizon=3, n_draws=0)
    now = avem.MixedHMM([avem.outcome("z ~ y + lag(y)"), avem.outcome("y ~ 1")], 1)
    both = ONE | {"z.coef": [[[0.0, 0.5, 0.5]]], "z.variance": [[1.0]]}
    both |= {"y.coef": [[[0.0]]], "y.variance": [[1.0]]}
    fit = fit_from(now, both, data.fillna(0.0).assign(z=1.0), np.zeros((2, 0)))
    with pytest.raises(ModelError, match="reads y, which is not known at the steps ahead"):
        fit.predict(horizon=1)


# --- custom outcomes ------------------------------------------------------------------------------

BIAS, HABIT = np.array([-0.5, 0.8]), np.array([1.5, -0.7])


def drive(x, history, params):
    return params["bias"] + params["habit"] * history["habit"] + 0.4 * x["x"]


def log_prob(y, x, history, params, effect):
    return jax.nn.log_sigmoid(drive(x, history, params) * (2 * y - 1))


def update(history, y, x, params, effect):
    """How much is remembered depends on the subject, and on the state."""
    rate = 0.3 + 0.2 * jax.nn.sigmoid(params["bias"])
    return {"habit": (1 - rate) * history["habit"] + rate * (2 * y - 1)}


def draw(rng, x, history, params, effect):
    return float(rng.random() < expit(drive(x, history, params)))


@pytest.fixture(scope="module")
def custom():
    family = avem.Custom(
        log_prob,
        {"bias": 0.0, "habit": 1.0},
        effects=["bias"],
        history={"habit": 0.0},
        update=update,
        draw=draw,
    )
    truth = CHAIN | {"bias": BIAS, "habit": HABIT, "effect_covariance": [[0.4]]}
    data = frame(y=[1.0, 0, np.nan, 1, 1, 0], x=[0.0, 1, -1, 0, 0.5, -0.5])
    effects = np.array([[0.6], [-0.3]])
    return fit_from(avem.MixedHMM("y ~ x", 2, family), truth, data, effects), data, effects


def enumerated(y, x, effect, future):
    """Probabilities of a 1 at the steps ahead, by all outcomes and states to come."""
    bias = BIAS + effect
    rate = 0.3 + 0.2 * expit(bias)

    def chance(value, covariate, habit):
        p = expit(bias + HABIT * habit + 0.4 * covariate)
        return p if value else 1 - p

    alpha, habit = np.array(CHAIN["initial"]), np.zeros(2)
    for value, covariate in zip(y, x, strict=True):
        if not np.isnan(value):
            alpha = alpha * chance(value, covariate, habit)
            habit = (1 - rate) * habit + rate * (2 * value - 1)
        alpha = alpha @ MOVES
    alpha /= alpha.sum()
    ones = np.zeros(len(future))
    for path in product([0, 1], repeat=len(future)):
        weight, memory = alpha, habit
        for value, covariate in zip(path, future, strict=True):
            weight = (weight * chance(value, covariate, memory)) @ MOVES
            memory = (1 - rate) * memory + rate * (2 * value - 1)
        ones += weight.sum() * np.array(path)
    return ones


def test_custom_outcomes_are_drawn(custom):
    fit, data, effects = custom
    future = {"x": [1.0, -2.0, 0.0]}
    table = fit.predict(horizon=3, future=future, effects="fitted", n_draws=4000)
    for who, effect in zip("ab", effects[:, 0], strict=True):
        rows = data[data["who"] == who]
        wanted = enumerated(rows["y"], rows["x"], effect, future["x"])
        own = of(table, who)
        np.testing.assert_allclose(own["mean"], wanted, atol=0.03)
        np.testing.assert_allclose(own["sd"], np.sqrt(wanted * (1 - wanted)), atol=0.02)
        assert set(own["lower"]) | set(own["upper"]) <= {0.0, 1.0}
    # Each node of the effect has a memory of its own.
    put_nodes(fit, [-2.0, 2.0], [np.array([0.25, 0.75])] * 2)
    table = of(fit.predict(horizon=3, future=future, n_draws=4000), "a")
    rows = data[data["who"] == "a"]
    each = [enumerated(rows["y"], rows["x"], effect, future["x"]) for effect in (-2.0, 2.0)]
    np.testing.assert_allclose(table["mean"], 0.25 * each[0] + 0.75 * each[1], atol=0.03)


def test_a_custom_outcome_without_draw_cannot_be_predicted(custom):
    _, data, effects = custom
    silent = avem.Custom(log_prob, {"bias": 0.0, "habit": 1.0}, ["bias"], {"habit": 0.0}, update)
    truth = CHAIN | {"bias": BIAS, "habit": HABIT, "effect_covariance": [[0.4]]}
    mute = fit_from(avem.MixedHMM("y ~ x", 2, silent), truth, data, effects)
    with pytest.raises(ModelError, match=r"give Custom\(draw=...\)"):
        mute.predict(horizon=1, future={"x": 0.0})
    states = mute.predict(horizon=1, future={"x": 0.0}, of="states", effects="fitted")
    assert len(states) == 4
