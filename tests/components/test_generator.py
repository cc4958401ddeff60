"""Continuous time: rates of moves, intervals of any length, exact times of entering a state."""

import jax
import numpy as np
import pandas as pd
import pytest
from scipy.linalg import expm

import avem
from avem.components import generator_block
from avem.components.generator_block import RateMoves
from avem.components.linear import Predictor
from avem.data import Panel
from avem.data.clock import Clock
from avem.errors import DataError, ModelError
from avem.inference.after.hmm_states import total_loglik
from avem.inference.methods.anchored import anchored_pass
from avem.models.hmm import HMMModel
from avem.numerics.generator import generators, transition_matrices
from avem.numerics.precision import in_float64
from tests.brute import enumerate_paths, gaussian_table, log_sum
from tests.panels import awkward_frame

RATE = np.array([[0.0, 0.6, 0.2], [0.3, 0.0, 0.4], [0.1, 0.5, 0.0]])
ILL = np.array([[0.0, 0.4, 0.1], [0.2, 0.0, 0.5], [0.0, 0.0, 0.0]])
"""Well, ill, dead."""
MOVES = [("well", "ill"), ("well", "dead"), ("ill", "well"), ("ill", "dead")]
NAMES = ["well", "ill", "dead"]


def as_generator(rate):
    return rate - np.diag(rate.sum(1))


def irregular(seed=0, n_outcomes=1):
    """An awkward panel at real times."""
    frame = awkward_frame(seed, n_outcomes)
    gaps = pd.Series(np.random.default_rng(seed).gamma(2.0, 1.0, len(frame)), index=frame.index)
    ordered = frame.sort_values(["who", "session", "t"])
    days = gaps[ordered.index].groupby([ordered["who"], ordered["session"]]).cumsum()
    return frame.assign(day=days)


def params_of(rate, n_effects=0, n_terms=1):
    rng = np.random.default_rng(7)
    k = len(rate)
    return {
        "initial": np.array([0.5, 0.3, 0.2])[:k],
        "rate": rate,
        "coef": np.linspace(-1.5, 1.5, k).reshape(k, 1, 1),
        "variance": rng.uniform(0.5, 2.0, (k, 1)),
        "effect_covariance": np.zeros((n_effects, n_effects)),
    }


def loglik_at(model, frame, params, effects=None, time="day"):
    panel = Panel.from_frame(frame, "who", time=time, sequence="session")
    learned = HMMModel.learn(model.spec, panel)
    learned = learned.scaled_to(learned.read(panel))
    encoded = learned.encode(panel)
    theta = learned.params_in({name: np.asarray(value, float) for name, value in params.items()})
    d = learned.n_effects
    at = np.zeros((d, panel.n_subjects)) if effects is None else learned.effects_in(effects)
    jacobian = learned.scaling.log_jacobian(~np.isnan(encoded.y)).sum()
    return total_loglik(encoded, theta, at) + jacobian, panel


def by_enumeration(panel, frame, params, matrices, allowed=None):
    """The log likelihood, path by path; `matrices(rows)` are the transitions into these rows."""
    total = 0.0
    for lane in range(panel.n_lanes):
        rows = panel.order[panel.row_lane[panel.order] == lane]
        y = panel.table["y1"].to_numpy()[rows][:, None]
        mean = np.broadcast_to(params["coef"][:, 0, 0][None, :, None], (len(rows), len(RATE), 1))
        table = gaussian_table(y, mean, params["variance"][:, :, None])
        if allowed is not None:
            table = np.where(allowed[rows], table, -np.inf)
        transition = np.stack([np.eye(len(RATE)), *matrices(rows)[1:]])
        with np.errstate(invalid="ignore"):
            total += log_sum(enumerate_paths(params["initial"], transition, table)[1])
    return total


def test_the_exponential_is_that_of_scipy():
    rng = np.random.default_rng(0)
    for k in (2, 3, 5):
        rate = rng.gamma(0.3, 1.0, (k, k, 40)) * np.exp(rng.normal(0, 3, 40))
        rate[np.arange(k), np.arange(k)] = 0.0
        made = transition_matrices(generators(rate))
        wanted = np.stack([expm(as_generator(one)) for one in np.moveaxis(rate, -1, 0)], axis=-1)
        np.testing.assert_allclose(made, wanted, atol=1e-11)
        assert (made >= 0).all()


def test_small_probabilities_keep_their_digits():
    """Of two moves at a slow rate, where the answer is known: the second term of a Poisson."""
    slow = 1e-9
    moved = transition_matrices(generators(np.array([[0, slow, 0], [0, 0, slow], [0, 0, 0.0]])))
    np.testing.assert_allclose(moved[0, 2], slow**2 / 2, rtol=1e-8)


