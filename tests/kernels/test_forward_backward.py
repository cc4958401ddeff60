"""Forward-backward and Viterbi against the enumeration of all paths."""

import jax
import numpy as np
import pytest

from avem.kernels import forward_backward as hmm
from avem.kernels.viterbi import viterbi
from avem.numerics.precision import in_float64
from tests.brute import enumerate_paths, log_sum

N_STATES = 3
LENGTHS = (6, 1, 4, 2, 5)


def random_problem(seed=0, lengths=LENGTHS, n_states=N_STATES, spread=2.0):
    """Tables of several lanes, padded to the longest; one step of each lane unobserved."""
    rng = np.random.default_rng(seed)
    table = spread * rng.standard_normal((max(lengths), n_states, len(lengths)))
    valid = np.arange(max(lengths))[:, None] < np.array(lengths)
    for lane, length in enumerate(lengths):
        table[rng.integers(length), :, lane] = 0.0
    table = np.where(valid[:, None], table, 0.0)
    transition = rng.dirichlet(np.ones(n_states), size=n_states)
    return rng.dirichlet(np.ones(n_states)), transition, table, valid


FORMS = ["scaled", "log", "scan"]
"""The scan is the scaled form without an engine."""


@in_float64
def smooth(initial, transition, table, valid, form="scaled", steps=None):
    @jax.jit  # one program: operation by operation, every single one would be compiled by itself
    def run(initial, transition, table, valid):
        if form == "scan":
            return hmm.definition(initial, transition, table, valid, steps or hmm.Steps())
        return hmm.smooth(initial, transition, table, valid, form, steps)

    return jax.tree.map(np.asarray, run(initial, transition, table, valid))


@pytest.mark.parametrize("form", FORMS)
def test_smooth_equals_enumeration(form):
    initial, transition, table, valid = random_problem()
    posterior = smooth(initial, transition, table, valid, form)
    for lane, length in enumerate(LENGTHS):
        paths, joint = enumerate_paths(initial, transition, table[:length, :, lane])
        weight = np.exp(joint - log_sum(joint))
        np.testing.assert_allclose(posterior.loglik[lane], log_sum(joint), rtol=1e-12)
        for k in range(N_STATES):
            expected = ((paths == k) * weight[:, None]).sum(0)
            np.testing.assert_allclose(posterior.state[:length, k, lane], expected, atol=1e-12)
            for m in range(N_STATES):
                moves = ((paths[:, :-1] == k) & (paths[:, 1:] == m)).sum(1)
                np.testing.assert_allclose(
                    posterior.pair[0, k, m, lane], moves @ weight, atol=1e-12
                )
    assert (posterior.state[~valid[:, None] & np.ones_like(table, bool)] == 0).all()


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("n_cells", [2, 0])
def test_smooth_with_transitions_of_every_step_equals_enumeration(form, n_cells):
    initial, _, table, valid = random_problem(seed=4, lengths=(4, 1, 3))
    rng = np.random.default_rng(4)
    transition = np.moveaxis(rng.dirichlet(np.ones(N_STATES), size=(4, 3, N_STATES)), 1, -1)
    cell = rng.integers(0, 2, size=(4, 3)).astype(np.int32) if n_cells else None
    posterior = smooth(initial, transition, table, valid, form, hmm.Steps(cell, n_cells))
    for lane, length in enumerate((4, 1, 3)):
        moves = transition[:length, :, :, lane]
        paths, joint = enumerate_paths(initial, moves, table[:length, :, lane])
        weight = np.exp(joint - log_sum(joint))
        np.testing.assert_allclose(posterior.loglik[lane], log_sum(joint), rtol=1e-12, atol=1e-14)
        pair = np.zeros_like(posterior.pair[..., lane])
        for t in range(1, length):
            into = pair[t if cell is None else cell[t, lane]]
            np.add.at(into, (paths[:, t - 1], paths[:, t]), weight)
        np.testing.assert_allclose(posterior.pair[..., lane], pair, atol=1e-12)


@pytest.mark.parametrize("form", FORMS)
def test_impossible_moves_stay_impossible(form):
    _, _, table, valid = random_problem()
    left_to_right = np.array([[0.6, 0.4, 0.0], [0.0, 0.7, 0.3], [0.0, 0.0, 1.0]])
    posterior = smooth(np.array([1.0, 0.0, 0.0]), left_to_right, table, valid, form)
    _, joint = enumerate_paths(np.array([1.0, 0, 0]), left_to_right, table[:6, :, 0])
    np.testing.assert_allclose(posterior.loglik[0], log_sum(joint), rtol=1e-12)
    assert np.isfinite(posterior.state).all()
    assert (posterior.pair[0][left_to_right == 0] == 0).all()


def test_scaled_and_log_agree_on_long_sequences():
    problem = random_problem(seed=1, lengths=(300, 250), spread=5.0)
    scaled, logs = smooth(*problem, "scaled"), smooth(*problem, "log")
    for a, b in zip(scaled, logs, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-11)


