"""A kind of transitions that is written here alone: chains that only go on, never back."""

from dataclasses import dataclass

import numpy as np
import pytest

import avem
from avem.components import transitions
from avem.components.logit_transitions import LogitTransitions
from avem.components.transitions import FreeTransitions, register
from avem.errors import ModelError


@register
@dataclass(frozen=True)
class LeftToRight(FreeTransitions):
    """From each state only to itself and to the next."""

    word = "left_to_right"
    keeps_order = True

    def possible(self):
        here = np.arange(self.n_states)
        away = here[None] - here[:, None]
        return (away == 0) | (away == 1)


PARAMS = {
    "initial": np.array([1.0, 0.0, 0.0]),
    "transition": np.array([[0.9, 0.1, 0.0], [0.0, 0.85, 0.15], [0.0, 0.0, 1.0]]),
    "coef": np.array([4.0, -4.0, 0.0]).reshape(3, 1, 1),
    "variance": np.full((3, 1), 0.25),
    "effect_covariance": np.array([[0.25]]),
}


@pytest.fixture(scope="module")
def model():
    return avem.MixedHMM("y ~ 1 + (1 | subject)", n_states=3, transition=LeftToRight())


@pytest.fixture(scope="module")
def drawn(model):
    return model.simulate(PARAMS, n_subjects=20, n_times=40, seed=1)


@pytest.fixture(scope="module")
def fit(model, drawn):
    # Where the states begin is given: their order is the chain's, not that of their means.
    start = {"coef": PARAMS["coef"], "initial": [0.98, 0.01, 0.01]}
    return model.fit(drawn.frame, time="time", init=start, refine=None)


def test_paths_never_go_back(drawn):
    states = drawn.states.reshape(20, 40)
    assert set(np.unique(np.diff(states, axis=1))) == {0, 1}


def test_the_fit_keeps_the_zeros_and_the_order(fit, drawn):
    transition = fit.params["transition"]
    assert (transition[~LeftToRight(3).possible()] == 0).all()
    assert np.abs(transition - PARAMS["transition"]).max() < 0.08
    assert np.abs(fit.params["coef"] - PARAMS["coef"]).max() < 0.3
    assert (fit.decode() == drawn.states).mean() > 0.98


def test_zeros_are_no_parameters(fit):
    assert fit.n_params == 2 + 2 + 3 + 3 + 1  # first state, moves, means, variances, effects
    errors = fit.standard_errors()
    moves = errors[errors["parameter"] == "transition"].set_index(["state", "to_state"])["se"]
    assert np.isnan(moves[0, 2])
    assert moves[0, 1] > 0


def test_it_is_saved_and_loaded(fit, drawn, tmp_path):
    fit.save(tmp_path / "fit.avem")
    again = avem.load(tmp_path / "fit.avem")
    assert again.model.spec.transition == LeftToRight()
    assert (again.decode(drawn.frame) == fit.decode()).all()


def test_a_kind_that_is_not_known_is_named(fit, tmp_path, monkeypatch):
    fit.save(tmp_path / "fit.avem")
    monkeypatch.delitem(transitions.KINDS, "left_to_right")
    with pytest.raises(avem.FileError, match="left_to_right"):
        avem.load(tmp_path / "fit.avem")


def test_it_simulates_predicts_and_reports(fit, tmp_path):
    assert set(np.unique(np.diff(fit.simulate(seed=3).states.reshape(20, 40), axis=1))) <= {0, 1}
    ahead = fit.predict(horizon=3, of="states")
    last = ahead[ahead["state"] == "state_2"]["probability"].to_numpy().reshape(20, 3)
    assert (np.diff(last, axis=1) > -1e-9).all()  # once there, for ever
    fit.report(tmp_path / "page.html", thorough=False)
    assert "left to right" in (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "left to right" in str(fit.summary(errors=False))
    assert "LeftToRight" in repr(avem.MixedHMM.from_spec(fit.model.spec))


def test_what_is_no_transition_is_refused():
    with pytest.raises(ModelError, match="derived from"):
        avem.MixedHMM("y ~ 1", n_states=2, transition=3)
    with pytest.raises(ModelError, match="stationary"):
        avem.MixedHMM("y ~ 1", n_states=2, transition=LeftToRight(), initial="stationary")


def test_a_start_with_an_impossible_move_is_refused(model, drawn):
    wrong = {"transition": np.full((3, 3), 1 / 3)}
    with pytest.raises(ModelError, match="from state 0 to state 2"):
        model.fit(drawn.frame, time="time", init=wrong)


@pytest.mark.parametrize("own", [LeftToRight(), LogitTransitions(text="~ x + (1 | who)")])
def test_a_kind_is_made_again_from_what_a_file_holds(own):
    assert transitions.from_json(own.to_json()) == own
