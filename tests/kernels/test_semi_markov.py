"""Hidden semi-Markov chains against all ways to cut a sequence into stays."""

from itertools import product

import jax
import numpy as np
import pytest

from avem.kernels import forward_backward as hmm
from avem.kernels import semi_markov, semi_markov_path
from avem.kernels.dispatch import engine
from avem.kernels.viterbi import viterbi
from avem.numerics.precision import in_float64
from tests.chosen import chosen

K, TIMES = 3, 6


def chances_of_stays(rng, n_rows, longest, n_states):
    """(row, u, state) chances to leave, in the step into a row, after u rows."""
    return rng.uniform(0.1, 0.9, (n_rows, longest, n_states))


def every_path(initial, transition, phase, leave, table, cut):
    """All paths of states and rows of the stay, with the probability of each and of the data.

    A path is a list of (state, u); row by row, straight from the definition of the chain.
    """
    longest, n_states = phase.shape

    def onward(path, chance):
        t = len(path)
        (k, u) = path[-1]
        if t == len(table):
            yield path, chance * (1.0 if cut else leave[t - 1][u, k])
            return
        ends = leave[t][u, k]
        now = [((m, 0), ends * transition[k, m]) for m in range(n_states) if m != k]
        for place, step in [*now, ((k, min(u + 1, longest - 1)), 1 - ends)]:
            yield from onward((*path, place), chance * step * np.exp(table[t, place[0]]))

    for k, u in product(range(n_states), range(longest)):
        yield from onward(((k, u),), initial[k] * phase[u, k] * np.exp(table[0, k]))


