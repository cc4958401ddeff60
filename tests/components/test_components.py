"""What every component promises, over every component there is; nothing here is compiled."""

import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

import avem
from avem.data import Panel
from avem.models.hmm import HMMModel
from avem.models.ssm import SSMModel


def density(y, x, history, params, effect):
    return -0.5 * (y - params["level"]) ** 2 - jnp.log(2.0)


def frame():
    rng = np.random.default_rng(3)
    n, length = 4, 12
    rows = n * length
    return pd.DataFrame(
        {
            "who": np.repeat([f"s{i}" for i in range(n)], length),
            "t": np.arange(rows) ** 1.2,
            "x": rng.standard_normal(rows),
            "y": 5 + 3 * rng.standard_normal(rows),
            "z": rng.standard_normal(rows),
            "hit": rng.integers(2, size=rows),
            "won": rng.integers(2, size=rows),
            "word": rng.choice(["a", "b", "c"], rows),
            "wait": rng.gamma(2.0, 1.0, rows),
        }
    )


CUSTOM = avem.Custom(density, {"level": 0.0, "other": 1.0}, effects=["level"])
HMMS = {
    "full": avem.MixedHMM("y + z ~ x + (1 | who)", 3, avem.Gaussian("full")),
    "spherical": avem.MixedHMM("y + z ~ 1", 2, avem.Gaussian("spherical")),
    "two of a family": avem.MixedHMM(
        "hit + won ~ x + (1 | who)", 2, "bernoulli", effects_by_state=True
    ),
    "several": avem.MixedHMM(
        [
            avem.outcome("word ~ x", "categorical"),
            avem.outcome("wait ~ 1 + (1 | who)", "gamma", shape="~ x"),
            avem.outcome("y ~ x + (1 | who)", "student_t"),
            avem.outcome("z ~ x", CUSTOM),
        ],
        3,
        transition="~ x + (1 | who)",
        initial="~ x",
        effect_covariance="block",
    ),
    "stationary": avem.MixedHMM("y ~ 1", 3, initial="stationary"),
    "starts": avem.MixedHMM(
        "y ~ x + (1 | who)", 3, transition="~ 1 + (1 | who)", initial="~ x + (1 + x | who)"
    ),
    "clusters": avem.MixedHMM(
        "y ~ 1 + (1 | who)", 3, transition="~ x + (1 | who)", initial="~ x", n_clusters=2
    ),
    "rates": avem.MixedHMM("y ~ x", 3, time_scale="continuous"),
    "some rates": avem.MixedHMM(
        "y ~ 1 + (1 | who)",
        3,
        transition=avem.rates("~ x + (1 + x | who)", moves=[(0, 1), (1, 0), (0, 2), (1, 2)]),
    ),
}
SSMS = {
    "both": avem.MixedSSM("y + z ~ x + (1 | who)", 2, state="~ 0 + x"),
    "none": avem.MixedSSM("y + z ~ 0", 1, random="none", subject="who"),
    "drift": avem.MixedSSM("y + z ~ x", 2, subject="who", state="~ 0 + x", time_scale="continuous"),
}
EVERY = [*HMMS, *SSMS]


def learned(name):
    """The model on standardised data, and parameters somewhere inside."""
    panel = Panel.from_frame(frame(), "who", time="t")
    model = (
        HMMModel.learn(HMMS[name].spec, panel)
        if name in HMMS
        else SSMModel.learn(SSMS[name].spec, panel)
    )
    model = model.scaled_to(model.read(panel))
    rng = np.random.default_rng(1)
    theta = {}
    for component in model.components:
        for key, value in component.middle().items():
            theta[key] = somewhere(key, np.array(value, float), rng)
    return model, theta


def somewhere(key, value, rng):
    if key in ("initial", "transition", "clusters"):
        value = value * rng.uniform(0.5, 1.5, value.shape)
        return value / value.sum(-1, keepdims=True)
    if key.endswith("covariance") and value.size:
        root = value + np.tril(0.2 * rng.standard_normal(value.shape)) * (value.shape[-1] > 1)
        return root @ np.swapaxes(root, -1, -2)
    if key == "loading":
        return np.tril(rng.standard_normal(value.shape))
    return 0.5 * rng.standard_normal(value.shape)


