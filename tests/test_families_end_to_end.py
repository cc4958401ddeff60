"""Every family from simulated rows to a fit that finds the truth, and to what is done with it."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pytest

import avem
from tests.chosen import chosen

N = 25
INITIAL, TRANSITION = [0.5, 0.5], [[0.95, 0.05], [0.08, 0.92]]


def is_count(y):
    return (y >= 0) & (y == np.round(y))


def is_angle(y):
    return np.abs(y) <= np.pi


@dataclass(frozen=True)
class Case:
    """A family, the truth about its two states, and how near a fit must come to it."""

    family: Any
    coef: list
    """The location of each state, on the scale of the link."""
    valid: Callable[[np.ndarray], np.ndarray]
    bad: Any
    """A value that the outcome cannot have."""
    complaint: str
    more: dict[str, list] = field(default_factory=dict)
    """The family's further parameters."""
    formulas: dict[str, str] = field(default_factory=dict)
    effect_sd: float = 0.4
    n_times: int = 60
    near: dict[str, float] = field(default_factory=dict)
    """Where other than in NEAR."""

    @property
    def model(self):
        formula = "seen ~ 1 + (1 | who)"
        return avem.MixedHMM(avem.outcome(formula, self.family, **self.formulas), 2)

    @property
    def truth(self):
        coef = np.reshape(np.array(self.coef, float), (2, -1, 1))
        return {
            "initial": np.array(INITIAL),
            "transition": np.array(TRANSITION),
            "coef": coef,
            **{name: np.array(value, float) for name, value in self.more.items()},
            "effect_covariance": self.effect_sd**2 * np.eye(coef.shape[1]),
        }


NEAR = {"coef": 0.2, "transition": 0.4, "initial": 1.2, "effect_covariance": 0.4}
REST = 0.3
"""How far estimates may be from the truth, on the scale of the link: about four times the
standard deviation of their errors in panels from other seeds. REST is for other parameters."""