@pytest.mark.parametrize("fast", [1e2, 1e6, 1e13])
def test_slow_moves_beside_fast_ones_keep_their_digits(fast):
    """Two states that change places very often, and a slow way out: eigenvalues in closed form."""
    rate = np.array([[0, fast, 0], [2 * fast, 0, 1.0], [0, 0, 0]])
    total = 3 * fast + 1
    root = np.sqrt(total**2 - 4 * fast)
    slow, quick = -2 * fast / (total + root), -(total + root) / 2
    share = slow / (slow - quick)
    for time in (1e-3, 1.0, 5.0):
        left = (1 - share) * np.exp(slow * time) + share * np.exp(quick * time)
        made = transition_matrices(generators(rate * time))
        np.testing.assert_allclose(made[0, :2].sum(), left, rtol=3e-14)
        np.testing.assert_allclose(made.sum(1), 1.0, rtol=1e-14)


def test_the_likelihood_is_that_of_all_paths():
    model = avem.MixedHMM("y1 ~ 1", 3, time_scale="continuous")
    frame, params = irregular(), params_of(RATE)
    found, panel = loglik_at(model, frame, params)
    days = panel.table["day"].to_numpy()

    def matrices(rows):
        gaps = np.diff(days[rows], prepend=0.0)
        return [expm(as_generator(RATE) * gap) for gap in gaps]

    np.testing.assert_allclose(found, by_enumeration(panel, frame, params, matrices), rtol=1e-10)


def test_exact_times_of_entering_are_densities():
    frame = irregular()
    last = frame.groupby(["who", "session"])["t"].transform("max")
    frame["died"] = (frame["t"] == last) & (last > 0) & frame["who"].isin(["a", "b", "d"])
    frame.loc[frame["died"], "y1"] = np.nan
    model = avem.MixedHMM(
        "y1 ~ 1", 3, state_names=NAMES, transition=avem.rates(moves=MOVES, event="died")
    )
    params = params_of(ILL) | {"initial": np.array([0.6, 0.4, 0.0])}
    found, panel = loglik_at(model, frame, params)
    days, died = panel.table["day"].to_numpy(), panel.table["died"].to_numpy()
    into = ILL * np.array([0, 0, 1.0])

    def matrices(rows):
        gaps = np.diff(days[rows], prepend=0.0)
        moved = [expm(as_generator(ILL) * gap) for gap in gaps]
        return [p @ into if died[row] else p for p, row in zip(moved, rows, strict=True)]

    allowed = np.where(died[:, None], [False, False, True], [True, True, False])
    wanted = by_enumeration(panel, frame, params, matrices, allowed)
    np.testing.assert_allclose(found, wanted, rtol=1e-10)


def test_an_interval_of_two_is_two_steps_with_a_row_missing():
    frame = irregular()
    frame["day"] = frame["t"] * 2.0
    model = avem.MixedHMM("y1 ~ 1", 3, time_scale="continuous")
    filled = Panel.from_frame(frame, "who", time="day", sequence="session").fill_gaps(1).table
    assert len(filled) > len(frame)
    found, _ = loglik_at(model, frame, params_of(RATE))
    again, _ = loglik_at(model, filled, params_of(RATE))
    np.testing.assert_allclose(again, found, rtol=1e-12)


def test_equal_intervals_are_the_chain_in_steps():
    frame, params = irregular(), params_of(RATE)
    found, _ = loglik_at(
        avem.MixedHMM("y1 ~ 1", 3, time_scale="continuous"), frame, params, time="t"
    )
    discrete = {name: value for name, value in params.items() if name != "rate"}
    discrete["transition"] = expm(as_generator(RATE))
    wanted, _ = loglik_at(avem.MixedHMM("y1 ~ 1", 3), frame, discrete, time="t")
    np.testing.assert_allclose(found, wanted, rtol=1e-12)


def test_covariates_and_effects_act_on_log_rates():
    frame = irregular()
    model = avem.MixedHMM("y1 ~ 1", 3, transition="~ x + (1 | who)", time_scale="continuous")
    rng = np.random.default_rng(3)
    params = params_of(RATE, 6)
    del params["rate"]
    params["rate_coef"] = rng.normal(0, 0.5, (3, 3, 2)) * (1 - np.eye(3))[:, :, None]
    params["effect_covariance"] = np.eye(6)
    effects = rng.normal(0, 0.7, (5, 6))
    found, panel = loglik_at(model, frame, params, effects)
    days, x = panel.table["day"].to_numpy(), panel.table["x"].to_numpy()
    pairs = [(k, m) for k in range(3) for m in range(3) if k != m]

    def matrices(rows):
        gaps, out = np.diff(days[rows], prepend=0.0), []
        for gap, row in zip(gaps, rows, strict=True):
            rate = np.zeros((3, 3))
            for number, (k, m) in enumerate(pairs):
                b = params["rate_coef"][k, m]
                rate[k, m] = np.exp(b[0] + b[1] * x[row] + effects[panel.row_subject[row], number])
            out.append(expm(as_generator(rate) * gap))
        return out

    np.testing.assert_allclose(found, by_enumeration(panel, frame, params, matrices), rtol=1e-10)


