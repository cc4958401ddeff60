"""Chains with Gaussian outcomes, by any engine, against SciPy's densities and all paths."""

from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import multivariate_normal

from avem.kernels import gaussian_chain as chain
from avem.kernels.dispatch import engine
from avem.kernels.forward_backward import Steps
from tests.brute import enumerate_paths, log_sum
from tests.chosen import chosen

LENGTHS = (5, 5, 1, 4, 5, 5, 2, 5, 5, 0, 3)


@pytest.fixture(autouse=True)
def _double():
    with jax.enable_x64(True):
        yield


class Problem:
    """Outcomes with covariances in groups that are seen or missing together."""

    def __init__(self, n_states, n_outcomes, groups, lengths=LENGTHS, seed=0, patterns=False):
        rng = np.random.default_rng(seed)
        t, n, self.k, self.p = max(lengths), len(lengths), n_states, n_outcomes
        self.groups, self.columns, self.lengths = groups, (0, 2), lengths
        valid = np.arange(t)[:, None] < np.array(lengths)
        if patterns:  # every row shows one of the groups
            shown = rng.integers(0, len(groups) + 1, (t, n))
            seen = np.stack([shown == g for g in range(len(groups))], 1)
        else:
            seen = rng.random((t, len(groups), n)) < 0.8
            seen[:, :, :4] = True
        y = np.where(valid[:, None], rng.standard_normal((t, n_outcomes, n)), 0.0)
        a = np.concatenate([np.ones((t, 1, n)), rng.standard_normal((t, 2, n))], 1)
        self.rows = chain.Records(a, y, seen & valid[:, None], valid)
        self.coef = rng.standard_normal((n_states, n_outcomes, 2, n))
        root = rng.standard_normal((n_states, n_outcomes, n_outcomes))
        self.cov = root @ root.transpose(0, 2, 1) + np.eye(n_outcomes)
        if not patterns:  # groups are independent
            inside = [
                [any({i, j} <= {*g} for g in groups) for j in range(self.p)] for i in range(self.p)
            ]
            self.cov = np.where(inside, self.cov, 0.0)
        self.initial = rng.dirichlet(np.ones(n_states))
        self.transition = rng.dirichlet(np.ones(n_states), size=n_states)

    @property
    def squares(self):
        terms, weight, constant = [], [], []
        for g, members in enumerate(self.groups):
            own = self.cov[:, members][:, :, members]
            precision, logdet = np.linalg.inv(own), np.linalg.slogdet(own)[1]
            constant.append(-0.5 * (len(members) * np.log(2 * np.pi) + logdet))
            for a, i in enumerate(members):
                for b, j in enumerate(members[: a + 1]):
                    terms.append((g, i, j))
                    weight.append(precision[:, a, b] * (0.5 if i == j else 1.0))
        features = tuple(
            (g, i, j) for g in range(len(self.groups)) for i, j in ((0, 0), (1, 3), (2, 4))
        )
        lists = chain.Lists(self.columns, tuple(range(len(self.groups))), tuple(terms), features)
        return chain.Squares(lists, self.coef, np.stack(constant, 1), np.stack(weight, 1))

    @property
    def arguments(self):
        return self.initial, self.transition, self.squares, self.rows

    def table(self, lane):
        """(time, state) from SciPy, of a lane's own steps."""
        table = np.zeros((self.lengths[lane], self.k))
        for t in range(len(table)):
            a = self.rows.a[t, self.columns, lane]
            for k in range(self.k):
                mean = self.coef[k, :, :, lane] @ a
                for g, members in enumerate(self.groups):
                    if self.rows.seen[t, g, lane]:
                        at = np.ix_(members, members)
                        own = multivariate_normal(mean[list(members)], self.cov[k][at])
                        table[t, k] += own.logpdf(self.rows.y[t, list(members), lane])
        return table


CASES = {
    "one outcome": (2, 1, ((0,),), False),
    "one state": (1, 2, ((0, 1),), False),
    "independent": (3, 2, ((0,), (1,)), False),
    "correlated": (3, 2, ((0, 1),), False),
    "patterns": (2, 3, ((0, 1, 2), (0, 2), (1,)), True),
    "four outcomes": (2, 4, ((0, 3), (1, 2)), False),
}


def by(run, problem, steps=Steps(), transition=None):  # noqa: B008
    initial, given, squares, rows = problem.arguments
    transition = given if transition is None else transition

    @jax.jit
    def in_one(arrays):
        initial, transition, coef, constant, weight, rows = arrays
        own = chain.Squares(squares.lists, coef, constant, weight)
        return chain.ChainSums(*run(initial, transition, own, chain.Records(*rows), steps))

    arrays = jax.tree.map(jnp.asarray, (initial, transition, *squares[1:], tuple(rows)))
    return jax.tree.map(np.asarray, in_one(arrays))


def native(problem):
    run = engine("gaussian_chain", "float64", states=problem.k, outcomes=problem.p)
    if run is None:
        pytest.skip("no C++ compiler, or no CPU: the definition runs")
    return run


