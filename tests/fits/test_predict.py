"""Predictions and scores: against all paths on a dense grid of the effect, and simulation."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy.stats import norm, poisson

import avem
from avem.errors import AvemWarning, DataError, ModelError
from tests.brute import enumerate_paths, log_sum
from tests.fits.kinds import fit_from

MODEL = avem.MixedHMM([avem.outcome("y ~ 1 + (1 | who)"), avem.outcome("n ~ 1", "poisson")], 2)
TRUTH = {
    "initial": [0.3, 0.7],
    "transition": [[0.8, 0.2], [0.35, 0.65]],
    "y.coef": [[[-1.0]], [[2.0]]],
    "y.variance": [[0.6], [1.5]],
    "n.coef": [[[0.0]], [[1.5]]],
    "effect_covariance": [[1.3]],
}
INITIAL, MOVES = np.array(TRUTH["initial"]), np.array(TRUTH["transition"])
GRID = np.linspace(-7.0, 7.0, 281)
KEYS = {"time": "t", "sequence": "day"}


def make_frame(lengths, seed):
    """Sequences of these lengths, a value of either outcome missing in some rows, shuffled."""
    rng = np.random.default_rng(seed)
    rows = [(w, s, t) for w, of in lengths.items() for s, n in enumerate(of) for t in range(n)]
    frame = pd.DataFrame(rows, columns=["who", "day", "t"])
    frame["y"] = rng.normal(0.5, 2.0, len(frame)).round(2)
    frame["n"] = rng.poisson(2.0, len(frame)).astype(float)
    frame.loc[1, "y"] = frame.loc[4, "n"] = np.nan
    frame.loc[3, ["y", "n"]] = np.nan
    return frame.sample(frac=1.0, random_state=seed)


SEEN = make_frame({"a": [4, 2], "b": [3], "c": [5, 1]}, 1)
NEW = make_frame({"b": [3, 2], "z": [4, 2]}, 2)


@pytest.fixture(scope="module")
def fit():
    return MODEL.fit(SEEN, **KEYS, init=TRUTH, fixed=TRUTH, refine=None)


# --- brute force ----------------------------------------------------------------------------------


def table_of(rows):
    """(grid, time, state) log densities of one sequence in order."""
    mean = np.array(TRUTH["y.coef"])[:, 0, 0] + GRID[:, None, None]
    sd, rate = np.sqrt(np.array(TRUTH["y.variance"])[:, 0]), np.exp([0.0, 1.5])
    y, n = rows["y"].to_numpy()[:, None], rows["n"].to_numpy()[:, None]
    of_y = np.where(np.isnan(y), 0.0, norm.logpdf(y, mean, sd))
    return of_y + np.where(np.isnan(n), 0.0, poisson.logpmf(np.nan_to_num(n), rate))


def sequences(frame):
    return [rows.sort_values("t") for _, rows in frame.groupby(["who", "day"])]


def height(frame):
    """(grid,) log p(rows of one subject | effect), by all paths."""
    total = np.zeros(len(GRID))
    for rows in sequences(frame):
        total += [log_sum(enumerate_paths(INITIAL, MOVES, table)[1]) for table in table_of(rows)]
    return total


def log_prior():
    return norm.logpdf(GRID, 0.0, np.sqrt(1.3)) + np.log(GRID[1] - GRID[0])


def weights(frame):
    """(grid,) the posterior of the effect given the rows of one subject."""
    at = height(frame) + log_prior()
    return np.exp(at - log_sum(at))


def chances_ahead(rows, horizon):
    """(grid, state) of the state `horizon` steps after a sequence, by all paths."""
    blank = pd.DataFrame({"y": [np.nan] * horizon, "n": [np.nan] * horizon})
    out = []
    for table in table_of(pd.concat([rows, blank])):
        paths, joint = enumerate_paths(INITIAL, MOVES, table)
        weight = np.exp(joint - log_sum(joint))
        out.append([weight[paths[:, -1] == k].sum() for k in range(2)])
    return np.array(out)


def check_ahead(found, rows, posterior, horizon):
    """The predictions for one sequence, given the effect's posterior on the grid."""
    some = posterior > 1e-12
    share = (posterior[:, None] * chances_ahead(rows, horizon))[some]
    at = GRID[some, None] + np.array([-1.0, 2.0])
    sd = np.sqrt(np.array([0.6, 1.5]))
    own = found[found["step"] == horizon].set_index("outcome")
    mean = (share * at).sum()
    np.testing.assert_allclose(own.loc["y", "mean"], mean, rtol=2e-3)
    variance = (share * (sd**2 + (at - mean) ** 2)).sum()
    np.testing.assert_allclose(own.loc["y", "sd"], np.sqrt(variance), rtol=2e-3)
    for end, p in (("lower", 0.05), ("upper", 0.95)):
        passed = (share * norm.cdf(own.loc["y", end], at, sd)).sum()
        np.testing.assert_allclose(passed, p, atol=3e-4)
    rate, by_state = np.exp([0.0, 1.5]), share.sum(0)
    np.testing.assert_allclose(own.loc["n", "mean"], by_state @ rate, rtol=2e-3)
    counts = np.arange(60)
    cdf = poisson.cdf(counts[:, None], rate) @ by_state
    ends = [counts[cdf >= p][0] for p in (0.05, 0.95)]
    assert own.loc["n", ["lower", "upper"]].tolist() == ends