@in_float64
def test_slopes_and_information_are_those_of_differences():
    """In coefficients and in effects; the information where pairs are as many as expected."""
    pairs, k, n = ((0, 1), (1, 0), (1, 2), (0, 2)), 3, 2
    rng = np.random.default_rng(2)
    lines = tuple(Predictor((0, 1), (0,), ((e,),), False) for e in range(4))
    block = RateMoves(k, 4, pairs, lines, (2, 3), (2,), -1, 0, False)
    a = np.ones((5, 4, n))
    a[:, 1], a[:, 2] = rng.standard_normal((5, n)), rng.gamma(2.0, 1.0, (5, n))
    a[:, 3] = rng.random((5, n)) < 0.3
    coef, f = 0.4 * rng.standard_normal((4, 2)), 0.4 * rng.standard_normal((4, n))
    probabilities = jax.jit(block.probabilities)
    chance = np.asarray(probabilities(coef, f, a))
    count = rng.gamma(2.0, 1.0, (5, k, 1, n))

    def value(flat, pair):
        moved = probabilities(flat[:8].reshape(4, 2), flat[8:].reshape(4, n), a)
        logs = np.log(np.maximum(moved, 1e-300))
        return float((pair * np.where(chance > 0, logs, 0.0)).sum())

    here = np.concatenate([coef.ravel(), f.ravel()])
    pair = rng.gamma(2.0, 1.0, chance.shape) * (chance > 0)
    steps = 1e-5 * np.eye(16)
    wanted = [(value(here + h, pair) - value(here - h, pair)) / 2e-5 for h in steps]

    @jax.jit
    def at(pair):
        log_rates = block._log_rates(coef, f, a)
        ways = [((move, column),) for move in range(4) for column in range(2)]
        return block._terms(log_rates, pair, a, ways, False), block._in_effects(log_rates, pair, a)

    of_coef, of_effects = at(pair)
    found = np.concatenate([of_coef.gradient, np.ravel(of_effects.gradient)])
    np.testing.assert_allclose(found, wanted, atol=1e-6)
    np.testing.assert_allclose(np.sum(of_effects.value), value(here, pair))
    # An event's density does not add up to 1: its information is left out.
    expected = count * chance * (a[:, 3] == 0)[:, None, None]
    of_coef, of_effects = at(expected)
    h = 1e-4 * np.eye(16)
    second = [
        [
            value(here + i + j, expected)
            - value(here + i - j, expected)
            - value(here - i + j, expected)
            + value(here - i - j, expected)
            for j in h
        ]
        for i in h
    ]
    second = -np.array(second) / 4e-8
    np.testing.assert_allclose(of_coef.curvature, second[:8, :8], atol=1e-4)
    bend, second = of_effects.curvature, second[8:, 8:].reshape(4, n, 4, n)
    for lane in range(n):
        np.testing.assert_allclose(bend[:, :, lane], second[:, lane, :, lane], atol=1e-4)
    assert np.abs(second[:, 0, :, 1]).max() < 1e-4


@in_float64
@pytest.mark.parametrize("apart", [False, True])
def test_a_few_cells_at_a_time(apart, monkeypatch):
    """With a last block that is filled up, or at once."""
    predictor = Predictor((0,), (0,), ((0,),), False)
    block = RateMoves(2, 1, ((0, 1), (1, 0)), (predictor,) * 2, (1,), (), -1, 0, False)
    rng = np.random.default_rng(4)
    a = np.stack([np.ones((7, 3)), rng.gamma(2.0, 1.0, (7, 3))], 1)
    log_rates, pair = rng.standard_normal((2, 7, 3)), rng.gamma(2.0, 1.0, (7, 2, 2, 3))
    ways = [((0, 0), (1, 0)), ((1, 0),)]
    whole = jax.jit(lambda: block._terms(log_rates, pair, a, ways, apart))()
    monkeypatch.setattr(generator_block, "_AT_ONCE", 6)
    parts = jax.jit(lambda: block._terms(log_rates, pair, a, ways, apart))()
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-12), whole, parts)


# --- intervals ------------------------------------------------------------------------------------


