"""Types of subjects: against sums over all types and paths on a dense grid of the effect."""

import json
import re

import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm

import avem
from avem.errors import DataError, FileError, ModelError
from avem.fits.io.given import Given
from avem.fits.io.hmm_json import model_in, model_out
from avem.fits.questions.residuals import KINDS as ROWS_GIVEN
from avem.inference.after.hmm_states import states_given
from tests.brute import enumerate_paths, log_sum
from tests.fits.kinds import fit_from, model_of

MODEL = avem.MixedHMM("y ~ 1 + (1 | who)", 2, n_clusters=2)
STEADY, RESTLESS = [[0.95, 0.05], [0.05, 0.95]], [[0.6, 0.4], [0.4, 0.6]]
TRUTH = {
    "clusters": [0.65, 0.35],
    "initial": [[0.6, 0.4], [0.3, 0.7]],
    "transition": [STEADY, RESTLESS],
    "coef": [[[-2.0]], [[2.0]]],
    "variance": [[1.0], [1.3]],
    "effect_covariance": [[0.4]],
}
KEYS = {"time": "t", "sequence": "day"}
GRID = np.linspace(-5, 5, 801)


def few_rows():
    """One, two and three days of a subject, a value missing."""
    rng = np.random.default_rng(0)
    who = np.repeat([0, 1, 1, 2, 2, 2], 4)
    day = np.repeat([0, 0, 1, 0, 1, 2], 4)
    y = rng.normal(0, 2, 24)
    y[6] = np.nan
    return pd.DataFrame({"who": who, "day": day, "t": np.tile(range(4), 6), "y": y})


def density(own, effect):
    """(grid, rows, states) log densities."""
    mean = np.array([-2.0, 2.0]) + effect[:, None, None]
    found = norm.logpdf(own["y"].to_numpy()[None, :, None], mean, np.sqrt([1.0, 1.3]))
    return np.where(np.isnan(found), 0.0, found)


def of_paths(own, c, effect):
    """All paths of a sequence of a type, and (grid, paths) log p(D, U | effect)."""
    return enumerate_paths(TRUTH["initial"][c], TRUTH["transition"][c], density(own, effect))


@pytest.fixture(scope="module")
def few():
    return fit_from(MODEL, TRUTH, few_rows(), np.array([[0.3], [-0.5], [0.8]]), **KEYS)


def test_likelihood_and_types_are_sums_over_types_paths_and_effects(few):
    total, types = 0.0, []
    for _, own in few_rows().groupby("who"):
        height = np.stack(
            [
                np.log(TRUTH["clusters"][c])
                + norm.logpdf(GRID, 0, np.sqrt(0.4))
                + sum(
                    np.logaddexp.reduce(of_paths(rows, c, GRID)[1], axis=1)
                    for _, rows in own.groupby("day")
                )
                for c in range(2)
            ]
        )
        whole = log_sum(height)
        total += whole + np.log(GRID[1] - GRID[0])
        types.append(np.exp(height - whole).sum(1))
    assert float(few.loglik()) == pytest.approx(total, abs=2e-5)
    found = few.clusters()
    np.testing.assert_allclose(found[["cluster_0", "cluster_1"]], types, atol=2e-4)
    assert found["cluster"].tolist() == np.argmax(types, axis=1).tolist()
    some = few_rows().query("who == 2").assign(who="new")
    new = few.clusters(some)[["cluster_0", "cluster_1"]].to_numpy()
    np.testing.assert_allclose(new, types[2:], atol=2e-4)


def by_type(own, effect):
    """For every day of a subject: (types, paths) of log p(D, U | type, effect), and the paths."""
    days = [rows for _, rows in own.groupby("day")]
    found = [[of_paths(rows, c, np.array([effect]))[1][0] for c in range(2)] for rows in days]
    return of_paths(days[0], 0, np.zeros(1))[0], np.array(found)