# --- what is ahead --------------------------------------------------------------------------------


def test_predictions_equal_enumeration_over_a_grid_of_the_effect(fit):
    found = fit.predict(horizon=3, level=0.9)
    assert list(found) == ["who", "day", "t", "step", "outcome", "mean", "sd", "lower", "upper"]
    assert len(found) == 5 * 3 * 2
    for rows in sequences(SEEN):
        who, day = rows[["who", "day"]].iloc[0]
        own = found[(found["who"] == who) & (found["day"] == day)]
        assert (own["t"] == rows["t"].max() + own["step"]).all()
        posterior = weights(SEEN[SEEN["who"] == who])
        for horizon in (1, 3):
            check_ahead(own, rows, posterior, horizon)


def test_new_subjects_are_integrated_and_known_ones_keep_their_posterior(fit):
    found = fit.predict(NEW, horizon=2, level=0.9)
    for rows in sequences(NEW):
        who, day = rows[["who", "day"]].iloc[0]
        source = SEEN if who == "b" else NEW
        own = found[(found["who"] == who) & (found["day"] == day)]
        check_ahead(own, rows, weights(source[source["who"] == who]), 2)


def test_states_ahead(fit):
    found = fit.predict(horizon=3, of="states")
    assert list(found) == ["who", "day", "t", "step", "state", "probability"]
    rows = sequences(SEEN)[0]
    expected = weights(SEEN[SEEN["who"] == "a"]) @ chances_ahead(rows, 2)
    own = found[(found["who"] == "a") & (found["day"] == 0) & (found["step"] == 2)]
    assert own["state"].tolist() == ["state_0", "state_1"]
    np.testing.assert_allclose(own["probability"], expected, atol=3e-4)


def test_what_is_not_known_of_the_effects_widens_intervals(fit):
    one, other = fit.predict(horizon=2, effects="fitted"), fit.predict(horizon=2)
    of_y = one["outcome"] == "y"
    assert other["sd"][of_y].mean() > 1.03 * one["sd"][of_y].mean()


def test_predictions_of_a_fit_without_its_data(fit, tmp_path):
    """From the Gaussian that the file keeps: near what integration says."""
    fit.save(tmp_path / "fit.avem")
    loaded = avem.load(tmp_path / "fit.avem")
    found, expected = loaded.predict(SEEN, horizon=2), fit.predict(horizon=2)
    np.testing.assert_allclose(found["mean"], expected["mean"], atol=0.4)
    again = loaded.with_data(SEEN).predict(horizon=2)
    pd.testing.assert_frame_equal(again, expected, rtol=1e-6)


def test_predictions_come_as_the_data_do(fit):
    expected = fit.predict(NEW, horizon=2)
    found = fit.predict(pl.from_pandas(NEW), horizon=2)
    assert isinstance(found, pl.DataFrame)
    assert found["who"].dtype == pl.String
    pd.testing.assert_frame_equal(found.to_pandas(), expected, check_dtype=False)
    again = fit.predict(NEW.sort_values(["who", "day", "t"], ascending=False), horizon=2)
    order = ["who", "day", "step", "outcome"]
    same = [table.sort_values(order).reset_index(drop=True) for table in (again, expected)]
    pd.testing.assert_frame_equal(*same, rtol=1e-7)