def case(seed, times, longest, varying):
    rng = np.random.default_rng(seed)
    transition = rng.dirichlet(np.ones(K - 1), size=K)
    matrix = np.zeros((K, K))
    for k in range(K):
        matrix[k, np.arange(K) != k] = transition[k]
    table = rng.standard_normal((times, K))
    table[times // 2] = 0.0  # a missing row
    leave = chances_of_stays(rng, times, longest, K)
    if not varying:
        leave[:] = leave[0]
    return rng.dirichlet(np.ones(K)), matrix, rng.dirichlet(np.ones(longest), K).T, leave, table


@in_float64
def run(what, parts, lengths, cut, cells, *more):
    """A kernel on lanes of several lengths, all with the same numbers."""
    initial, transition, phase, leave, table = parts
    valid = np.arange(len(table))[:, None] < np.array(lengths)
    cell = None
    if cells == "one":
        leave = leave[:1]
    elif cells == "cells":
        leave, cell = np.unique(leave, axis=0, return_inverse=True)
        cell = np.broadcast_to(np.ravel(cell)[:, None], valid.shape)
    stays = semi_markov.Stays(phase[:, :, None], leave[..., None], 1 - leave[..., None], cell, cut)
    tables = np.where(valid[:, None], table[:, :, None], 0.0)
    done = jax.jit(lambda s: what(initial, transition, s._replace(cut=cut), tables, valid, *more))(
        stays
    )
    return jax.tree.map(np.asarray, done)


def expected(parts, cut):
    """Likelihood, state probabilities and counts of one sequence, by enumeration."""
    phase, _, table = parts[2:]
    times, longest = len(table), len(phase)
    total, state = 0.0, np.zeros((times, K))
    pair, first = np.zeros((K, K)), np.zeros((longest, K))
    ended, stayed = np.zeros((times, longest, K)), np.zeros((times, longest, K))
    best: dict = {}
    for path, weight in every_path(*parts, cut):
        total += weight
        states = tuple(k for k, _ in path)
        best[states] = best.get(states, 0.0) + weight
        first[path[0][1], path[0][0]] += weight
        for t, (k, u) in enumerate(path):
            state[t, k] += weight
            if t + 1 < times:
                (m, _) = path[t + 1]
                (ended if m != k else stayed)[t + 1, u, k] += weight
                pair[k, m] += weight * (m != k)
            elif not cut:
                ended[t, u, k] += weight
    parts_of = [part / total for part in (state, pair, first, ended, stayed)]
    top = max(best, key=lambda states: best[states])
    return np.log(total), *parts_of, top, np.log(best[top])


CASES = chosen(
    [
        (*case, cut)
        for case in [(3, "one", False), (3, "each", True), (3, "cells", False), (1, "one", False)]
        for cut in (True, False)
    ],
    [(3, "one", False, True), (3, "each", True, False), (3, "cells", False, True)],
)


@pytest.mark.parametrize(("longest", "cells", "varying", "cut"), CASES)
def test_all_paths(longest, cells, varying, cut):
    whole = case(5, TIMES, longest, varying)
    lengths = (TIMES, 1, 4)
    if cells == "cells":
        whole[3][[1, 4]] = whole[3][0] / 2
    own = [(*whole[:3], whole[3][:n], whole[4][:n]) for n in lengths]
    wanted = [expected(parts, cut) for parts in own]
    # With one cell, `smooth` is the engine where there is one.
    ways = [(semi_markov.definition, "scaled"), (semi_markov.definition, "log")]
    for what, form in [*ways, *([(semi_markov.smooth, "scaled")] if cells == "one" else [])]:
        found = run(what, whole, lengths, cut, cells, form)
        for lane, n in enumerate(lengths):
            loglik, state, pair, first, ended, stayed, _, _ = wanted[lane]
            assert found.loglik[lane] == pytest.approx(loglik, abs=1e-10)
            np.testing.assert_allclose(found.state[:n, :, lane], state, atol=1e-10)
            assert not found.state[n:, :, lane].any()
            np.testing.assert_allclose(found.pair[0, ..., lane], pair, atol=1e-10)
            np.testing.assert_allclose(found.phase[..., lane], first, atol=1e-10)
            if cells == "each":
                np.testing.assert_allclose(found.ended[:n, ..., lane], ended, atol=1e-10)
                np.testing.assert_allclose(found.stayed[:n, ..., lane], stayed, atol=1e-10)
            else:
                np.testing.assert_allclose(found.ended[..., lane].sum(0), ended.sum(0), atol=1e-10)
                np.testing.assert_allclose(
                    found.stayed[..., lane].sum(0), stayed.sum(0), atol=1e-10
                )


@pytest.mark.parametrize(("longest", "cells", "varying", "cut"), CASES)
def test_the_best_path(longest, cells, varying, cut):
    whole = case(6, TIMES, longest, varying)
    lengths = (TIMES, 1, 4)
    if cells == "cells":
        whole[3][[1, 4]] = whole[3][0] / 2
    path, height = run(semi_markov_path.best_path, whole, lengths, cut, cells)
    for lane, n in enumerate(lengths):
        own = (*whole[:3], whole[3][:n], whole[4][:n])
        *_, top, log_top = expected(own, cut)
        assert height[lane] == pytest.approx(log_top, abs=1e-10)
        assert tuple(path[:n, lane]) == top


@pytest.mark.parametrize("kind", ["before", "others"])
def test_states_given(kind):
    whole = case(7, 5, 3, True)
    chance, loglik = run(semi_markov.states_given, whole, (5, 3), True, "each", kind)
    for lane, n in enumerate((5, 3)):
        own = (*whole[:3], whole[3][:n], whole[4][:n])
        assert loglik[lane] == pytest.approx(expected(own, True)[0], abs=1e-10)
        for t in range(n):
            table = whole[4][:n].copy()
            table[t] = 0.0
            if kind == "before":
                table[t:] = 0.0
            wanted = expected((*own[:4], table), True)[1][t]
            np.testing.assert_allclose(chance[t, :, lane], wanted, atol=1e-10)


@in_float64
def test_one_row_of_memory_is_the_markov_chain():
    rng = np.random.default_rng(1)
    initial, matrix = rng.dirichlet(np.ones(K)), rng.dirichlet(np.ones(K), size=K)
    table, valid = rng.standard_normal((70, K, 2)), np.ones((70, 2), bool)
    valid[50:, 1] = False
    leave = 1 - np.diagonal(matrix)
    moves = np.where(np.eye(K, dtype=bool), 0.0, matrix / leave[:, None])
    find = semi_markov_path.best_path
    for longest in (1, 4):
        ends = np.broadcast_to(leave[:, None], (1, longest, K, 1))
        elapsed = (1 - leave) ** np.arange(longest)[:, None] * leave
        elapsed[-1] = 1 - elapsed[:-1].sum(0)
        stays = semi_markov.Stays(elapsed[:, :, None], ends, 1 - ends)
        own = jax.jit(lambda s=stays: semi_markov.smooth(initial, moves, s, table, valid))()
        other = jax.jit(lambda: hmm.definition(initial, matrix, table, valid, hmm.Steps()))()
        np.testing.assert_allclose(own.loglik, other.loglik, rtol=1e-12)
        np.testing.assert_allclose(own.state, other.state, atol=1e-12)
        away = ~np.eye(K, dtype=bool)
        np.testing.assert_allclose(own.pair[0][away], other.pair[0][away], atol=1e-10)
        np.testing.assert_allclose(
            own.stayed.sum((0, 1)), np.asarray(other.pair[0])[~away], atol=1e-10
        )
        path, height = jax.jit(lambda s=stays: find(initial, moves, s, table, valid))()
        best, top = jax.jit(lambda: viterbi(initial, matrix, table, valid))()
        np.testing.assert_allclose(height, top, rtol=1e-12)
        assert (np.asarray(path) == np.asarray(best))[valid].all()


@pytest.mark.parametrize("what", ["smooth", "others"])
def test_a_state_that_cannot_be_takes_no_digits(what):
    """It alone explains a row well; what explains it best of the others is 1e16 less probable."""
    initial, transition, phase, leave, table = case(3, TIMES, 4, False)
    initial, transition = initial.copy(), np.array([[0, 1, 0], [1, 0, 0], [0.5, 0.5, 0.0]])
    initial[2] = 0.0
    alone, beside = table.copy(), table.copy()
    beside[2, :2] = np.round(2 * table[2, :2]) * 2 - 1e16
    alone[2, :2], alone[:, 2] = beside[2, :2] + 1e16, -np.inf

    def at(table):
        parts = (initial / initial.sum(), transition, phase, leave, table)
        if what == "others":
            return run(semi_markov.states_given, parts, (TIMES, 3), True, "one", what)[:1]
        return run(semi_markov.smooth, parts, (TIMES, 3), True, "one", "log")[1:]

    for found, wanted in zip(at(beside), at(alone), strict=True):
        np.testing.assert_allclose(found, wanted, atol=1e-12)


@in_float64
def test_long_and_lopsided_sequences():
    rng = np.random.default_rng(2)
    parts = case(8, 5000, 8, False)
    table = 30.0 * rng.standard_normal((5000, K, 1))
    stays = semi_markov.Stays(
        parts[2][:, :, None], parts[3][:1, ..., None], 1 - parts[3][:1, ..., None]
    )
    valid = np.ones((5000, 1), bool)
    found = [
        jax.jit(lambda form=form: semi_markov.definition(*parts[:2], stays, table, valid, form))()
        for form in ("scaled", "log")
    ]
    assert np.isfinite(found[1].loglik).all()
    np.testing.assert_allclose(found[1].state.sum(1), 1.0, atol=1e-9)
    if np.isfinite(found[0].loglik).all():
        np.testing.assert_allclose(found[0].loglik, found[1].loglik, rtol=1e-12)
        np.testing.assert_allclose(found[0].state, found[1].state, atol=1e-8)


SIZES = [(1, 2, 1, True), (40, 3, 7, False), (33, 2, 50, True), (20, 5, 1, False), (50, 4, 3, True)]


@pytest.mark.skipif(
    engine("semi_markov", "float64", states=2, cells=1) is None, reason="no C++ compiler, or no CPU"
)
@pytest.mark.parametrize(("times", "states", "longest", "cut"), SIZES)
@in_float64
def test_the_engine_equals_the_definition_whatever_the_sizes(times, states, longest, cut):
    """Lanes of any length, chances of their own, stays that go on beyond the longest."""
    rng = np.random.default_rng(times)
    lanes = 11
    phase = rng.random((longest, states, lanes))
    leave = rng.uniform(0.05, 0.6, (1, longest, states, lanes))
    moves = np.where(
        np.eye(states, dtype=bool)[..., None], 0.0, rng.random((states, states, lanes))
    )
    table = rng.normal(-2.0, 3.0, (times, states, lanes))
    lengths = rng.integers(1, times + 1, lanes)
    lengths[0] = times
    valid = np.arange(times)[:, None] < lengths
    table = np.where(valid[:, None], table, 0.0)
    stays = semi_markov.Stays(phase / phase.sum(0), leave, 1 - leave, None, cut)
    problem = (
        np.full(states, 1 / states),
        moves / moves.sum(1, keepdims=True),
        stays,
        table,
        valid,
    )
    found = jax.jit(lambda: semi_markov.smooth(*problem))()
    expected = jax.jit(lambda: semi_markov.definition(*problem))()
    for name, a, b in zip(found._fields, found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-11, err_msg=name)