def assert_same(found, expected):
    for name in expected._fields:
        np.testing.assert_allclose(
            getattr(found, name), getattr(expected, name), rtol=1e-11, atol=1e-13, err_msg=name
        )


@pytest.mark.parametrize(
    ("case", "form"),
    chosen(
        product(CASES, ("scaled", "log")),
        [
            ("one state", "scaled"),
            ("correlated", "scaled"),
            ("patterns", "scaled"),
            ("patterns", "log"),
        ],
    ),
)
def test_it_is_the_sum_over_all_paths(case, form):
    k, p, groups, patterns = CASES[case]
    problem = Problem(k, p, groups, patterns=patterns)
    found = by(lambda *own: chain.smooth(*own[:4], form, own[4]), problem)
    for lane, length in enumerate(LENGTHS):
        if not length:
            assert not found.first[:, lane].any()
            assert not found.sums[..., lane].any()
            continue
        paths, joint = enumerate_paths(problem.initial, problem.transition, problem.table(lane))
        weight = np.exp(joint - log_sum(joint))
        np.testing.assert_allclose(found.loglik[lane], log_sum(joint), rtol=1e-11, atol=1e-12)
        a, y = problem.rows.a[:length, :, lane], problem.rows.y[:length, :, lane]
        v = np.concatenate([np.ones((length, 1)), a, y], 1)
        for state in range(k):
            chance = ((paths == state) * weight[:, None]).sum(0)
            np.testing.assert_allclose(found.first[state, lane], chance[0], atol=1e-12)
            for f, (g, i, j) in enumerate(problem.squares.lists.features):
                shown = problem.rows.seen[:length, g, lane]
                wanted = (chance * v[:, i] * v[:, j])[shown].sum()
                np.testing.assert_allclose(found.sums[state, f, lane], wanted, atol=1e-12)


@pytest.mark.parametrize("case", chosen(CASES, ("one outcome", "correlated", "patterns")))
def test_the_engine_equals_the_definition(case):
    k, p, groups, patterns = CASES[case]
    problem = Problem(k, p, groups, (30, 30, 7, 30, 1, 30, 30, 30, 29), seed=1, patterns=patterns)
    assert_same(by(native(problem), problem), by(chain.definition, problem))


@pytest.mark.parametrize("n_cells", [0, 1, 3])
def test_transitions_of_every_step(n_cells):
    problem = Problem(2, 1, ((0,),))
    rng = np.random.default_rng(3)
    shape = (max(LENGTHS), len(LENGTHS))
    transition = np.moveaxis(rng.dirichlet(np.ones(2), size=(*shape, 2)), 1, -1)
    cell = rng.integers(0, 3, shape).astype(np.int32) if n_cells == 3 else None
    steps = Steps(cell, n_cells)
    found = by(native(problem), problem, steps, transition)
    assert_same(found, by(chain.definition, problem, steps, transition))
    if n_cells == 3:
        found = found._replace(pair=np.asarray(found.pair).sum(-1, keepdims=True))
        together = by(native(problem), problem, steps._replace(together=True), transition)
        assert_same(together, found)


def test_at_several_nodes_it_gives_each_of_them():
    problem = Problem(2, 2, ((0, 1),))
    run, (initial, transition, squares, rows) = native(problem), problem.arguments
    coef = np.stack([squares.coef, squares.coef + 1.0, squares.coef - 0.5])
    rows = jax.tree.map(jnp.asarray, rows)

    def at(coef):
        return run(initial, transition, squares._replace(coef=coef), rows, Steps())

    together = jax.jit(jax.vmap(at))(coef)
    for node, own in enumerate(coef):
        for a, b in zip(together, jax.jit(at)(jnp.asarray(own)), strict=True):
            np.testing.assert_array_equal(a[node], b)


def test_outcomes_with_columns_and_groups_of_their_own():
    """Two that are independent given the state are their product."""
    problem = Problem(2, 2, ((0,), (1,)))
    whole, each = problem.squares, []
    for j, columns in enumerate(((0,), (0, 2))):
        coef = np.zeros((2, 2, len(columns), len(LENGTHS)))
        coef[:, j] = whole.coef[:, j, : len(columns)]
        own = [f for f in whole.lists.features if f[0] == j]
        lists = chain.Lists(columns, (j,), (whole.lists.terms[j],), tuple(own))
        parts = whole.constant[:, [j]], whole.weight[:, [j]]
        each.append(chain.Squares(lists, jnp.asarray(coef), *map(jnp.asarray, parts)))
    problem.coef[:, 0, 1] = 0.0  # the first has no slope
    joined = chain.together(each)
    assert joined.lists == problem.squares.lists
    for a, b in zip(joined[1:], problem.squares[1:], strict=True):
        np.testing.assert_allclose(a, b)


def test_what_is_impossible_is_flagged_in_that_lane_only():
    problem = Problem(2, 1, ((0,),))
    problem.rows.y[2, 0, 1] = np.nan
    problem.rows.seen[2, 0, 1] = True
    for run in (native(problem), chain.definition):
        found = by(run, problem)
        assert np.isfinite(found.loglik).sum() == len(LENGTHS) - 1
        assert not np.isfinite(found.loglik[1])