def test_one_step_predictions_are_those_of_the_shortened_sequence(fit):
    found = fit.predictions(effects="fitted")
    assert found.index.equals(SEEN.index)
    assert list(found)[:4] == ["y", "y_sd", "y_lower", "y_upper"]
    last = SEEN["t"] == SEEN.groupby(["who", "day"])["t"].transform("max")
    alone = SEEN.groupby(["who", "day"])["t"].transform("size") == 1
    before = fit.predict(SEEN[~last], horizon=1, effects="fitted")
    want = before.set_index(["who", "day", "t", "outcome"])
    for row in SEEN.index[last & ~alone]:
        key = tuple(SEEN.loc[row, ["who", "day", "t"]])
        for name in ("y", "n"):
            own = found.loc[row, [name, f"{name}_sd", f"{name}_lower", f"{name}_upper"]]
            expected = want.loc[(*key, name), ["mean", "sd", "lower", "upper"]]
            np.testing.assert_allclose(own.to_numpy(float), expected.to_numpy(float), rtol=1e-6)


# --- all kinds of outcomes ------------------------------------------------------------------------


def test_predictions_of_all_kinds_are_those_of_simulation():
    """States drawn from the last row's and moved on, values drawn from their families."""
    model = avem.MixedHMM(
        [
            avem.outcome("step ~ 1", "zero_augmented_gamma"),
            avem.outcome("turn ~ 1", "von_mises"),
            avem.outcome("mode ~ 1", "categorical"),
            avem.outcome("hits ~ x", avem.Binomial("tries")),
        ],
        2,
        transition="~ x",
    )
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"who": np.repeat([0, 1, 2], 6), "t": np.tile(np.arange(6), 3)})
    frame["step"] = rng.gamma(2.0, 1.0, 18) * (rng.random(18) < 0.7)
    frame["turn"] = rng.vonmises(0, 1, 18)
    frame["mode"] = rng.choice(["rest", "walk", "run"], 18)
    frame["tries"], frame["x"] = 8, rng.normal(size=18)
    frame["hits"] = rng.binomial(8, 0.4, 18)
    truth = {
        "initial": [0.4, 0.6],
        "transition_coef": [[[0, 0], [-0.7, 0.5]], [[-1.0, 0.8], [0, 0]]],
        "step.coef": [[[0.0]], [[1.0]]],
        "step.shape": [[2.0], [5.0]],
        "step.zero": [[0.3], [0.1]],
        "turn.coef": [[[3.0]], [[1.5]]],
        "turn.concentration": [[2.0], [6.0]],
        "mode.coef": [[[0.5], [-0.5]], [[-1.0], [1.0]]],
        "hits.coef": [[[0.0, 0.5]], [[1.0, -0.5]]],
    }
    truth["effect_covariance"] = np.zeros((0, 0))
    fit = fit_from(model, truth, frame, np.zeros((3, 0)))
    future = pd.DataFrame({"who": np.repeat([0, 1, 2], 2), "t": np.tile([6, 7], 3)})
    future["x"], future["tries"] = rng.normal(size=6), [5, 6] * 3
    with pytest.raises(DataError, match="needs 'x', 'tries' at every step"):
        fit.predict(horizon=2)
    endless = future.assign(x=future["x"].mask(future.index == 3, np.inf))
    with pytest.raises(DataError, match="At the steps ahead: The covariate 'x' is infinite"):
        fit.predict(horizon=2, future=endless)
    found = fit.predict(horizon=2, future=future)
    own = found[(found["who"] == 1) & (found["step"] == 2)].set_index("outcome")
    m = 200_000
    state = (rng.random(m) < fit.state_probabilities()["state_1"][frame["who"] == 1].iloc[-1]) * 1
    for x in future["x"][future["who"] == 1]:
        odds = fit.params["transition_coef"] @ [1.0, x]
        moves = np.exp(odds) / np.exp(odds).sum(1, keepdims=True)
        state = (rng.random(m) < moves[state, 1]) * 1
    p = {name: np.asarray(value) for name, value in fit.params.items()}
    mean, shape = np.exp(p["step.coef"][state, 0, 0]), p["step.shape"][state, 0]
    step = rng.gamma(shape, mean / shape) * (rng.random(m) > p["step.zero"][state, 0])
    np.testing.assert_allclose(own.loc["step", "mean"], step.mean(), rtol=0.02)
    np.testing.assert_allclose(own.loc["step", "sd"], step.std(), rtol=0.02)
    assert own.loc["step", "lower"] == 0
    np.testing.assert_allclose(own.loc["step", "upper"], np.quantile(step, 0.975), rtol=0.02)
    turn = rng.vonmises(p["turn.coef"][state, 0, 0], p["turn.concentration"][state, 0])
    direction = np.angle(np.exp(1j * turn).mean())
    np.testing.assert_allclose(own.loc["turn", "mean"], direction, atol=0.03)
    away = np.angle(np.exp(1j * (turn - direction)))
    arc = np.angle(np.exp(1j * (own.loc["turn", ["lower", "upper"]].to_numpy(float) - direction)))
    np.testing.assert_allclose(arc, np.quantile(away, [0.025, 0.975]), atol=0.04)
    odds = np.concatenate([np.zeros((2, 1)), p["mode.coef"][:, :, 0]], axis=1)
    chance = np.exp(odds) / np.exp(odds).sum(1, keepdims=True)
    modes = own.loc["mode"].set_index("level")
    assert modes.index.tolist() == ["rest", "run", "walk"]
    np.testing.assert_allclose(modes["mean"], chance[state].mean(0), atol=5e-3)
    assert modes["lower"].isna().all()
    x, tries = future[["x", "tries"]][future["who"] == 1].iloc[1]
    share = 1 / (1 + np.exp(-p["hits.coef"][state, 0] @ [1.0, x]))
    hits = rng.binomial(int(tries), share)
    np.testing.assert_allclose(own.loc["hits", "mean"], hits.mean(), rtol=0.02)
    np.testing.assert_allclose(own.loc["hits", "sd"], hits.std(), rtol=0.02)
    assert (
        own.loc["hits", ["lower", "upper"]].tolist()
        == np.quantile(hits, [0.025, 0.975], method="inverted_cdf").tolist()
    )
    each = fit.predictions()
    assert each.shape == (18, 4 + 4 + 3 + 4)
    np.testing.assert_allclose(each[[f"mode[{v}]" for v in modes.index]].sum(axis=1), 1.0)