@pytest.mark.parametrize("name", EVERY)
def test_parameters_go_out_and_come_back(name):
    model, theta = learned(name)
    if name == "spherical":
        theta["0.covariance"] = np.eye(2) * np.array([0.5, 2.0])[:, None, None]
    if name in ("both", "drift"):  # effects of different kinds are independent
        blocks = model.effect_blocks
        theta["effect_covariance"] *= blocks[:, None] == blocks
    params = model.params_out(theta)
    assert {n: v.shape for n, v in params.items()} == {
        n: info.shape for n, info in model.param_info().items()
    }
    again = model.params_in(model.check_params(params, "params"))
    assert set(again) == set(theta)
    for key, value in theta.items():
        np.testing.assert_allclose(again[key], value, atol=1e-10, err_msg=key)


@pytest.mark.parametrize("name", EVERY)
def test_every_number_has_a_row_of_its_own(name):
    model, theta = learned(name)
    rows = list(model.parameter_rows(model.params_out(theta)))
    where = [(parameter, *sorted(row.where.items(), key=str)) for parameter, row in rows]
    assert len(set(map(str, where))) == len(where)
    assert np.isfinite([row.estimate for _, row in rows]).all()
    assert len(model.constant_rows()) == len(rows)


@pytest.mark.parametrize("name", EVERY)
def test_what_is_free_is_a_vector_and_back(name):
    model, theta = learned(name)
    free = model.find_free(theta, (), np.ones(len(model.scaling.scale)))
    assert free.size == model.count_free(())
    vector = free.vector(theta) + 0.01
    there = free.theta(vector, theta)
    np.testing.assert_allclose(free.vector(there), vector, atol=1e-10)
    every = frozenset(model.param_info())
    assert model.count_free(every) == 0
    assert not any(mask.any() for mask in model.free_entries(every).values())
    assert model.matches(every) == (None,) * model.n_effects


@pytest.mark.parametrize("name", EVERY)
def test_an_effect_is_added_to_a_coefficient_in_its_own_unit(name):
    """A shift of an effect, in the user's units, is that of the coefficient it is matched with."""
    model, theta = learned(name)
    for place, match in enumerate(model.matches()):
        if match is None:
            continue
        states = slice(None) if match.state is None else match.state
        moved = {key: np.array(value) for key, value in theta.items()}
        moved[match.key][(states, *match.place)] += 1.0
        before, after = model.params_out(theta), model.params_out(moved)
        unit = np.eye(model.n_effects)[:, [place]]
        shift = model.effects_out(unit, np.zeros((*unit.shape[:1] * 2, 1)))[0][0]
        changes = [
            change
            for parameter, value in before.items()
            for change in np.unique(np.abs(after[parameter] - value).round(9))
            if change > 1e-6
        ]
        if changes:
            assert np.abs(shift).max().round(6) in np.round(changes, 6)


@pytest.mark.parametrize("name", HMMS)
def test_states_renumbered_twice_are_as_before(name):
    model, theta = learned(name)
    order = np.random.default_rng(0).permutation(model.n_states)
    if (possible := model.transition.orders()) is not None:
        order = np.array(list(possible)[-1])
        assert (order != np.arange(model.n_states)).any()
    there, source = model.relabelled(theta, order)
    back, again = model.relabelled(there, np.argsort(order))
    assert set(there) == set(theta)
    for key, value in theta.items():
        np.testing.assert_allclose(back[key], value, atol=1e-12, err_msg=key)
    np.testing.assert_allclose(again @ source, np.eye(model.n_effects))


@pytest.mark.parametrize("name", HMMS)
def test_probabilities_of_moves_and_starts(name):
    model, theta = learned(name)
    rng = np.random.default_rng(5)
    a = rng.standard_normal((6, len(model.designs.keys)))
    a[:, model.designs.clock_cols[:1]] = 1.0  # what `matrices` are over
    effects = rng.standard_normal((6, model.n_effects))
    theta = model.theta_of(theta, model.n_clusters - 1)
    moves = model.transition.matrices(theta, a, effects)
    np.testing.assert_allclose(moves.sum(-1), 1.0)
    state = rng.integers(model.n_states, size=6)
    chances = model.transition.chances(theta, a, effects, state)
    np.testing.assert_allclose(chances, moves[np.arange(6), state])
    start = model.initial.chances(theta, a, effects, lambda: moves)
    np.testing.assert_allclose(start.sum(-1), 1.0)
    if name == "stationary":
        np.testing.assert_allclose(np.einsum("rk,rkl->rl", start, moves), start)


@pytest.mark.parametrize("name", ["both"])
def test_signs_turned_twice_are_as_before(name):
    model, theta = learned(name)
    sign = np.array([-1.0, 1.0])
    there, turn = model.turned(theta, sign)
    assert (there["loading"][:, 0] == -theta["loading"][:, 0]).all()
    back, again = model.turned(there, sign)
    for key, value in theta.items():
        np.testing.assert_array_equal(back[key], value)
    assert (turn * again == 1).all()
