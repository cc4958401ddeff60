"""Forward-backward in C++ gives what the definition gives that it replaces."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from avem.kernels import forward_backward as hmm
from avem.kernels.dispatch import engine
from avem.kernels.forward import ByCell, rows_of
from tests.brute import enumerate_paths, log_sum
from tests.chosen import chosen

pytestmark = pytest.mark.skipif(
    engine("forward_backward", "float64", states=2) is None,
    reason="no C++ compiler, or no CPU: the scan runs",
)

LENGTHS = (9, 9, 1, 7, 9, 9, 2, 9, 9, 0, 9, 5, 9, 9, 9, 9, 9, 9, 3)
"""Two blocks of eight lanes, and three lanes; the last block with lanes of different lengths."""


@pytest.fixture(autouse=True)
def _double():
    with jax.enable_x64(True):
        yield


def problem(n_states, lengths, transitions, seed=0):
    """Arguments of `smooth`: some steps without observations, and some outcomes impossible."""
    rng = np.random.default_rng(seed)
    n, n_times = len(lengths), max(lengths)
    valid = np.arange(n_times)[:, None] < np.asarray(lengths)
    table = 3.0 * rng.standard_normal((n_times, n_states, n))
    table[rng.random(table.shape) < 0.1 * (n_states > 1)] = -np.inf
    table[:, 0][~np.isfinite(table).any(1)] = -1.0
    table = np.where(rng.random((n_times, 1, n)) < 0.2, 0.0, table)
    shape = {"one": (), "lane": (n,), "step": (n_times, n)}[transitions]
    chances = rng.dirichlet(np.ones(n_states), size=(*shape, n_states))
    if transitions != "one":
        chances = np.moveaxis(chances, -3, -1)
    initial = rng.dirichlet(np.ones(n_states), size=() if transitions == "one" else n).T
    table = np.where(valid[:, None], table, 0.0)
    return initial, chances, table, valid


def native(initial, transition, table, valid, steps):
    run = engine("forward_backward", table.dtype, states=table.shape[1])
    assert run is not None
    return hmm.Posterior(*run(initial, transition, table, valid, steps))


def by_native(*arguments, steps=hmm.Steps()):  # noqa: B008
    """In one program: operation by operation, every single one would be compiled by itself."""
    found = jax.jit(lambda *own: native(*own, steps))(*arguments)
    return hmm.Posterior(*map(np.asarray, found))


def by_scan(*arguments, steps=hmm.Steps()):  # noqa: B008
    return jax.jit(lambda *own: hmm.definition(*own, steps))(*arguments)


def assert_same(found, expected):
    for name in expected._fields:
        a, b = getattr(found, name), getattr(expected, name)
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-15, err_msg=name)


def cells(n_cells, lengths, seed=1):
    """A cell for each step and lane; some have none, which is `n_cells`."""
    index = np.random.default_rng(seed).integers(0, n_cells + 1, (max(lengths), len(lengths)))
    return hmm.Steps(index.astype(np.int32), n_cells)


@pytest.mark.parametrize(
    ("n_states", "transitions", "steps"),
    [
        (1, "one", hmm.Steps()),
        (2, "one", hmm.Steps()),
        (2, "step", cells(2, LENGTHS)),
        (3, "lane", hmm.Steps()),
        (3, "step", hmm.Steps(None, 0)),
        (3, "one", cells(11, LENGTHS)),
        pytest.param(4, "step", hmm.Steps(), marks=pytest.mark.slow),
    ],
)
def test_it_equals_the_scan(n_states, transitions, steps):
    arguments = problem(n_states, LENGTHS, transitions)
    found = by_native(*arguments, steps=steps)
    assert np.isfinite(found.loglik).all()
    assert_same(found, by_scan(*arguments, steps=steps))
    padded = ~np.broadcast_to(np.asarray(arguments[3])[:, None], found.state.shape)
    assert (np.asarray(found.state)[padded] == 0.0).all()


@pytest.mark.parametrize("n_lanes", [1, len(LENGTHS)])
@pytest.mark.parametrize("steps", [hmm.Steps(None, 0), cells(3, LENGTHS)])
def test_steps_that_share_transitions(n_lanes, steps):
    initial, _, table, valid = problem(3, LENGTHS, "step")
    rng = np.random.default_rng(5)
    chance = np.moveaxis(rng.dirichlet(np.ones(3), size=(4, n_lanes, 3)), 1, -1)
    shared = ByCell(chance, rng.integers(0, 5, valid.shape))
    found = by_native(initial, shared, table, valid, steps=steps)
    index, lanes = np.minimum(shared.cell, 3), np.arange(len(LENGTHS)) * (n_lanes > 1)
    rows = np.moveaxis(chance[index, :, :, lanes], 1, -1)
    assert_same(found, by_scan(initial, rows, table, valid, steps=steps))
    np.testing.assert_array_equal(jax.jit(rows_of)(shared), rows)


@pytest.mark.parametrize("n_cells", [1, 11])
def test_pairs_of_all_lanes_together(n_cells, monkeypatch):
    arguments = problem(3, LENGTHS, "step")
    apart = cells(n_cells, LENGTHS)
    together = apart._replace(together=True)
    wanted = by_scan(*arguments, steps=apart)
    wanted = wanted._replace(pair=np.asarray(wanted.pair).sum(-1, keepdims=True))
    assert_same(by_native(*arguments, steps=together), wanted)
    monkeypatch.setenv("AVEM_NATIVE", "0")
    assert_same(jax.jit(lambda *own: hmm.smooth(*own, steps=together))(*arguments), wanted)


def test_long_sequences_that_the_scan_adds_up_otherwise():
    arguments = problem(2, (1500, 900), "one")
    assert_same(by_native(*arguments), by_scan(*arguments))


@pytest.mark.parametrize("n_states", chosen((3, 8), (3,)))
def test_as_many_states_as_it_takes(n_states):
    initial, transition, table, valid = problem(n_states, (3, 1, 2), "one")
    found = by_native(initial, transition, table, valid)
    for lane, length in enumerate((3, 1, 2)):
        paths, joint = enumerate_paths(initial, transition, np.asarray(table)[:length, :, lane])
        np.testing.assert_allclose(found.loglik[lane], log_sum(joint), rtol=1e-12, atol=1e-14)
        weight = np.exp(joint - log_sum(joint))
        state = (paths[:, :, None] == np.arange(n_states)) * weight[:, None, None]
        np.testing.assert_allclose(found.state[:length, :, lane], state.sum(0), atol=1e-14)


def test_padding_changes_no_bit_and_other_lanes_no_digit():
    initial, transition, table, valid = problem(3, LENGTHS, "one")
    plain = by_native(initial, transition, table, valid)
    longer = [
        np.concatenate([part, np.zeros((5, *part.shape[1:]), part.dtype)])
        for part in (table, valid)
    ]
    padded = by_native(initial, transition, *longer)
    np.testing.assert_array_equal(padded.loglik, plain.loglik)
    np.testing.assert_array_equal(padded.state[:9], plain.state)
    np.testing.assert_array_equal(padded.pair, plain.pair)
    for lane in (0, 3, 8, 18):
        alone = by_native(initial, transition, table[..., lane:][..., :1], valid[:, lane:][:, :1])
        for a, b in zip(plain, alone, strict=True):
            np.testing.assert_allclose(a[..., lane], b[..., 0], rtol=1e-14)


@pytest.mark.parametrize("n_states", [2, 3])
def test_its_exponentials(n_states):
    """A first state that outweighs the second leaves exp(x) as its probability, but for a power."""
    x = -np.concatenate([[0.0, np.inf, 1e300, 720.0], np.linspace(1e-9, 660.0, 4001)])
    table = np.full((1, n_states, len(x)), -np.inf)
    table[0, 0], table[0, 1] = 0.0, x
    initial = np.array([1.0, 2.0**-60, 0.0])[:n_states]
    moves = np.eye(n_states)
    found = by_native(initial, moves, table, np.ones((1, len(x)), bool))
    value = np.asarray(found.state)[0, 1] * 2.0**60
    exact = np.exp(x.astype(np.longdouble))
    assert (value[1:4] == 0.0).all()
    assert value[0] == 1.0
    assert (np.abs(value - exact) <= np.spacing(exact.astype(float)))[4:].all()


def test_what_it_cannot_represent_is_flagged_in_that_lane_only():
    # State 1, all but ruled out by 30 steps, is the better one of the 30 that follow.
    table = np.zeros((60, 2, 9))
    table[:30, 1], table[30:, 0] = -50.0, -50.0
    table[:, :, :3] = 0.0
    table[4, :, 7] = -np.inf  # impossible in any state
    table[5, 0, 8] = np.nan
    arguments = np.array([0.5, 0.5]), np.eye(2), table, np.ones((60, 9), bool)
    for found in (by_native(*arguments), by_scan(*arguments)):
        np.testing.assert_array_equal(np.isfinite(found.loglik), np.arange(9) < 3)
    np.testing.assert_allclose(found.loglik[:3], 0.0, atol=1e-12)


@pytest.mark.parametrize(
    ("axes", "transitions"),
    [
        ((None, None, 0, None), "one"),
        ((None, 0, 0, None), "step"),
        ((0, None, None, None), "lane"),
        ((0, 0, 0, 0), "lane"),
    ],
)
def test_at_several_nodes_it_gives_each_of_them(axes, transitions):
    each = [problem(2, LENGTHS, transitions, seed) for seed in range(4)]
    arguments = [
        each[0][i] if axis is None else np.stack([one[i] for one in each])
        for i, axis in enumerate(axes)
    ]
    steps = cells(2, LENGTHS)
    at_nodes = jax.vmap(lambda *own: native(*own, steps), in_axes=axes)
    found = jax.jit(at_nodes)(*arguments)
    for node in range(4):
        own = [
            part if axis is None else part[node] for part, axis in zip(arguments, axes, strict=True)
        ]
        for a, b in zip(found, by_native(*own, steps=steps), strict=True):
            np.testing.assert_array_equal(a[node], b)
    # What is the same at all nodes goes to the kernel once.
    calls = [e for e in jax.make_jaxpr(at_nodes)(*arguments).eqns if e.primitive.name == "ffi_call"]
    lengths = [variable.aval.shape[0] for variable in calls[0].invars]
    initial, transition, table, valid = axes
    order = (initial, transition, None, valid, None, table)
    assert lengths == [1 if axis is None else 4 for axis in order]


def test_what_it_is_not_made_for_goes_to_the_scan():
    assert engine("forward_backward", jnp.float64, states=9) is None
    assert engine("forward_backward", jnp.float32, states=2) is None