def test_what_cannot_be_predicted(fit):
    with pytest.raises(ModelError, match="of is 'rows'; choose one of 'outcomes', 'states'"):
        fit.predict(horizon=2, of="rows")
    with pytest.raises(
        ModelError, match="effects is 'drawn'; choose one of 'integrated', 'fitted'"
    ):
        fit.predict(horizon=2, effects="drawn")
    with pytest.raises(DataError, match="horizon is 0"):
        fit.predict(horizon=0)
    with pytest.raises(DataError, match=r"the number 3; .* predict\(horizon=3\)"):
        fit.predict(3)
    lagged = avem.MixedHMM("y ~ lag(y)", 1).fit(SEEN, subject="who", **KEYS)
    with pytest.warns(AvemWarning, match=r"1 value\(s\) ahead are not predicted"):
        one = lagged.predict(horizon=1)
    assert one["mean"].isna().sum() == SEEN.loc[[3], "y"].isna().sum()


# --- scores ---------------------------------------------------------------------------------------


def integral(frame):
    return log_sum(height(frame) + log_prior())


def test_score_equals_dense_integration(fit):
    """New subjects alone; known ones given their rows in the fit, sequences going on."""
    later = NEW.assign(t=NEW["t"] + 9)
    both = pd.concat([SEEN, later])
    known = integral(both[both["who"] == "b"]) - integral(SEEN[SEEN["who"] == "b"])
    new = integral(later[later["who"] == "z"])
    n_rows = later[["y", "n"]].notna().any(axis=1).sum()
    np.testing.assert_allclose(fit.score(later), (known + new) / n_rows, rtol=2e-5)
    own = sum(integral(SEEN[SEEN["who"] == who]) for who in "abc")
    n_rows = SEEN[["y", "n"]].notna().any(axis=1).sum()
    np.testing.assert_allclose(fit.score(), own / n_rows, rtol=2e-5)


def test_what_cannot_be_scored(fit, tmp_path):
    with pytest.raises(DataError, match="has seen 3 of these rows already, the first at who 'b'"):
        fit.score(NEW)
    with pytest.raises(DataError, match="nothing to score"):
        fit.score(NEW.assign(who=NEW["who"] + "?", y=np.nan, n=np.nan))
    fit.save(tmp_path / "fit.avem")
    with pytest.raises(DataError, match=r"'b' is one of the fit's.*with_data"):
        avem.load(tmp_path / "fit.avem").score(NEW)
