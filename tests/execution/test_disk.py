"""Fits of scans: the same numbers as in memory, whatever stays on disk."""

import warnings

import numpy as np
import pandas as pd
import pytest

import avem
from avem.data.layout import build_layout
from avem.execution.chunk_files import write_chunk
from avem.execution.dataset import Dataset, Shard
from avem.execution.disk import Disk
from avem.execution.shelf import Shelf
from avem.models import scanned
from tests.execution.test_dataset import doubled, first_outcome, running, total
from tests.scans import MODEL, TRUTH, assert_equal_fit, uneven, write_files

pytest.importorskip("duckdb")

START = {**TRUTH, "coef": [[[-1.0]], [[1.0]]], "effect_covariance": [[0.5]]}


@pytest.fixture(scope="module")
def frame():
    return uneven()


@pytest.fixture(scope="module")
def scan(frame, tmp_path_factory):
    files = write_files(frame, tmp_path_factory.mktemp("scan") / "data")
    return avem.Panel.scan(files, "subject", time="time")


@pytest.fixture
def several_chunks(monkeypatch):
    monkeypatch.setattr("avem.models.encoded._LANES", (16, 16))


# --- the executor -------------------------------------------------------------------------------


def on_disk(folder, memory):
    rows = pd.DataFrame({"who": np.repeat(np.arange(20), 3), "y": np.arange(60.0)})
    panel = avem.Panel.from_frame(rows.sample(frac=1.0, random_state=0), "who")
    layout = build_layout(panel, 8)
    y = panel.row_subject[:, None] * 1.0
    with open(folder / "chunks", "wb") as file:
        sources = [write_chunk(file, one) for one in layout.chunks(y, y, np.ones((60, 1), bool))]
    shards = tuple(Shard(*pair) for pair in zip(layout.slots, sources, strict=True))
    import jax

    return Dataset(shards, layout, Disk(memory, folder, jax.devices("cpu")[0])), panel


@pytest.mark.parametrize("memory", [0, 10**9], ids=["all on disk", "all in memory"])
def test_values_of_subjects_go_out_and_come_back_in_order(tmp_path, memory):
    data, panel = on_disk(tmp_path, memory)
    assert len(data.shards) > 1
    values = np.random.default_rng(0).standard_normal(20)
    there = data.split(values)
    np.testing.assert_array_equal(data.gather(doubled, (there,), 2.0), 2.0 * values)
    assert data.sum(total, (there,)) == pytest.approx(values.sum())
    np.testing.assert_array_equal(data.rows(first_outcome, ())[:, 0], panel.row_subject)
    # Chunks that stay in memory are read once.
    size = sum(shard.source.n_bytes for shard in data.shards)
    assert data.executor.bytes_read == size * (1 if memory else 3)
    assert data.executor.about().startswith(f"{len(data.shards)} shards, ")


@pytest.mark.parametrize("memory", [0, 10**9], ids=["all on disk", "all in memory"])
def test_what_stays_never_changes_and_is_cleared_away(tmp_path, memory):
    data, _ = on_disk(tmp_path, memory)
    start = data.split(np.zeros(20))
    once, sums = data.run(running, (start,), 1.0)
    twice, _ = data.run(running, (once,), 1.0)
    assert sum(sums) == 20
    assert [float(data.sum(total, (each,))) for each in (start, once, twice)] == [0, 20, 40]
    del start, once, twice
    assert [path.name for path in tmp_path.iterdir()] == ["chunks"]


def test_a_shelf_stays_within_its_room(tmp_path):
    shelf = Shelf(1000, tmp_path)
    held = [shelf.put(np.full(50, float(n))) for n in range(5)]  # of 400 bytes each
    assert len(list(tmp_path.iterdir())) == 3
    assert [float(one.get()[0]) for one in held] == [0, 1, 2, 3, 4]
    del held
    assert not list(tmp_path.iterdir())
    again = [shelf.put(np.zeros(50)) for _ in range(2)]
    assert len(again) == 2
    assert not list(tmp_path.iterdir())


