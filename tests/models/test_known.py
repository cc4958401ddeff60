"""States that are known in some rows, or ruled out."""

import numpy as np
import pandas as pd
import pytest

import avem
from avem.data import Panel
from avem.errors import DataError, ModelError
from avem.inference.after.hmm_states import total_loglik
from avem.models.hmm import HMMModel
from tests.brute import enumerate_paths, gaussian_table, log_sum
from tests.components.test_new_transitions import LeftToRight
from tests.fits.kinds import fit_from
from tests.panels import awkward_frame, random_params

NAMES = ["low", "middle", "high"]


def panel_of(frame):
    return Panel.from_frame(frame, "who", time="t", sequence="session")


@pytest.fixture(scope="module")
def drawn():
    """Two states that overlap, with a covariate and an effect; `stage` says which."""
    model = avem.MixedHMM("y ~ x + (1 | who)", 2)
    rng = np.random.default_rng(5)
    rows = pd.DataFrame({"who": np.repeat(np.arange(12), 25), "t": np.tile(np.arange(25), 12)})
    rows["x"] = rng.standard_normal(len(rows))
    params = {
        "initial": [0.5, 0.5],
        "transition": [[0.8, 0.2], [0.3, 0.7]],
        "coef": [[[0.0, 1.0]], [[1.0, -0.5]]],
        "variance": [[1.0], [1.0]],
        "effect_covariance": [[0.5]],
    }
    found = model.simulate(params, data=rows, time="t", seed=2)
    labels = np.array(["calm", "tense"], dtype=object)[found.states]
    return found.frame.assign(stage=labels)


@pytest.fixture(scope="module")
def plain(drawn):
    return avem.MixedHMM("y ~ x", 2, known="stage").fit(drawn, "who", "t")


def test_the_likelihood_is_that_of_the_paths_that_are_left():
    frame = awkward_frame(n_outcomes=1)
    rng = np.random.default_rng(1)
    cells = ["low", "high|middle", None, ["low", "high"], "middle"]
    frame["stage"] = pd.Series(
        [cells[i] for i in rng.integers(5, size=len(frame))], index=frame.index, dtype=object
    )
    params = random_params(rng, 3, 1, 1, 0)
    model = avem.MixedHMM("y1 ~ 1", 3, state_names=NAMES, known="stage")
    panel = panel_of(frame)
    learned = HMMModel.learn(model.spec, panel)
    encoded = learned.encode(panel)
    found = total_loglik(encoded, learned.params_in(params), np.zeros((0, panel.n_subjects)))
    total = 0.0
    for lane in range(panel.n_lanes):
        rows = panel.order[panel.row_lane[panel.order] == lane]
        mean = np.broadcast_to(params["coef"][:, 0], (len(rows), 3, 1))
        y = panel.table["y1"].to_numpy()[rows][:, None]
        table = gaussian_table(y, mean, params["variance"][:, :, None])
        for t, row in enumerate(rows):
            cell = panel.table["stage"][row]
            if cell is not None:
                words = cell if isinstance(cell, list) else cell.split("|")
                table[t, [name not in words for name in NAMES]] = -np.inf
        paths = enumerate_paths(params["initial"], params["transition"], table)[1]
        total += log_sum(paths[np.isfinite(paths)])
    np.testing.assert_allclose(found, total, rtol=1e-12)


def test_where_all_is_known_states_are_counted_and_regressed(plain, drawn):
    assert plain.state_names == ("calm", "tense")
    assert (plain.decode() == drawn["stage"]).all()
    calm = (drawn["stage"] == "calm").astype(float)
    np.testing.assert_allclose(plain.state_probabilities()["calm"], calm, atol=1e-12)
    for k, name in enumerate(["calm", "tense"]):
        rows = drawn[drawn["stage"] == name]
        x = np.stack([np.ones(len(rows)), rows["x"]], axis=1)
        b, ss = np.linalg.lstsq(x, rows["y"], rcond=None)[:2]
        np.testing.assert_allclose(plain.params["coef"][k, 0], b, atol=1e-6)
        np.testing.assert_allclose(plain.params["variance"][k, 0], ss[0] / len(rows), rtol=1e-6)
    state = (drawn["stage"] == "tense").to_numpy().astype(int).reshape(12, 25)
    moves = np.zeros((2, 2))
    np.add.at(moves, (state[:, :-1].ravel(), state[:, 1:].ravel()), 1.0)
    wanted = moves / moves.sum(1, keepdims=True)
    np.testing.assert_allclose(plain.params["transition"], wanted, atol=1e-8)