def test_states_paths_and_what_is_left_out_at_given_effects(few):
    """A type is the same in all sequences: what others say of it counts."""
    smoothed, best, before, others = [], [], [], []
    share = np.log(TRUTH["clusters"])
    for who, own in few_rows().groupby("who"):
        effect = few.effects_mean[who, 0]
        paths, joint = by_type(own, effect)
        whole = np.logaddexp.reduce(joint, axis=2)  # (day, type)
        top = (share + joint.max(2).sum(0)).argmax()
        for day, (_, rows) in enumerate(own.groupby("day")):
            rest = share + np.delete(whole, day, axis=0).sum(0)
            weight = np.exp(rest[:, None] + joint[day] - log_sum(rest[:, None] + joint[day]))
            best += paths[joint[day, top].argmax()].tolist()
            table = density(rows, np.array([effect]))[0]
            for t in range(len(rows)):
                smoothed.append([weight[:, paths[:, t] == k].sum() for k in range(2)])
                without = joint[day] - table[t][paths[:, t]]  # all rows but this one
                later = table[np.arange(t, len(rows)), paths[:, t:]].sum(1)
                for kept, into in ((joint[day] - later, before), (without, others)):
                    each = [rest[:, None] + kept[:, paths[:, t] == k] for k in range(2)]
                    sums = np.exp(np.array([log_sum(one) for one in each]))
                    into.append(sums / sums.sum())
    np.testing.assert_allclose(few.state_probabilities(), smoothed, atol=1e-10)
    assert few.decode().tolist() == best
    data, effects = few._own_data, few._effects_in()
    for kind, wanted in (("before", before), ("others", others)):
        found = states_given(data, few.theta, effects, kind)
        np.testing.assert_allclose(found, wanted, atol=1e-10, err_msg=kind)
    assert set(ROWS_GIVEN.values()) == {"before", "others"}


def test_filtering_knows_earlier_sequences_alone(few):
    frame = few_rows()
    given = few.filter(frame, n_nodes=401).to_numpy()
    wanted = []
    for _, own in frame.groupby("who"):
        rest = np.log(TRUTH["clusters"])[:, None] + norm.logpdf(GRID, 0, np.sqrt(0.4))
        for _, rows in own.groupby("day"):
            each = []
            for t in range(1, len(rows) + 1):
                found = [of_paths(rows.head(t), c, GRID) for c in range(2)]
                paths = found[0][0]
                joint = np.stack([one for _, one in found]) + rest[:, :, None]
                sums = [np.exp(log_sum(joint[..., paths[:, -1] == k])) for k in range(2)]
                each.append(np.array(sums) / sum(sums))
                after = np.logaddexp.reduce(joint, axis=2)
            wanted += each
            rest = after
    np.testing.assert_allclose(given, wanted, atol=1e-6)
    own = frame[frame["who"] == 2]
    whole, monitor = few.filter(own).to_numpy(), few.monitor(own.head(2))
    for at in range(2, len(own)):
        row = monitor.update(own.iloc[at])
        np.testing.assert_allclose(list(row.states.values()), whole[at], atol=1e-10)


def test_a_monitor_is_saved_with_its_types(few, tmp_path):
    own = few_rows().query("who == 1")
    monitor = few.monitor(own.head(6))
    monitor.save(tmp_path / "one.monitor")
    again = avem.Monitor.load(tmp_path / "one.monitor")
    assert again.update(own.iloc[6]).states == monitor.update(own.iloc[6]).states


# --- fits -----------------------------------------------------------------------------------------


def drawn(share, n_subjects=30, n_times=40, seed=0):
    """Rows, and each subject's type: 1 with probability `share`."""
    truth = TRUTH | {"clusters": [1 - share, share]}
    found = MODEL.simulate(truth, n_subjects=n_subjects, n_times=n_times, subject="who", seed=seed)
    return found.frame, found.clusters


@pytest.fixture(scope="module")
def two_types():
    frame, clusters = drawn(0.4)
    return frame, clusters, MODEL.fit(frame, time="time", n_starts=4)