# --- fits ---------------------------------------------------------------------------------------


def without_room(monkeypatch):
    """All chunks and all that is known of subjects go through the disk."""
    monkeypatch.setattr("avem.execution.disk._FOR_CHUNKS", 0.0)
    monkeypatch.setattr("avem.execution.disk._FOR_SUBJECTS", 0.0)


@pytest.mark.parametrize("room", [pytest.param(True, marks=pytest.mark.slow), False])
def test_a_fit_from_disk_is_that_from_memory(monkeypatch, several_chunks, frame, scan, room):
    """With its starts, the search for modes, refinement, likelihood and standard errors."""
    if not room:
        without_room(monkeypatch)
    options = {"n_starts": 2, "refine": "auto"}
    wanted = MODEL.fit(frame, time="time", **options)
    found = MODEL.fit(scan, **options)
    assert len(found._own_data.chunks) == len(wanted._own_data.chunks) > 1
    assert_equal_fit(found, wanted)
    assert found.info.n_observed == wanted.info.n_observed
    assert found.info.n_missing == wanted.info.n_missing
    assert found.info.notes == wanted.info.notes
    assert float(found.loglik()) == pytest.approx(float(wanted.loglik()), rel=1e-10)
    np.testing.assert_allclose(found.loglik().by_subject, wanted.loglik().by_subject, atol=1e-7)
    errors = [fit.standard_errors()["se"].to_numpy(float) for fit in (found, wanted)]
    np.testing.assert_allclose(*errors, atol=1e-6)


@pytest.fixture(scope="module")
def rich(frame):
    """With labels, limits, uneven times, an event that ends half of the sequences, and weights."""
    rng, number = np.random.default_rng(3), frame["subject"].str[1:].astype(int)
    labels = np.where(frame["y"] > 2, "high", np.where(frame["y"] < -2, "low", "low|high"))
    last = frame["time"] == frame.groupby("subject")["time"].transform("max")
    return frame.assign(
        known=pd.Series(labels).where(rng.random(len(frame)) < 0.4, None),
        when=frame["time"] + rng.integers(30, size=len(frame)) / 64,
        limit=np.where(rng.random(len(frame)) < 0.5, -3.0, -2.5),
        ended=last & (number % 2 == 0),
        own=number / 7.0,
        weight=number % 4 + 1,
    )


ENDING = avem.rates(moves=[("a", "b"), ("b", "a"), ("a", "gone"), ("b", "gone")], event="ended")
NAMES = ["a", "b", "gone"]