def test_with_effects_it_is_a_mixed_regression(drawn):
    """statsmodels has one noise variance: given it, the rest must be the same."""
    mixedlm = pytest.importorskip("statsmodels.formula.api").mixedlm
    wanted = mixedlm("y ~ 0 + stage + stage:x", drawn, groups=drawn["who"]).fit(reml=False)
    fit = avem.MixedHMM("y ~ x + (1 | who)", 2, known="stage").fit(
        drawn, time="t", fixed={"variance": np.full((2, 1), wanted.scale)}, refine="adaptive"
    )
    effects = wanted.fe_params
    for k, name in enumerate(["calm", "tense"]):
        own = [effects[f"stage[{name}]"], effects[f"stage[{name}]:x"]]
        np.testing.assert_allclose(fit.params["coef"][k, 0], own, atol=2e-4)
    tau2 = float(wanted.cov_re.iloc[0, 0])
    np.testing.assert_allclose(fit.params["effect_covariance"], [[tau2]], rtol=2e-3)
    chain = fit.params["transition"][tuple(_pairs(drawn))]
    first = fit.params["initial"][(drawn[drawn["t"] == 0]["stage"] == "tense").astype(int)]
    known = np.log(chain).sum() + np.log(first).sum()
    np.testing.assert_allclose(float(fit.loglik()), wanted.llf + known, rtol=1e-6)


def _pairs(frame):
    state = (frame["stage"] == "tense").to_numpy().astype(int).reshape(12, 25)
    return state[:, :-1].ravel(), state[:, 1:].ravel()


def test_some_labels_are_enough_to_name_the_states(drawn):
    """State 0 is the one with that label, whichever has the lower mean."""
    few = drawn.assign(stage=drawn["stage"].where(drawn["t"] % 5 == 0))
    few["y"] = -few["y"]
    fit = avem.MixedHMM("y ~ x", 2, known="stage").fit(few, "who", "t")
    assert (fit.decode()[few["stage"].notna()] == few["stage"].dropna()).all()
    assert fit.params["coef"][0, 0, 1] < 0 < fit.params["coef"][1, 0, 1]
    order = ["tense", "calm"]
    turned = few.assign(stage=pd.Categorical(few["stage"], order))
    again = avem.MixedHMM("y ~ x", 2, known="stage").fit(turned, "who", "t", init=None)
    assert again.state_names == tuple(order)
    np.testing.assert_allclose(again.params["coef"][::-1], fit.params["coef"], atol=1e-4)


def test_a_saved_fit_knows_and_needs_no_labels(plain, drawn, tmp_path):
    plain.save(tmp_path / "fit.avem")
    again = avem.load(tmp_path / "fit.avem")
    assert again.model.spec.options == plain.model.spec.options
    assert (again.decode(drawn) == plain.decode()).all()
    blind = again.decode(drawn.drop(columns="stage"))
    assert set(blind) == {"calm", "tense"}
    assert 0.5 < (blind == drawn["stage"]).mean() < 1.0


def test_readers_are_told(plain, tmp_path):
    assert "states known where 'stage' says so" in str(plain.summary(errors=False))
    plain.report(tmp_path / "page.html", thorough=False)
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "Where the column <code>stage</code> says in which states a row may be" in page
    assert "known=&#x27;stage&#x27;" in page


def test_a_likelihood_of_labels_is_not_compared_with_one_without(plain, drawn):
    blind = fit_from(avem.MixedHMM("y ~ x", 2), plain.params, drawn, np.zeros((12, 0)))
    assert float(blind.loglik()) > float(plain.loglik())  # of less data
    with pytest.raises(DataError, match="one fit knows of it by 'stage', the other by nothing"):
        avem.compare({"known": plain, "blind": blind})


