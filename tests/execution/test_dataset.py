"""Where the subjects live is nobody's business: the same fits, whoever runs the shards."""

import numpy as np
import pandas as pd
import pytest

import avem
from avem.data import Panel
from avem.data.layout import build_layout
from avem.execution import threads
from avem.execution.dataset import Dataset, Shard
from avem.execution.threads import Threads
from tests.execution.awkward import ThroughBytes

N, N_TIMES = 1100, 8
TRUTH = {
    "initial": [0.5, 0.5],
    "transition": [[0.9, 0.1], [0.2, 0.8]],
    "coef": [[[-1.5]], [[1.5]]],
    "variance": [[1.0], [1.0]],
    "effect_covariance": [[0.3]],
}
START = {**TRUTH, "coef": [[[-1.0]], [[1.0]]], "effect_covariance": [[0.5]]}
MODEL = avem.MixedHMM("y ~ 1 + (1 | subject)", 2)
BINARY = avem.MixedHMM("y ~ 1 + (1 | subject)", 2, "bernoulli")


@pytest.fixture(scope="module")
def frame():
    """More subjects than a chunk has lanes."""
    return MODEL.simulate(TRUTH, n_subjects=N, n_times=N_TIMES, seed=1).frame


def run_by(monkeypatch, executor):
    monkeypatch.setattr("avem.models.encoded.Threads", lambda *device: executor)


# --- the same numbers ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "options"),
    [
        (MODEL, {"method": "adaptive", "init": START}),
        pytest.param(MODEL, {"method": "adaptive", "init": START}, marks=pytest.mark.slow),
        pytest.param(MODEL, {"refine": None, "n_starts": 2}, marks=pytest.mark.slow),
        pytest.param(
            BINARY, {"refine": None, "init": {"coef": START["coef"]}}, marks=pytest.mark.slow
        ),
        pytest.param(MODEL, {"method": "mean_field", "init": START}, marks=pytest.mark.slow),
    ],
    ids=["few", "adaptive", "starts", "newton", "mean_field"],
)
def test_a_fit_does_not_notice_who_runs_its_shards(request, monkeypatch, model, options):
    if request.node.callspec.id == "few":
        monkeypatch.setattr("avem.models.encoded._LANES", (16, 16))
        frame = MODEL.simulate(TRUTH, n_subjects=60, n_times=N_TIMES, seed=1).frame
    else:
        frame = request.getfixturevalue("frame")
    if model is BINARY:
        frame = frame.assign(y=(frame["y"] > 0).astype(float))
    wanted = model.fit(frame, time="time", **options)
    assert len(wanted._own_data.chunks) > 1
    executor = ThroughBytes()
    run_by(monkeypatch, executor)
    found = model.fit(frame, time="time", **options)
    assert executor.calls > 10
    for key, value in wanted.theta.items():
        np.testing.assert_allclose(found.theta[key], value, atol=1e-8, err_msg=key)
    assert found.n_iter == wanted.n_iter
    np.testing.assert_allclose(found.effects_mean, wanted.effects_mean, atol=1e-8)
    np.testing.assert_array_equal(found.decode(), wanted.decode())
    assert float(found.loglik()) == pytest.approx(float(wanted.loglik()), rel=1e-10)


@pytest.mark.parametrize(
    ("n", "options", "close"),
    [
        (60, {"refine": None}, 1e-5),
        pytest.param(N, {"refine": None}, 1e-5, marks=pytest.mark.slow),
        pytest.param(60, {"refine": None, "method": "mean_field"}, 1e-4, marks=pytest.mark.slow),
    ],
    ids=["avem", "several shards", "mean_field"],
)
def test_losing_the_subjects_state_costs_time_and_nothing_else(monkeypatch, n, options, close):
    """Every function finds its shard as on the first day, and finds the anchors from theta."""
    frame = MODEL.simulate(TRUTH, n_subjects=n, n_times=N_TIMES, seed=1).frame
    wanted = MODEL.fit(frame, time="time", init=START, **options)
    run_by(monkeypatch, ThroughBytes(forgets=True))
    found = MODEL.fit(frame, time="time", init=START, **options)
    assert found.stop is avem.Stop.CONVERGED
    for key, value in wanted.theta.items():
        np.testing.assert_allclose(found.theta[key], value, atol=close, err_msg=key)
    assert found.bound == pytest.approx(wanted.bound, rel=1e-7)
    np.testing.assert_allclose(found.effects_mean, wanted.effects_mean, atol=1e-3)