def warned(model, *data, **options):
    """A fit, and the warnings that came with it."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always", avem.AvemWarning)
        fit = model.fit(*data, **options)
    return fit, [str(one.message) for one in told]


def assert_scanned_alike(model, data, folder, time="time", se=False, **options):
    wanted, doubts = warned(model, data, "subject", time, **options)
    scan = avem.Panel.scan(write_files(data, folder / "data"), "subject", time=time)
    found, told = warned(model, scan, **options)
    assert told == doubts
    assert len(found._own_data.chunks) > 1
    assert_equal_fit(found, wanted)
    assert float(found.loglik()) == pytest.approx(float(wanted.loglik()), rel=1e-12)
    assert found.info.notes == wanted.info.notes
    if se:
        errors = [fit.standard_errors()["se"].to_numpy(float) for fit in (found, wanted)]
        np.testing.assert_allclose(*errors, rtol=1e-9)
    return found, wanted


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "time", "weights"),
    [
        (avem.MixedHMM("y ~ 1 + (1 | subject)", 2, duration="negative_binomial"), "time", {}),
        (avem.MixedHMM("y ~ 1", 2, duration=avem.Duration("free", max=6)), "time", {}),
        (avem.MixedHMM("y ~ 1", 2, duration=avem.Duration("gamma", "~ x")), "time", {}),
        (avem.MixedHMM("y ~ 1", 2, duration=avem.Duration("gamma", "~ own")), "time", {}),
        (avem.MixedHMM("y ~ 1 + (1 | subject)", 2, time_scale="continuous"), "when", {}),
        (
            avem.MixedHMM("y ~ 1", 2, transition="~ group", time_scale="continuous"),
            "time",
            {},
        ),
        (avem.MixedHMM("y ~ 1", 3, transition=ENDING, state_names=NAMES), "when", {}),
        (
            avem.MixedHMM(
                "y ~ 1 + (1 | subject)", 2, avem.Censored("gaussian", lower="limit", upper=3.0)
            ),
            "time",
            {},
        ),
        (avem.MixedHMM("y ~ 1", 2, transition="~ poly(x, 3)"), "time", {}),
        (
            avem.MixedSSM("y + x ~ 1 + (1 | subject)", 1, time_scale="continuous"),
            "when",
            {},
        ),
        (
            avem.MixedHMM("y ~ scale(x) + center(own) + (1 | subject)", 2, transition="~ x"),
            "time",
            {"weights": "weight", "weights_kind": "frequency"},
        ),
        (
            avem.MixedSSM(["y", "x"], 1, subject="subject", random="transition"),
            "time",
            {"weights": "weight"},
        ),
    ],
    ids=[
        *("durations", "free", "by row", "by sequence", "rates", "matrices", "event", "censored"),
        *("polynomials", "drift", "frequencies", "survey ssm"),
    ],
)
def test_what_a_model_reads_of_rows_is_read_from_disk(
    several_chunks, rich, tmp_path, model, time, weights
):
    options = {"n_starts": 2, "refine": None, **weights}
    assert_scanned_alike(model, rich, tmp_path, time, se=bool(weights), **options)


def test_labels_knots_and_weights_are_read_from_disk(several_chunks, rich, tmp_path):
    """A small twin of those above, and what is asked of rows afterwards."""
    model = avem.MixedHMM("y ~ bs(x, df=4) + (1 | subject)", 2, known="known")
    options = {"weights": "weight", "n_starts": 1, "refine": None, "tol": 1e-4}
    found, wanted = assert_scanned_alike(model, rich, tmp_path, se=True, **options)
    states = np.asarray(found.decode().frame()["state"])
    np.testing.assert_array_equal(states, np.asarray(wanted.decode()))
    sure = rich["known"].isin(["low", "high"]).to_numpy()
    assert sure.sum() > 50
    assert states[sure].tolist() == rich["known"][sure].tolist()


def test_covariates_are_carried_forward_on_disk(several_chunks, frame, tmp_path):
    """Their units, too, are those of the values that were filled in."""
    rng = np.random.default_rng(7)
    gap = (rng.random(len(frame)) < 0.3) & (frame["time"] > 0)
    gaps = frame.assign(dose=(10 * frame["x"].abs()).round().mask(gap))
    model = avem.MixedHMM("y ~ scale(dose) + (1 | subject)", 2)
    options = {"missing": "carry", "n_starts": 1, "refine": None, "tol": 1e-4}
    found, wanted = assert_scanned_alike(model, gaps, tmp_path, **options)
    assert found.info.carried == wanted.info.carried == ("dose",)
    wanted_states = wanted.decode().to_numpy()
    np.testing.assert_array_equal(found.decode().frame()["state"].to_numpy(), wanted_states)
    again = avem.Panel.scan(tmp_path / "data", "subject", time="time")
    assert float(found.loglik(again)) == pytest.approx(float(wanted.loglik(gaps)), rel=1e-9)
    first = gaps.assign(dose=gaps["dose"].mask(gaps["time"] == 0))
    scan = avem.Panel.scan(write_files(first, tmp_path / "first"), "subject", time="time")
    with pytest.raises(avem.DataError, match=r"'dose' is missing at .* and there is none"):
        model.fit(scan, missing="carry")
    nothing = scan.carry_forward([]).carried
    assert nothing is not None
    assert nothing.counts == ()


def test_labels_weights_and_columns_that_cannot_be_are_refused(rich, tmp_path):
    odd = rich.assign(
        known=rich["known"].where(rich.index != 7, "middle"),
        flat=rich["x"] > 0,
        weight=np.arange(len(rich)) % 5 + 1.0,
        limit=rich["limit"].where(rich.index != 9, 9.0),
    )
    scan = avem.Panel.scan(write_files(odd, tmp_path / "data"), "subject", time="time")
    model = avem.MixedHMM("y ~ 1", 2, known="known", state_names=["low", "high"])
    with pytest.raises(avem.DataError, match="'middle' at row 7"):
        model.fit(scan)
    with pytest.raises(avem.DataError, match="'weight' differ within subject"):
        MODEL.fit(scan, weights="weight")
    with pytest.raises(avem.DataError, match="no column 'w'"):
        MODEL.fit(scan, weights="w")
    with pytest.raises(avem.DataError, match="has 2 different values; at least 5 are wanted"):
        avem.MixedHMM("y ~ bs(flat, df=4)", 2).fit(scan)
    with pytest.raises(avem.DataError, match="row 9"):
        avem.MixedHMM("y ~ 1", 2, avem.Censored("gaussian", lower="limit", upper=3.0)).fit(scan)


@pytest.mark.slow
@pytest.mark.parametrize(
    "model",
    [
        avem.MixedHMM("right ~ x + (1 | subject)", 2, "bernoulli"),
        avem.MixedHMM("right ~ 1 + (1 | subject)", 2, "bernoulli"),
        avem.MixedHMM("y ~ group + scale(x) + (1 | subject)", 2, transition="~ x"),
        avem.MixedHMM("y ~ 1 + (1 | subject)", 2, transition="~ group"),
        avem.MixedHMM("y + x ~ 1 + (1 | subject)", 2, "gaussian", initial="~ group"),
        avem.MixedSSM(["y", "x"], 1, subject="subject", random="transition"),
        avem.MixedSSM("y + x ~ group", 1, subject="subject", random="none"),
    ],
    ids=["bernoulli", "patterns", "moves", "cells", "initial", "ssm", "ssm alike"],
)
@pytest.mark.parametrize("room", [True, False], ids=["in memory", "on disk"])
def test_all_kinds_of_models(monkeypatch, several_chunks, frame, scan, model, room):
    if not room:
        without_room(monkeypatch)
    options = {"refine": None, "n_starts": 2}
    wanted = model.fit(frame, subject="subject", time="time", **options)
    found = model.fit(scan, **options)
    assert_equal_fit(found, wanted)
    assert float(found.loglik()) == pytest.approx(float(wanted.loglik()), rel=1e-9)


@pytest.mark.slow
def test_starts_from_some_subjects_lead_to_the_same_solution(monkeypatch, frame, scan):
    monkeypatch.setattr(scanned, "START_ROWS", 300)
    wanted = MODEL.fit(frame, time="time", refine=None)
    found = MODEL.fit(scan, refine=None)
    assert len(found._own_data.sampled) == 20
    for name, value in wanted.params.items():
        np.testing.assert_allclose(found.params[name], value, atol=1e-4, err_msg=name)


@pytest.mark.parametrize(
    ("formula", "words"),
    [
        ("z ~ 1 + (1 | subject)", "There is no column 'z'"),
        ("group ~ 1 + (1 | subject)", "numbers or booleans are wanted"),
        ("y ~ flat + (1 | subject)", "combination of the terms before it"),
    ],
)
def test_what_data_cannot_carry_is_said_as_in_memory(frame, tmp_path, formula, words):
    frame = frame.assign(flat=2.0)
    frame.to_parquet(tmp_path / "a.parquet")
    scan = avem.Panel.scan(tmp_path / "a.parquet", "subject", time="time")
    model = avem.MixedHMM(formula, 2)
    told = []
    for data, options in ((frame, {"time": "time"}), (scan, {})):
        with pytest.raises(avem.AvemError, match=words) as error:
            model.fit(data, **options)
        told.append(str(error.value))
    assert sorted(told[0]) == sorted(told[1])  # values may come in another order