def test_log_form_survives_what_the_scaled_one_cannot():
    _, _, table, valid = random_problem(lengths=(4,))
    table[2, :, 0] = [0.0, -2000.0, -2000.0]
    stuck = np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    start = np.array([0.0, 0.5, 0.5])  # state 0, which alone explains step 2, cannot be reached
    assert not np.isfinite(smooth(start, stuck, table, valid, "scaled").loglik).all()
    posterior = smooth(start, stuck, table, valid, "log")
    _, joint = enumerate_paths(start, stuck, table[:, :, 0])
    np.testing.assert_allclose(posterior.loglik[0], log_sum(joint), rtol=1e-12)
    np.testing.assert_allclose(posterior.state.sum(1), 1.0, rtol=1e-12)


@pytest.mark.parametrize("what", ["smooth", "before", "others"])
@in_float64
def test_a_state_that_cannot_be_takes_no_digits(what):
    """It alone explains a step well; what explains it best of the others is 1e16 less probable."""
    initial, transition = (
        np.array([0.5, 0.5, 0.0]),
        np.array([[0.5, 0.5, 0], [0.3, 0.7, 0], [0, 0, 1]]),
    )
    _, _, table, valid = random_problem()
    alone, beside = table.copy(), table.copy()
    alone[:, 2], beside[:, 2] = -np.inf, 0.0
    beside[3, :2] = np.round(beside[3, :2]) * 2 - 1e16
    alone[3, :2] = beside[3, :2] + 1e16

    @jax.jit
    def run(table):
        if what != "smooth":
            return hmm.states_given(initial, transition, table, valid, what)[:1]
        return hmm.smooth(initial, transition, table, valid, "log")[1:]

    for found, wanted in zip(run(beside), run(alone), strict=True):
        np.testing.assert_allclose(found, wanted, atol=1e-13)


@pytest.mark.parametrize("form", FORMS)
def test_extra_padding_changes_no_bit(form):
    initial, transition, table, valid = random_problem(seed=2)
    plain = smooth(initial, transition, table, valid, form)
    longer = np.concatenate([table, np.zeros((13, *table.shape[1:]))])
    padded = smooth(
        initial, transition, longer, np.concatenate([valid, np.zeros((13, 5), bool)]), form
    )
    assert (padded.loglik == plain.loglik).all()
    assert (padded.state[: len(table)] == plain.state).all()
    assert (padded.pair == plain.pair).all()


def test_other_lanes_do_not_matter():
    initial, transition, table, valid = random_problem(seed=3)
    alone = smooth(initial, transition, table[:, :, :1], valid[:, :1])
    crowd = smooth(initial, transition, table, valid)
    np.testing.assert_allclose(crowd.state[:, :, :1], alone.state, rtol=1e-12, atol=1e-300)
    np.testing.assert_allclose(crowd.loglik[:1], alone.loglik, rtol=1e-12)


def test_viterbi_equals_enumeration():
    initial, transition, table, valid = random_problem(seed=5)
    path, height = in_float64(jax.jit(viterbi))(initial, transition, table, valid)
    for lane, length in enumerate(LENGTHS):
        paths, joint = enumerate_paths(initial, transition, table[:length, :, lane])
        np.testing.assert_array_equal(np.asarray(path)[:length, lane], paths[joint.argmax()])
        np.testing.assert_allclose(height[lane], joint.max(), rtol=1e-12)


@pytest.mark.parametrize("kind", ["before", "others"])
@pytest.mark.parametrize("varying", [False, True])
def test_states_given_other_steps_equal_enumeration(kind, varying):
    """Without the step itself, even where its density has left nothing of a state."""
    initial, transition, table, valid = random_problem(seed=3)
    table[3, 0, 0] = -900.0
    moves = np.broadcast_to(transition[None, :, :, None], (6, 3, 3, len(LENGTHS)))
    given = moves if varying else transition
    run = in_float64(jax.jit(hmm.states_given, static_argnums=4))
    found, loglik = map(np.asarray, run(initial, given, table, valid, kind))
    for lane, length in enumerate(LENGTHS):
        _, joint = enumerate_paths(initial, transition, table[:length, :, lane])
        np.testing.assert_allclose(loglik[lane], log_sum(joint), rtol=1e-12)
        for t in range(length):
            hidden = table[:length, :, lane].copy()
            hidden[t if kind == "others" else slice(t, None)] = 0.0
            hidden[t] = 0.0
            paths, joint = enumerate_paths(initial, transition, hidden)
            weight = np.exp(joint - log_sum(joint))
            expected = [weight[paths[:, t] == k].sum() for k in range(N_STATES)]
            np.testing.assert_allclose(found[t, :, lane], expected, atol=1e-12)
    assert (np.asarray(found)[~valid[:, None] & np.ones_like(table, bool)] == 0).all()