def test_types_are_drawn_as_often_as_they_are_and_move_as_they_do():
    found = MODEL.simulate(TRUTH, n_subjects=400, n_times=50, subject="who", seed=1)
    assert found.clusters.mean() == pytest.approx(0.35, abs=0.08)
    states = found.states.reshape(400, 50)
    for c, moves in enumerate((STEADY, RESTLESS)):
        own = states[found.clusters == c]
        stays = (own[:, 1:] == own[:, :-1]).mean()
        assert stays == pytest.approx(moves[0][0], abs=0.02)
        assert own[:, 0].mean() == pytest.approx(TRUTH["initial"][c][1], abs=0.12)


def test_types_are_found(two_types):
    _, clusters, fit = two_types
    assert (np.diff(fit.bound_history) > -1e-6).all()
    assert fit.n_params == 1 + 2 + 4 + 2 + 2 + 1
    assert fit.params["clusters"][0] > fit.params["clusters"][1]  # the largest first
    np.testing.assert_allclose(fit.params["transition"], TRUTH["transition"], atol=0.12)
    assert (fit.clusters()["cluster"].to_numpy() == clusters).mean() > 0.9
    told = str(fit.summary(errors=False))
    assert "2 clusters of subjects" in told
    assert "Cluster 1: transition probabilities" in told


@pytest.mark.slow
def test_bic_finds_two_types_where_there_are_two_and_one_where_there_is_one():
    for share, n in ((0.4, 2), (0.0, 1)):
        frame, _ = drawn(share)
        found = avem.select(MODEL, frame, clusters=range(1, 4), time="time", progress=False)
        assert found.n_clusters == n
        assert found.best.model.n_clusters == n
        assert f"Best by BIC: {n} cluster" in repr(found)


def test_one_type_is_the_model_without_types():
    one = avem.MixedHMM("y ~ 1 + (1 | who)", 2, n_clusters=1)
    assert repr(one) == repr(avem.MixedHMM("y ~ 1 + (1 | who)", 2)) == repr(MODEL.with_clusters(1))
    model = model_of(one, avem.Panel.from_frame(few_rows(), "who", "t", "day"))
    assert [type(part).__name__ for part in model.chain] == ["FreeInitial", "FreeTransitions"]


def test_a_tie_of_all_types_is_one_type(two_types):
    frame, _, _ = two_types
    tied = avem.MixedHMM(
        "y ~ 1 + (1 | who)",
        2,
        n_clusters=2,
        constraints=["transition[0] == transition[1]", "initial[0] == initial[1]"],
    )
    own = {"time": "time", "n_starts": 1, "refine": None}
    both = tied.fit(frame, **own)
    one = MODEL.with_clusters(1).fit(frame, **own)
    assert both.bound == pytest.approx(one.bound, abs=1e-5)
    assert both.n_params == one.n_params + 1
    for c in range(2):
        np.testing.assert_allclose(
            both.params["transition"][c], one.params["transition"], atol=1e-4
        )


def test_clusters_that_constraints_tell_apart_keep_their_numbers(two_types):
    frame, _, fit = two_types
    small = avem.MixedHMM(
        "y ~ 1 + (1 | who)", 2, n_clusters=2, constraints="transition[0, 0, 1] == 0.4"
    )
    start = fit.params | {
        "clusters": fit.params["clusters"][::-1],
        "initial": fit.params["initial"][::-1],
        "transition": fit.params["transition"][::-1],
    }
    found = small.fit(frame, time="time", init=start, refine=None)
    assert found.params["transition"][0, 0, 1] == pytest.approx(0.4)
    assert found.params["clusters"][0] < found.params["clusters"][1]
    order = found.model.cluster_order(found.theta)
    assert order.tolist() == [0, 1]  # the smaller one first, as the constraint has it