COUNTS, AT_LEAST_0 = r"counts \(0, 1, 2, ...\)", "numbers of at least 0"
ANGLES = "angles in radians, between -pi and pi"
CASES = {
    "bernoulli": Case(
        "bernoulli",
        [-2, 2],
        lambda y: (y == 0) | (y == 1),
        bad=2,
        complaint="a bernoulli outcome has two",
        effect_sd=1.0,
        n_times=200,  # a single value says little
        near={"coef": 0.6, "effect_covariance": 0.7},
    ),
    "binomial": Case(
        avem.Binomial("trials"),
        [-1.2, 1.2],
        is_count,
        bad=20,
        complaint=COUNTS + " no larger than the number of trials",
        near={"coef": 0.3},
    ),
    "categorical": Case(
        avem.Categorical(("a", "b", "c")),
        [[-2.5, -0.5], [2, 0.5]],
        lambda y: y.isin(["a", "b", "c"]),
        bad="d",
        complaint="values that the model does not know: 'd'",
        effect_sd=1.0,
        n_times=200,
        near={"coef": 0.9, "effect_covariance": 1.2},
    ),
    "ordinal": Case(
        avem.Ordinal(("a", "b", "c", "d")),
        [-1.5, 2.5],
        lambda y: y.isin(["a", "b", "c", "d"]),
        bad="e",
        complaint="values that the model does not know: 'e'",
        more={"gap_2": [[1.5], [0.8]], "gap_3": [[0.8], [1.5]]},
        effect_sd=0.8,
        n_times=120,
        near={"coef": 0.4, "effect_covariance": 0.6},
    ),
    "poisson": Case("poisson", [0.3, 2], is_count, -1, COUNTS),
    "negative_binomial": Case(
        "negative_binomial",
        [0.7, 2.7],
        is_count,
        bad=0.5,
        complaint=COUNTS,
        more={"size": [[3], [5]]},
        near={"size": 0.5},
    ),
    "zero_inflated_poisson": Case(
        "zero_inflated_poisson",
        [0.7, 2.3],
        is_count,
        bad=0.5,
        complaint=COUNTS,
        more={"zero": [[0.3], [0.1]]},
        near={"zero": 0.9},
    ),
    "zero_inflated_negative_binomial": Case(
        "zero_inflated_negative_binomial",
        [1, 3],
        is_count,
        bad=-1,
        complaint=COUNTS,
        more={"size": [[3], [5]], "zero": [[0.25], [0.1]]},
        near={"size": 0.6, "zero": 0.6},
    ),
    "hurdle_poisson": Case(
        "hurdle_poisson",
        [0.7, 2.3],
        is_count,
        bad=0.5,
        complaint=COUNTS,
        more={"zero": [[0.5], [0.1]]},
        near={"zero": 0.6},
    ),
    "hurdle_negative_binomial": Case(
        "hurdle_negative_binomial",
        [1, 3],
        is_count,
        bad=-1,
        complaint=COUNTS,
        more={"size": [[3], [5]], "zero": [[0.4], [0.1]]},
        near={"size": 0.7, "zero": 0.6},
    ),
    "exponential": Case("exponential", [-0.5, 2], lambda y: y >= 0, -1, AT_LEAST_0),
    "gamma": Case(
        "gamma",
        [0, 1.8],
        lambda y: y > 0,
        bad=0,
        complaint="positive numbers",
        more={"shape": [[2], [4]]},
    ),
    "zero_augmented_gamma": Case(
        "zero_augmented_gamma",
        [0, 1.8],
        lambda y: y >= 0,
        bad=-1,
        complaint=AT_LEAST_0,
        more={"shape": [[2], [4]], "zero": [[0.3], [0.05]]},
        near={"zero": 1.0},
    ),
    "weibull": Case(
        "weibull",
        [0, 1.8],
        lambda y: y > 0,
        bad=0,
        complaint="positive numbers",
        more={"shape": [[1.5], [3]]},
    ),
    "log_normal": Case(
        "log_normal",
        [0, 2],
        lambda y: y > 0,
        bad=0,
        complaint="positive numbers",
        more={"sdlog": [[0.5], [0.8]]},
    ),
    "beta": Case(
        "beta",
        [-1.5, 1.2],
        lambda y: (y > 0) & (y < 1),
        bad=1,
        complaint="numbers between 0 and 1, neither of them included",
        more={"precision": [[8], [12]]},
    ),
    "zero_one_inflated_beta": Case(
        "zero_one_inflated_beta",
        [-1.2, 1.2],
        lambda y: (y >= 0) & (y <= 1),
        bad=2,
        complaint="numbers from 0 to 1",
        more={"precision": [[8], [12]], "zero": [[0.4], [0.05]], "one": [[0.05], [0.3]]},
        near={"zero": 1.0, "one": 1.0},
    ),
    "student_t": Case(
        "student_t",
        [0, 5],
        np.isfinite,
        bad=np.inf,
        complaint="is infinite",
        more={"scale": [[1], [0.7]], "df": [[3], [5]]},
        near={"df": 1.1},
    ),
    "von_mises": Case(  # the first state reaches across the angle pi
        "von_mises",
        [-2.8, 0.2],
        is_angle,
        bad=90,
        complaint=ANGLES,
        more={"concentration": [[4], [2.5]]},
        effect_sd=0.25,
    ),
    "wrapped_cauchy": Case(
        "wrapped_cauchy",
        [-2.8, 0.2],
        is_angle,
        bad=90,
        complaint=ANGLES,
        more={"concentration": [[0.8], [0.6]]},
        effect_sd=0.25,
    ),
    "gaussian": Case(
        "gaussian",
        [0, 3],
        np.isfinite,
        bad=np.inf,
        complaint="is infinite",
        more={"variance": [[1], [0.5]]},
    ),
    "gaussian_with_sd": Case(
        "gaussian",
        [0, 3],
        np.isfinite,
        bad=np.inf,
        complaint="is infinite",
        more={"sd_coef": [[[0]], [[-0.4]]]},
        formulas={"sd": "~ 1"},
    ),
}


