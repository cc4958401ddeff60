"""Advice fits what happened."""

import numpy as np
import pytest

import avem
from avem.fits.notes import ending
from avem.fits.questions.diagnosis import HARD_TO_TELL, advice, why_lost
from avem.inference.stop import Stop
from avem.inference.tuning import BIAS


def test_more_steps_are_advised_only_where_steps_were_lacking():
    assert ending(Stop.CONVERGED, 500, 500) == []
    assert ending(Stop.OUT_OF_STEPS, 500, 500)[1] == "Raise max_iter (500 now), or loosen tol."
    told = " ".join(ending(Stop.OUT_OF_STEPS, 365, 500))
    assert "365 of 500 steps could be kept" in told
    assert "max_iter" not in told
    assert ending(Stop.BOUND_FELL, 20, 500) == [Stop.BOUND_FELL.value]


@pytest.mark.parametrize(("sure", "hard"), [(0.99, False), (0.91, False), (0.89, True)])
def test_states_are_hard_to_tell_apart_where_rows_are_unsure(sure, hard):
    assert (why_lost(1 - sure) == HARD_TO_TELL) == hard
    assert why_lost(0.0) == ""


def test_the_rule_is_that_of_the_fit():
    lost = np.array([0.3, 0.01])
    names = ["y: Intercept", "y: x"]
    assert "Anchoring holds" in advice(names, lost, 0.9 * BIAS, False, HARD_TO_TELL)
    bad = advice(names, lost, 2.0, False, HARD_TO_TELL)
    assert bad.startswith("The states are hard to tell apart: much of the information on y: Inter")
    assert "estimates would be 2.0 standard errors off" in bad
    assert "refine='adaptive'" in bad
    other = advice(names, np.array([0.01, 0.01]), 2.0, True, HARD_TO_TELL)
    assert other.startswith("With one anchor per subject, estimates would be 2.0")
    assert "hard to tell" not in other
    assert "This fit is refined" in other
    assert "hard to tell" not in advice(names, lost, 2.0, True, "")
    # Where the fit did not ask, by the information lost.
    assert "Anchoring holds" in advice(names, lost / 10, None, False, "")
    assert "refine='adaptive'" in advice(names, lost, None, False, "")


@pytest.mark.slow
def test_states_that_are_plain_to_see_are_not_blamed():
    """Few moves say little of an effect on them, however clear the states are."""
    model = avem.MixedHMM("y ~ 1", 2, transition="~ 1 + (1 | id)", effect_covariance="diagonal")
    truth = {
        "initial": [0.5, 0.5],
        "transition_coef": [[[0.0], [-1.5]], [[-1.5], [0.0]]],
        "coef": [[[-5.0]], [[5.0]]],
        "variance": [[1.0], [1.0]],
        "effect_covariance": [[1.0, 0.0], [0.0, 1.0]],
    }
    drawn = model.simulate(truth, n_subjects=20, n_times=12, seed=4)
    fit = model.fit(drawn.frame, time="time", init=truth, n_starts=1)
    assert fit.state_probabilities().to_numpy().max(axis=1).mean() > 0.99
    assert not any(HARD_TO_TELL in note for note in fit.notes)
    assert HARD_TO_TELL not in fit.diagnose().advice