# --- the data set itself ------------------------------------------------------------------------


def dataset(executor):
    rows = pd.DataFrame({"who": np.repeat(np.arange(20), 3), "y": np.arange(60.0)})
    panel = Panel.from_frame(rows.sample(frac=1.0, random_state=0), "who")
    layout = build_layout(panel, 8)
    y = panel.row_subject[:, None] * 1.0
    chunks = tuple(layout.chunks(y, y, np.ones((60, 1), bool)))
    assert len(chunks) > 1
    shards = tuple(Shard(*pair) for pair in zip(layout.slots, chunks, strict=True))
    return Dataset(shards, layout, executor), panel


def doubled(chunk, values, by):
    return by * values


def total(chunk, values):
    return values[chunk.real].sum()


def first_outcome(chunk):
    return chunk.y


def running(chunk, values, more):
    return values + more, (values + more)[chunk.real].sum()


@pytest.mark.parametrize("executor", [Threads(), ThroughBytes()], ids=["threads", "bytes"])
def test_values_of_subjects_go_out_and_come_back_in_order(executor):
    data, panel = dataset(executor)
    values = np.random.default_rng(0).standard_normal(20)
    there = data.split(values)
    np.testing.assert_array_equal(data.gather(doubled, (there,), 2.0), 2.0 * values)
    assert data.sum(total, (there,)) == pytest.approx(values.sum())
    np.testing.assert_array_equal(data.rows(first_outcome, ())[:, 0], panel.row_subject)
    assert data.n_subjects == 20


@pytest.mark.parametrize("executor", [Threads(), ThroughBytes()], ids=["threads", "bytes"])
def test_what_stays_never_changes(executor):
    data, _ = dataset(executor)
    start = data.split(np.zeros(20))
    once, sums = data.run(running, (start,), 1.0)
    twice, _ = data.run(running, (once,), 1.0)
    assert sum(sums) == 20
    assert [float(data.sum(total, (each,))) for each in (start, once, twice)] == [0, 20, 40]


@pytest.mark.parametrize("executor", [Threads(), ThroughBytes()], ids=["threads", "bytes"])
def test_some_of_the_shards(executor):
    data, _ = dataset(executor)
    start = data.split(np.zeros(20))
    part = data.on([1])
    moved = part.keep(doubled, (data.split(np.ones(20)).on([1]),), 3.0)
    mixed = start.put([1], moved)
    assert float(data.sum(total, (mixed,))) == 3.0 * part.n_subjects
    assert len(mixed) == len(data.shards) > len(part.shards) == 1


def test_what_only_stays_is_computed_once_and_when_it_is_needed(monkeypatch):
    """On a GPU: the first shard goes on before the last one has been told what is left for it."""
    monkeypatch.setattr(threads, "_is_far", lambda device: True)
    asked = []

    def noted(chunk, values):
        asked.append(len(asked))
        return values + 1.0

    data, _ = dataset(Threads())
    start = data.split(np.zeros(20))
    kept = data.keep(noted, (start,))
    further = data.keep(noted, (kept,))
    assert not asked
    assert float(data.sum(total, (further,))) == 40
    assert len(asked) == 2 * len(data.shards)
    assert [float(data.sum(total, (each,))) for each in (start, kept, further)] == [0, 20, 40]
    assert len(asked) == 2 * len(data.shards)