def draw(case, seed=0):
    """A panel with some outcomes missing, and the states and effects behind it."""
    rng = np.random.default_rng(seed)
    rows = pd.DataFrame({"who": np.repeat(np.arange(N), case.n_times)})
    rows["time"] = rows.groupby("who").cumcount()
    rows["trials"] = rng.integers(3, 9, len(rows))
    drawn = case.model.simulate(case.truth, data=rows, time="time", seed=seed)
    drawn.frame["seen"] = drawn.frame["seen"].mask(rng.random(len(rows)) < 0.08)
    return drawn


def as_drawn(case, drawn):
    """The truth about this panel: with the moves that were made and the effects that were drawn."""
    states = drawn.states.reshape(N, -1)
    moves = np.zeros((2, 2))
    np.add.at(moves, (states[:, :-1], states[:, 1:]), 1.0)
    first = np.bincount(states[:, 0], minlength=2)
    return case.truth | {
        "initial": first / first.sum(),
        "transition": moves / moves.sum(1, keepdims=True),
        "coef": case.truth["coef"] + drawn.effects.mean(0)[:, None],
        "effect_covariance": np.atleast_2d(np.cov(drawn.effects.T)),
    }


def on_link_scale(fit, params):
    """Parameters as numbers without bounds, so that differences mean the same everywhere."""
    out = {name: np.array(value, float) for name, value in params.items()}
    for name, info in fit.model.param_info().items():
        if name == "effect_covariance":
            out[name] = 0.5 * np.log(np.diagonal(out[name]))
        elif info.kind == "simplex":
            out[name] = np.log(out[name][..., 1] / out[name][..., 0])
        elif info.kind == "positive":
            out[name] = np.log(out[name])
        elif info.link is not None:
            out[name] = info.link.to_eta(out[name])
    return out


def missed(case, fit, drawn):
    """The names of what the fit did not find."""
    found, truth = on_link_scale(fit, fit.params), on_link_scale(fit, as_drawn(case, drawn))
    far = {name: found[name] - truth[name] for name in found}
    if case.valid is is_angle:  # a full turn changes nothing
        far["coef"] = np.angle(np.exp(1j * far["coef"]))
    limits = NEAR | case.near
    out = {name for name, by in far.items() if not np.abs(by).max() < limits.get(name, REST)}
    if (fit.decode().to_numpy() == drawn.states).mean() < 0.85:
        out.add("states")
    pairs = zip(fit.effects_mean.T, drawn.effects.T, strict=True)
    if min(np.corrcoef(mine, true)[0, 1] for mine, true in pairs) < 0.7:
        out.add("effects")
    return out


class Fitted(NamedTuple):
    case: Case
    drawn: Any
    fit: Any


@pytest.fixture(
    scope="module",
    params=chosen(CASES, ("poisson", "gamma")),
)
def fitted(request):
    case = CASES[request.param]
    drawn = draw(case)
    return Fitted(case, drawn, case.model.fit(drawn.frame, time="time", n_starts=2, refine=None))


def test_a_fit_finds_the_truth(fitted):
    case, drawn, fit = fitted
    assert missed(case, fit, drawn) == set()
    assert fit.stop is avem.Stop.CONVERGED
    assert fit.bound_history[-1] >= fit.bound_history[0]
    assert fit.info.n_missing == drawn.frame["seen"].isna().sum() > 50

    # One iteration from states that are nearly equal does not pass for it.
    truth = case.truth
    middle = {name: np.repeat(value.mean(0, keepdims=True), 2, 0) for name, value in truth.items()}
    poor = middle | {
        "coef": 0.9 * middle["coef"] + 0.1 * truth["coef"],
        "initial": [0.5, 0.5],
        "transition": np.full((2, 2), 0.5),
        "effect_covariance": 0.1 * truth["effect_covariance"],
    }
    with pytest.warns(avem.AvemWarning, match="iteration limit"):
        start = case.model.fit(
            drawn.frame, time="time", init=poor, n_starts=1, max_iter=1, refine=None
        )
    assert missed(case, start, drawn) >= {"coef", "transition"}
    assert start.bound < fit.bound


