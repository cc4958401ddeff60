"""Moves that there are, by a word or by pairs of states, and starts that know of them."""

import numpy as np
import pytest

import avem
from avem.components.given_moves import GivenMoves
from avem.components.transitions import from_json
from avem.errors import ModelError

MOVES = np.array([[0.9, 0.1, 0.0], [0.0, 0.88, 0.12], [0.0, 0.0, 1.0]])


def truth(means):
    return {
        "initial": [1.0, 0.0, 0.0],
        "transition": MOVES,
        "coef": np.array(means, float).reshape(3, 1, 1),
        "variance": np.full((3, 1), 0.3),
        "effect_covariance": [[0.25]],
    }


@pytest.fixture(scope="module")
def model():
    return avem.MixedHMM("y ~ 1 + (1 | subject)", 3, transition="left_to_right")


@pytest.fixture(scope="module")
def drawn(model):
    return model.simulate(truth([3, -3, 0]), 15, 40, seed=1)


@pytest.mark.parametrize("n_starts", [1, 3])
def test_few_starts_find_the_order_of_the_states(model, drawn, n_starts):
    """Their means are in no order: only the moves say which state is first."""
    fit = model.fit(drawn.frame, time="time", n_starts=n_starts, refine=None)
    np.testing.assert_allclose(fit.params["coef"][:, 0, 0], [3, -3, 0], atol=0.5)
    assert (fit.params["transition"][MOVES == 0] == 0).all()
    assert (fit.decode() == drawn.states).mean() > 0.98
    assert fit.n_params == 2 + 2 + 3 + 3 + 1


@pytest.mark.slow
def test_three_starts_are_as_good_as_the_truth(model):
    for seed in range(8):
        means = np.random.default_rng(seed).permutation([-2.5, 0, 2.5])
        frame = model.simulate(truth(means), 25, 40, seed=seed).frame
        few = model.fit(frame, time="time", n_starts=3, refine=None)
        begin = {"coef": truth(means)["coef"], "initial": [0.98, 0.01, 0.01]}
        told = model.fit(frame, time="time", init=begin, refine=None)
        assert few.bound > told.bound - 0.01


def test_zeros_are_what_constraints_of_zeros_are(model, drawn):
    zeros = [f"transition[{i}, {j}] == 0" for i, j in np.argwhere(MOVES == 0)]
    same = avem.MixedHMM("y ~ 1 + (1 | subject)", 3, constraints=zeros)
    fit = same.fit(drawn.frame, time="time", n_starts=3, refine=None)
    other = model.fit(drawn.frame, time="time", n_starts=3, refine=None)
    assert fit.bound == pytest.approx(other.bound, abs=1e-6)
    assert fit.n_params == other.n_params
    assert (fit.params["transition"][MOVES == 0] == 0).all()


def test_states_that_moves_do_not_tell_apart_are_in_the_order_of_their_means():
    """Neighbours stay neighbours when the states are counted from the other end."""
    banded = avem.MixedHMM("y ~ 1", 3, transition="banded")
    moves = np.array([[0.9, 0.1, 0], [0.05, 0.9, 0.05], [0, 0.1, 0.9]])
    given = {**truth([3, 0, -3]), "transition": moves, "initial": [0.4, 0.2, 0.4]}
    del given["effect_covariance"]
    frame = banded.simulate(given, 8, 60, seed=2).frame
    fit = banded.fit(frame, subject="subject", n_starts=3)
    np.testing.assert_allclose(fit.params["coef"][:, 0, 0], [-3, 0, 3], atol=0.5)
    assert fit.params["transition"][0, 2] == fit.params["transition"][2, 0] == 0


def test_words_are_the_same_in_continuous_time():
    steps = avem.MixedHMM("y ~ 1", 3, transition="absorbing")
    rates = avem.MixedHMM("y ~ 1", 3, transition="absorbing", time_scale="continuous")
    assert repr(steps).endswith("transition='absorbing')")
    assert repr(rates).endswith("transition=avem.rates(moves='absorbing'))")
    pairs = [("well", "ill"), ("ill", "well"), ("ill", "dead")]
    listed = avem.MixedHMM("y ~ 1", 3, transition=pairs, state_names=["well", "ill", "dead"])
    possible = listed.spec.transition.bound(3, 0, None).possible()
    assert possible.tolist() == [[True, True, False], [True, True, True], [False, False, True]]
    assert from_json(listed.spec.transition.to_json()) == listed.spec.transition


def test_it_is_saved_and_loaded_and_reported(model, drawn, tmp_path):
    fit = model.fit(drawn.frame, time="time", n_starts=1, refine=None)
    fit.save(tmp_path / "fit.avem")
    again = avem.load(tmp_path / "fit.avem")
    assert again.model.spec.transition == GivenMoves(moves="left_to_right")
    assert "moves from each state to the next" in str(fit.summary(errors=False))
    assert "transition='left_to_right'" in fit._parts().code()


@pytest.mark.parametrize(
    ("moves", "words"),
    [
        ([(0, 3)], "states 0 to 2"),
        ([(0, 0)], "two different states"),
        ([("a", "b")], "by number"),
        ([], "list of pairs"),
        ("left-to-right", "formula"),
    ],
)
def test_moves_that_cannot_be_are_refused(drawn, moves, words):
    with pytest.raises(ModelError, match=words):
        avem.MixedHMM("y ~ 1", 3, transition=moves).fit(drawn.frame, subject="subject")