def test_simulated_rows_have_the_labels_of_their_states(plain, drawn):
    found = plain.simulate(seed=3)
    assert (found.frame["stage"] == found.states).all()
    assert (found.frame["stage"] != drawn["stage"]).any()


def test_forecasts_and_residuals_know(plain, drawn):
    ahead = plain.predict(horizon=2, future={"x": 0}, of="states")
    last = drawn[drawn["t"] == 24]["stage"].to_numpy()
    first = ahead[ahead["step"] == 1]["probability"].to_numpy().reshape(-1, 2)
    chances = plain.params["transition"][(last == "tense").astype(int)]
    np.testing.assert_allclose(first, chances, atol=1e-10)
    state = (drawn["stage"] == "tense").to_numpy().astype(int)
    b = plain.params["coef"][state, 0]
    sd = np.sqrt(plain.params["variance"][state, 0])
    wanted = (drawn["y"] - b[:, 0] - b[:, 1] * drawn["x"]) / sd
    np.testing.assert_allclose(plain.residuals()["y"], wanted, atol=1e-8)


def test_labels_that_are_no_states_are_named(drawn):
    odd = drawn.assign(stage=drawn["stage"].mask(drawn.index == 7, "asleep"))
    with pytest.raises(ModelError, match="state_names"):
        avem.MixedHMM("y ~ x", 2, known="stage").fit(odd, "who", "t")
    named = avem.MixedHMM("y ~ x", 2, known="stage", state_names=["calm", "tense"])
    with pytest.raises(DataError, match=r"'asleep' at row 7"):
        named.fit(odd, "who", "t")
    with pytest.raises(DataError, match=r"known= has \{'a': 1\}"):
        named.fit(odd.assign(stage=[{"a": 1}] * len(odd)), "who", "t")
    with pytest.raises(DataError, match="no column 'stages'"):
        avem.MixedHMM("y ~ x", 2, known="stages").fit(drawn, "who", "t")
    with pytest.raises(ModelError, match="known is 3"):
        avem.MixedHMM("y ~ x", 2, known=3)


def test_a_row_that_contradicts_the_moves_is_named(drawn):
    back = drawn.assign(stage=np.where(drawn["t"] == 3, "1", "0").astype(object))
    back.loc[back["t"] > 3, "stage"] = None
    model = avem.MixedHMM("y ~ x", 2, known="stage", transition=LeftToRight())
    panel = Panel.from_frame(back, "who", "t")
    learned = HMMModel.learn(model.spec, panel)
    assert learned.read(panel).possible.sum() == 12 * (4 + 2 * 21)
    back.loc[(back["who"] == 4) & (back["t"] == 10), "stage"] = "0"
    with pytest.raises(DataError, match=r"known='stage' is impossible at row 110:"):
        model.fit(back, "who", "t")


def test_numbers_are_labels_too(drawn, plain):
    numbers = drawn.assign(stage=(drawn["stage"] == "tense").astype(float).mask(drawn["t"] == 4))
    model = HMMModel.learn(
        avem.MixedHMM("y ~ x", 2, known="stage").spec, Panel.from_frame(numbers, "who", "t")
    )
    assert model.state_names == ()
    found = model.read(Panel.from_frame(numbers, "who", "t")).possible
    assert (found.sum(1) == np.where(drawn["t"] == 4, 2, 1)).all()


@pytest.mark.slow
def test_known_states_go_with_durations():
    """Stays last although no move leads from a state to itself; rows that are known stay so."""
    model = avem.MixedHMM("y ~ 1", 2, duration="shifted_poisson", known="stage")
    rng = np.random.default_rng(0)
    states = np.concatenate([[k % 2] * (2 + rng.poisson(3)) for k in range(30)])
    frame = pd.DataFrame({"who": 1, "t": range(len(states)), "stage": states})
    frame["y"] = 0.5 * states + rng.standard_normal(len(states))
    frame["stage"] = frame["stage"].astype(object).where(rng.random(len(states)) < 0.5, None)
    fit = model.fit(frame, subject="who", time="t", n_starts=1)
    decoded, told = np.asarray(fit.decode()).astype(str), frame["stage"].notna()
    assert (decoded[told] == frame.loc[told, "stage"].astype(str)).all()
    assert (decoded == states.astype(str)).mean() > 0.8