def test_a_fit_can_be_read_and_used(fitted):
    case, drawn, fit = fitted
    text, table = str(fit.summary(errors=False)).lower(), fit.table()
    assert any(line.startswith("seen") for line in text.splitlines())
    assert all(f"{value:.4g}" in text for value in fit.params["coef"].ravel())
    for name in case.more:
        assert {"variance": "noise"}.get(name, name.removesuffix("_coef")) in text
    for name, value in fit.params.items():
        if name == "effect_covariance":
            value = value[np.tril_indices(len(value))]
        estimate = table.loc[table["parameter"] == name, "estimate"]
        np.testing.assert_array_equal(estimate, value.ravel())
    assert table["outcome"].dropna().str.startswith("seen").all()

    shuffled = drawn.frame.sample(frac=1.0, random_state=1)
    states = fit.decode(shuffled)
    assert states.index.equals(shuffled.index)
    assert not states.index.equals(drawn.frame.index)
    pd.testing.assert_series_equal(states.sort_index(), fit.decode())

    again = fit.simulate(seed=1).frame["seen"]
    gaps = drawn.frame["seen"].isna()
    assert (again.isna() == gaps).all()
    assert case.valid(again[~gaps]).all()
    assert not again.equals(drawn.frame["seen"])


@pytest.mark.parametrize("name", CASES)
def test_a_value_that_cannot_be_is_refused(name):
    case = CASES[name]
    frame = draw(case).frame
    frame["seen"] = frame["seen"].astype(object if isinstance(case.bad, str) else float)
    frame.loc[7, "seen"] = case.bad
    with pytest.raises(avem.DataError, match=f"'seen'.*{case.complaint}"):
        case.model.fit(frame, time="time")


# --- several outcomes, effects of each state, outcomes that depend on the one before --------------


def rows_of(n, n_times, seed=0):
    """Rows without outcomes; x is a covariate."""
    rows = pd.DataFrame({"who": np.repeat(np.arange(n), n_times)})
    rows["time"] = rows.groupby("who").cumcount()
    rows["x"] = np.random.default_rng(seed).standard_normal(len(rows))
    return rows


@pytest.mark.slow
def test_three_families_with_covariate_and_effects_on_the_transitions():
    """Limits are about four times the standard deviation of the errors in other panels."""
    model = avem.MixedHMM(
        [
            avem.outcome("step ~ 1 + (1 | who)", "gamma", shape="~ x"),
            avem.outcome("angle ~ 1", "von_mises"),
            avem.outcome("rest ~ x", "bernoulli"),
        ],
        2,
        transition="~ x + (1 | who)",
        initial="stationary",
        effect_covariance="full",
    )
    root = np.array([[0.4, 0.0, 0.0], [0.2, 0.5, 0.0], [0.0, -0.2, 0.4]])
    truth = {
        "transition_coef": [[[0, 0], [-2, 1]], [[-1.5, -0.8], [0, 0]]],
        "step.coef": [[[0]], [[1.5]]],
        "step.shape_coef": [[[0.7, 0.3]], [[1.4, -0.2]]],
        "angle.coef": [[[3]], [[0]]],
        "angle.concentration": [[0.7], [3]],
        "rest.coef": [[[0.5, 0.6]], [[-2, 0]]],
        "effect_covariance": root @ root.T,
    }
    drawn = model.simulate(truth, data=rows_of(50, 120), time="time", seed=0)
    fit = model.fit(drawn.frame, time="time", n_starts=2, refine=None)
    assert fit.stop is avem.Stop.CONVERGED
    on_moves = np.array(truth["transition_coef"], float)
    on_moves[[0, 1], [1, 0], 0] += drawn.effects.mean(0)[1:]
    np.testing.assert_allclose(fit.params["transition_coef"], on_moves, atol=0.25)
    level = np.array(truth["step.coef"]) + drawn.effects.mean(0)[0]
    for name, expected, limit in (
        ("step.coef", level, 0.1),
        ("step.shape_coef", truth["step.shape_coef"], 0.15),
        ("angle.coef", truth["angle.coef"], 0.08),
        ("angle.concentration", truth["angle.concentration"], 0.3),
        ("rest.coef", truth["rest.coef"], 0.25),
        ("effect_covariance", np.cov(drawn.effects.T), 0.2),
    ):
        np.testing.assert_allclose(fit.params[name], expected, atol=limit, err_msg=name)
    assert (fit.decode() == drawn.states).mean() > 0.95
    pairs = zip(fit.effects_mean.T, drawn.effects.T, strict=True)
    along = [np.corrcoef(mine, true)[0, 1] for mine, true in pairs]
    assert along[0] > 0.95
    assert min(along) > 0.5