def test_dates_are_counted_in_the_unit_of_choice():
    when = pd.to_datetime(["2024-03-30", "2024-03-31", "2024-04-07"]).tz_localize("Europe/Berlin")
    frame = pd.DataFrame({"who": "a", "when": when})
    panel = Panel.from_frame(frame, "who", time="when")
    hours = Clock("hours").intervals(panel)
    assert hours.tolist() == [0.0, 24.0, 7 * 24.0 - 1]  # a clock was put forward
    np.testing.assert_allclose(Clock().intervals(panel), hours / 24)
    text = Panel.from_frame(
        frame.assign(when=["2024-03-30", "2024-03-31", "2024-04-07"]), "who", "when"
    )
    assert Clock("weeks").intervals(text).tolist() == pytest.approx([0.0, 1 / 7, 1.0])
    with pytest.raises(ModelError, match="Did you mean 'weeks'"):
        Clock("week").intervals(panel)


def test_decimal_times_share_intervals():
    frame = pd.DataFrame({"who": "a", "t": [0.1, 0.2, 0.3, 0.4, 0.7]})
    found = Clock().intervals(Panel.from_frame(frame, "who", time="t"))
    assert len(set(found[1:4].tolist())) == 1
    late = Panel.from_frame(frame.assign(t=1000 + frame["t"]), "who", time="t")
    assert Clock().intervals(late)[1:4].tolist() == [0.1, 0.1, 0.1]


def test_short_intervals_beside_long_ones_keep_their_digits():
    frame = pd.DataFrame({"who": "a", "t": [0.0, 1.4e-6, 1e6]})
    found = Clock().intervals(Panel.from_frame(frame, "who", time="t"))
    np.testing.assert_allclose(found, [0.0, 1.4e-6, 1e6], rtol=1e-9)


def test_times_are_needed_and_must_be_such():
    frame = irregular()
    model = avem.MixedHMM("y1 ~ 1", 2, time_scale="continuous")
    with pytest.raises(DataError, match="needs times"):
        model.fit(frame, subject="who")
    words = frame.assign(day=frame["t"].map("{:02d}.".format))
    with pytest.raises(DataError, match="numbers or dates"):
        model.fit(words, subject="who", time="day", sequence="session")


# --- what a user may say --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"moves": "forward"}, "moves is 'forward'"),
        ({"moves": [(0, 0)]}, "two different states"),
        ({"moves": [(0, 1), [0, 1]]}, "twice"),
        ({"moves": [("a", "b")]}, "states 0 to 1"),
        ({"moves": [(0, 5)]}, "states 0 to 1"),
        ({"moves": 3}, "a list of pairs"),
        ({"event": 3}, "event is 3"),
        ({"event": "x"}, "no such state here"),
        ({"formula": "y ~ x"}, "has an outcome"),
    ],
)
def test_what_cannot_be_is_refused(options, words):
    frame = irregular()
    with pytest.raises(ModelError, match=words):
        avem.MixedHMM("y1 ~ 1", 2, transition=avem.rates(**options)).fit(
            frame, "who", "day", "session"
        )


def test_time_scale_and_transitions_must_agree():
    with pytest.raises(ModelError, match="Did you mean 'continuous'"):
        avem.MixedHMM("y ~ 1", 2, time_scale="continous")
    with pytest.raises(ModelError, match="of the other kind"):
        avem.MixedHMM("y ~ 1", 2, time_scale="discrete", transition=avem.rates())
    with pytest.raises(ModelError, match="in discrete time"):
        avem.MixedHMM("y ~ 1", 2, time_scale="continuous", initial="stationary")
    model = avem.MixedHMM("y ~ 1", 2, time_scale="continuous", transition="~ x")
    assert "transition=avem.rates('~ x')" in repr(model)
    assert avem.MixedHMM.from_spec(model.spec).spec == model.spec


def test_pairs_of_subjects_together_are_those_of_each(monkeypatch):
    """With many different intervals, some of which occur more than once."""
    rng = np.random.default_rng(5)
    gaps = rng.integers(1, 300, (30, 30)) / 100
    frame = pd.DataFrame({"subject": np.repeat(np.arange(30), 30), "t": gaps.cumsum(1).ravel()})
    frame["y"] = np.repeat(rng.integers(0, 2, (30, 10)), 3) * 3.0 + rng.standard_normal(900)
    model = avem.MixedHMM("y ~ 1 + (1 | subject)", 2, time_scale="continuous")
    seen, plain = [], RateMoves.summed

    def summed(self):
        seen.append(plain(self).together)
        return plain(self)

    monkeypatch.setattr(RateMoves, "summed", summed)
    options = {"time": "t", "n_starts": 1, "refine": None, "max_iter": 5}
    with pytest.warns(avem.AvemWarning, match="limit"):
        found = model.fit(frame, **options)
    assert any(seen)
    anchored_pass.clear_cache()
    monkeypatch.setattr(RateMoves, "summed", lambda self: self)
    with pytest.warns(avem.AvemWarning, match="limit"):
        wanted = model.fit(frame, **options)
    anchored_pass.clear_cache()
    assert found.bound == pytest.approx(wanted.bound, rel=1e-12)
    np.testing.assert_allclose(found.params["rate"], wanted.params["rate"], rtol=1e-9)
