"""Types of subjects with transitions of their own: states that cannot be left, tied over types."""

import numpy as np
import pandas as pd
import pytest
from scipy.linalg import block_diag
from scipy.stats import norm

import avem

MOVES = [(0, 1), (1, 0), (2, 3), (3, 2)]
TIES = [
    "coef[0] == coef[2]",
    "coef[1] == coef[3]",
    "variance[0] == variance[2]",
    "variance[1] == variance[3]",
]
STEADY, RESTLESS = [[0.95, 0.05], [0.05, 0.95]], [[0.6, 0.4], [0.4, 0.6]]


def drawn(share, n_subjects=30, n_times=40, seed=0):
    """Rows, and each subject's type: 1 with probability `share`."""
    rng = np.random.default_rng(seed)
    kind = (rng.random(n_subjects) < share).astype(int)
    rows = []
    for who, own in enumerate(kind):
        state, effect = rng.integers(2), 0.5 * rng.normal()
        for time in range(n_times):
            rows.append((who, time, (-2.0, 2.0)[state] + effect + rng.normal()))
            state = rng.choice(2, p=(STEADY, RESTLESS)[own][state])
    return pd.DataFrame(rows, columns=["who", "time", "y"]), kind


def fitted(frame, formula="y ~ 1 + (1 | who)", **options):
    model = avem.MixedHMM(formula, 4, transition=MOVES, constraints=TIES)
    return model.fit(frame, subject="who", time="time", **options)


def test_the_likelihood_is_the_sum_over_types():
    frame, _ = drawn(0.4, n_subjects=6, n_times=12)
    given = {
        "initial": [0.35, 0.25, 0.1, 0.3],
        "transition": block_diag(STEADY, RESTLESS),
        "coef": np.array([-2.0, 2, -2, 2]).reshape(4, 1, 1),
        "variance": np.array([1.0, 1.3, 1, 1.3])[:, None],
    }
    fit = fitted(frame, "y ~ 1", fixed=given, n_starts=1)
    total = 0.0
    for _, own in frame.groupby("who"):
        density = norm.pdf(own["y"].to_numpy()[:, None], [-2, 2], np.sqrt([1.0, 1.3]))
        of_types = []
        for share, first, move in ((0.6, [0.35, 0.25], STEADY), (0.4, [0.1, 0.3], RESTLESS)):
            alpha = np.array(first) / share * density[0]
            for row in density[1:]:
                alpha = alpha @ np.array(move) * row
            of_types.append(share * alpha.sum())
        total += np.log(np.sum(of_types))
    assert float(fit.loglik()) == pytest.approx(total, abs=1e-9)


@pytest.fixture(scope="module")
def some():
    """Subjects of two types, which type each is of, and a fit from known moves."""
    frame, kind = drawn(0.4, n_subjects=24, n_times=32)
    init = {"transition": block_diag(STEADY, RESTLESS)}
    return frame, kind, fitted(frame, init=init, n_starts=1, refine=None)


def test_every_subject_is_of_its_type(some):
    frame, kind, fit = some
    check_types(fit, frame, kind, 0.8)
    without = avem.MixedHMM("y ~ 1 + (1 | who)", 2)
    without = without.fit(frame, time="time", n_starts=1, refine=None)
    assert fit.bic() < without.bic() - 20


@pytest.mark.slow
def test_types_are_found_where_there_are_some_and_not_where_there_are_none():
    frame, kind = drawn(0.4)
    fit = fitted(frame, n_starts=8)
    check_types(fit, frame, kind, 0.9)
    without = avem.MixedHMM("y ~ 1 + (1 | who)", 2).fit(frame, time="time", n_starts=2)
    assert fit.bic() < without.bic() - 20
    alike, _ = drawn(0.0)
    one = avem.MixedHMM("y ~ 1 + (1 | who)", 2).fit(alike, time="time", n_starts=2)
    assert fitted(alike, n_starts=2).bic() > one.bic()


def check_types(fit, frame, kind, least):
    """Rows of a subject are of one type, which is its own for more than a share of `least`."""
    assert fit.n_params == 3 + 4 + 2 + 2 + 1
    stays = np.diagonal(fit.params["transition"])
    second = stays[2:].mean() < stays[:2].mean()  # which block is that of the restless
    of_rows = fit.state_probabilities().filter(like="state_").to_numpy()
    chance = of_rows[:, 2:].sum(1) if second else of_rows[:, :2].sum(1)
    of_subjects = pd.Series(chance).groupby(frame["who"]).agg(["min", "max"])
    assert np.ptp(of_subjects.to_numpy(), axis=1).max() < 1e-6  # a type is for ever
    assert ((of_subjects["max"] > 0.5).to_numpy() == kind).mean() > least