def test_questions_have_a_row_for_each_type(two_types):
    _, _, fit = two_types
    moves = fit.transitions(level=None)
    assert moves.columns.tolist() == ["cluster", "state", "to_state", "probability"]
    np.testing.assert_array_equal(
        moves["probability"].to_numpy().reshape(2, 2, 2), fit.params["transition"]
    )
    stays = fit.dwell(level=None)
    leaving = 1 - np.diagonal(fit.params["transition"], axis1=1, axis2=2)
    np.testing.assert_allclose(stays["expected"].to_numpy().reshape(2, 2), 1 / leaving)
    assert stays["visits"].sum() == fit.dwell(level=None)["visits"].sum() > 0
    share = fit.stationary(level=None)
    assert share.groupby("cluster")["share"].sum().round(6).tolist() == [1.0, 1.0]
    table = fit.table()
    assert table.columns[:3].tolist() == ["parameter", "cluster", "state"]
    assert fit.standard_errors()["se"].notna().all()


@pytest.mark.parametrize(
    ("ask", "said"),
    [
        (lambda fit: fit.transitions(by="subject"), "by='subject' is not available"),
        (lambda fit: fit.dwell(by="length"), "by='length' is not available"),
        (lambda fit: fit.plot.dwell(), "picture of stays"),
        (lambda fit: fit.plot.stationary(), "picture of shares"),
    ],
)
def test_what_is_not_of_all_subjects_together_is_refused(few, ask, said):
    with pytest.raises(ModelError, match=said):
        ask(few)


def test_a_model_of_one_type_has_no_clusters():
    fit = fit_from(
        MODEL.with_clusters(1),
        {name: TRUTH[name] for name in ("coef", "variance", "effect_covariance")}
        | {"initial": [0.6, 0.4], "transition": STEADY},
        few_rows(),
        np.zeros((3, 1)),
        **KEYS,
    )
    with pytest.raises(ModelError, match=re.escape("MixedHMM(..., n_clusters=2)")):
        fit.clusters()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"n_clusters": 0}, "n_clusters is 0; a whole number"),
        ({"n_clusters": 1.5}, "n_clusters is 1.5"),
        ({"n_clusters": 51}, "at most 50 types"),
        ({"n_clusters": 2, "initial": "stationary"}, "initial='stationary' is not available"),
        ({"n_clusters": 2, "duration": "gamma"}, "duration= is not available"),
        ({"n_clusters": 2, "n_states": 1}, "there is one state"),
    ],
)
def test_what_cannot_be_is_refused(options, said):
    with pytest.raises(ModelError, match=said):
        avem.MixedHMM("y ~ 1", **{"n_states": 2, **options})


def test_more_types_than_subjects_and_parameters_of_another_shape_are_refused():
    with pytest.raises(DataError, match="n_clusters is 4, and there are 3 subjects"):
        MODEL.with_clusters(4).fit(few_rows(), **KEYS)
    with pytest.raises(ModelError, match=re.escape("(2, 2, 2) is wanted (clusters x from state")):
        MODEL.fit(few_rows(), **KEYS, init={"transition": STEADY})
    with pytest.raises(ModelError, match="one after the other"):
        avem.select(MODEL, few_rows(), [2], clusters=[1, 2], **KEYS)
    with pytest.raises(ModelError, match="several numbers of clusters"):
        avem.select(MODEL, few_rows(), clusters=2, **KEYS)
    with pytest.raises(ModelError, match="clusters= is not for a MixedSSM"):
        avem.select(avem.MixedSSM(["y"], 1), few_rows(), clusters=[1, 2], subject="who")


def test_a_saved_fit_has_its_types(few, tmp_path):
    few.save(tmp_path / "two.avem")
    again = avem.load(tmp_path / "two.avem")
    assert again.model.spec.options == few.model.spec.options
    for name, value in few.params.items():
        np.testing.assert_array_equal(again.params[name], value)
    there = again.with_data(few_rows()).clusters()
    pd.testing.assert_frame_equal(there, few.clusters(), atol=1e-9)


@pytest.mark.parametrize("n", [-1, 10**7])
def test_a_file_with_impossible_clusters_is_refused(few, n):
    record = json.loads(json.dumps({**model_out(few.model), "n_clusters": n}))
    with pytest.raises(FileError, match=f"{n:,}|{4 * n:,}"):
        model_in(record, Given(None))