@pytest.mark.slow
def test_effects_of_each_state_have_their_own_variances():
    model = avem.MixedHMM("y ~ 1 + (1 | who)", 2, "poisson", effects_by_state=True)
    truth = {
        "initial": [0.5, 0.5],
        "transition": [[0.9, 0.1], [0.1, 0.9]],
        "coef": [[[1]], [[3]]],
        "effect_covariance": [[0.3**2, 0], [0, 0.7**2]],
    }
    drawn = model.simulate(truth, 50, 60, seed=0)
    fit = model.fit(drawn.frame, time="time", n_starts=2, refine=None)
    sd = np.sqrt(np.diagonal(fit.params["effect_covariance"]))
    np.testing.assert_allclose(sd, drawn.effects.std(0), atol=0.08)
    assert sd[1] > sd[0] + 0.2
    level = np.array(truth["coef"])[:, 0, 0] + drawn.effects.mean(0)
    np.testing.assert_allclose(fit.params["coef"][:, 0, 0], level, atol=0.08)
    for mine, true in zip(fit.effects_mean.T, drawn.effects.T, strict=True):
        assert np.corrcoef(mine, true)[0, 1] > 0.85


def test_outcomes_that_depend_on_the_one_before():
    model = avem.MixedHMM("y ~ lag(y) + (1 | who)", 2)
    truth = {
        "initial": [0.5, 0.5],
        "transition": [[0.95, 0.05], [0.05, 0.95]],
        "coef": [[[-1, 0.7]], [[2, -0.4]]],
        "variance": [[0.5], [1]],
        "effect_covariance": [[0.16]],
    }
    drawn = model.simulate(truth, data=rows_of(30, 80).assign(y=0.0), time="time", seed=0)
    frame = drawn.frame.copy()
    frame["y"] = frame["y"].mask(np.random.default_rng(0).random(len(frame)) < 0.05)
    fit = model.fit(frame, time="time", n_starts=2, refine=None)
    coef = np.array(truth["coef"], float)
    coef[:, 0, 0] += drawn.effects.mean()
    np.testing.assert_allclose(fit.params["coef"], coef, atol=0.15)
    np.testing.assert_allclose(fit.params["variance"], truth["variance"], atol=0.15)
    np.testing.assert_allclose(fit.params["transition"], truth["transition"], atol=0.03)
    np.testing.assert_allclose(fit.params["effect_covariance"], drawn.effects.var(), atol=0.08)
    assert (fit.decode() == drawn.states).mean() > 0.95
    alone = frame["y"].notna() & frame.groupby("who")["y"].shift().isna()
    assert alone.sum() > 30
    assert any(note.startswith(f"{alone.sum()} observed values are not") for note in fit.info.notes)
