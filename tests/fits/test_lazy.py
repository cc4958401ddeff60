"""What a fit of a scan answers: tables that are computed part by part."""

import warnings

import pandas as pd
import pytest

import avem
from avem.fits import lazy
from avem.workflows.same_data import check_same_data
from tests.scans import MODEL, TRUTH, uneven, write_files

pytest.importorskip("duckdb")


@pytest.fixture(scope="module")
def frame():
    return uneven()


@pytest.fixture(scope="module")
def files(frame, tmp_path_factory):
    return write_files(frame, tmp_path_factory.mktemp("lazy") / "data")


@pytest.fixture(scope="module")
def in_memory(frame):
    return MODEL.fit(frame, time="time", init=TRUTH, refine=None)


@pytest.fixture(scope="module")
def fit(files):
    scan = avem.Panel.scan(files, "subject", time="time")
    return MODEL.fit(scan, init=TRUTH, refine=None)


@pytest.fixture(autouse=True)
def several_parts(monkeypatch):
    monkeypatch.setattr(lazy, "_PART_ROWS", 300)


@pytest.mark.parametrize(
    ("method", "options"),
    [
        ("decode", {}),
        ("most_probable_states", {}),
        ("state_probabilities", {}),
        ("predictions", {"level": 0.9}),
        ("residuals", {}),
    ],
)
def test_rows_are_those_of_the_fit_in_memory(fit, in_memory, frame, method, options):
    found = getattr(fit, method)(**options)
    assert isinstance(found, avem.LazyTable)
    assert len(list(found.parts())) > 1
    wanted = getattr(in_memory, method)(**options)
    wanted = wanted.to_frame() if isinstance(wanted, pd.Series) else wanted
    table = found.frame()
    pd.testing.assert_frame_equal(table[wanted.columns], wanted, check_dtype=False, atol=1e-6)
    pd.testing.assert_frame_equal(table[["subject", "time"]], frame[["subject", "time"]])
    assert len(found.head(3)) == 3


def test_effects_are_those_of_the_fit_in_memory(fit, in_memory, monkeypatch):
    monkeypatch.setattr(lazy, "_PART_ROWS", 25)
    found = fit.effects(level=0.5)
    assert len(list(found.parts())) == 3
    wanted = in_memory.effects(level=0.5)
    pd.testing.assert_frame_equal(found.frame(), wanted, atol=1e-6)
    pd.testing.assert_frame_equal(found.head(3), wanted[:3], atol=1e-6)


def test_parquet_is_written_whole(fit, in_memory, tmp_path):
    fit.decode().write_parquet(tmp_path / "states")
    names = sorted(path.name for path in (tmp_path / "states").iterdir())
    assert names[:2] == ["part-00000.parquet", "part-00001.parquet"]
    found = pd.read_parquet(tmp_path / "states")
    assert found["state"].value_counts().equals(in_memory.decode().value_counts())
    # Subjects are whole, and their rows in order of time.
    assert found.groupby("subject")["time"].apply(lambda t: t.is_monotonic_increasing).all()
    with pytest.raises(avem.FileError, match="no empty folder"):
        fit.decode().write_parquet(tmp_path / "states")
    assert [path.name for path in tmp_path.iterdir()] == ["states"]


def test_a_failure_leaves_no_folder(fit, tmp_path, monkeypatch):
    def fails(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(lazy, "write_table", fails)
    with pytest.raises(avem.FileError, match="No space left"):
        fit.decode().write_parquet(tmp_path / "states")
    assert not list(tmp_path.iterdir())


def test_columns_are_taken_from_what_is_computed(fit):
    with pytest.raises(avem.ModelError, match=r"'state' cannot be taken.*head\(\) or frame\(\)"):
        fit.decode()["state"]


def test_a_table_larger_than_memory_warns(fit):
    table = fit.decode()
    small = lazy.replace(table.scan, memory=1000)
    with pytest.warns(avem.AvemWarning, match="write_parquet"):
        lazy.replace(table, scan=small).frame()


def test_forecasts_come_for_every_sequence(fit, in_memory):
    found = fit.predict(horizon=2, effects="fitted").frame()
    wanted = in_memory.predict(horizon=2, effects="fitted")
    pd.testing.assert_frame_equal(found, wanted, check_dtype=False, atol=1e-6)


def test_types_of_subjects_come_in_their_order(files, frame):
    model = avem.MixedHMM("y ~ 1", 2, n_clusters=2)
    options = {"n_starts": 1, "max_iter": 2, "refine": None}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", avem.AvemWarning)
        wanted = model.fit(frame, "subject", "time", **options).clusters()
        fit = model.fit(avem.Panel.scan(files, "subject", time="time"), **options)
    found = fit.clusters()
    assert f"{len(wanted)} rows" in repr(found)
    assert len(list(found.parts())) > 1
    pd.testing.assert_frame_equal(found.frame(), wanted, check_dtype=False, atol=1e-6)


def test_what_is_drawn_for_rows_needs_them_in_memory(fit):
    """With a covariate, its column and the outcomes' were of different lengths."""
    with pytest.raises(avem.ModelError, match=r"scan\.sample\(1000\)"):
        MODEL.simulate(TRUTH, data=fit.panel)
    model = avem.MixedHMM("y ~ x + (1 | subject)", 2)
    with pytest.warns(avem.AvemWarning, match="iteration limit"):
        own = model.fit(fit.panel, n_starts=1, max_iter=1, refine=None)
    with pytest.raises(avem.ModelError, match=r"scan\.sample\(1000\)"):
        own.simulate(seed=1)


def test_other_scans_are_answered_too(fit, in_memory, files):
    other = avem.Panel.scan(files, "subject", time="time")
    pd.testing.assert_frame_equal(
        fit.decode(other).frame(), fit.decode().frame(), check_dtype=False
    )
    assert float(fit.loglik(other)) == pytest.approx(float(in_memory.loglik()), rel=1e-6)


def test_a_sample_answers_everything(fit, in_memory, tmp_path):
    some = fit.sample(20)
    assert some.panel.n_subjects == 20
    assert len(some.occupancy(by="subject")) > 0
    wanted = in_memory.effects().set_index("subject")["mean"]
    found = some.effects().set_index("subject")["mean"]
    assert (found - wanted[found.index]).abs().max() < 1e-6
    # Rows are labelled by their place in the source, as those of a frame.
    states = some.decode()
    pd.testing.assert_series_equal(states, in_memory.decode()[states.index], check_dtype=False)
    with pytest.raises(avem.ModelError, match=r"fit\.sample\(1000\)"):
        fit.occupancy()
    with pytest.raises(avem.ModelError, match=r"fit\.sample\(1000\)"):
        fit.simulate(seed=1)
    with pytest.raises(avem.ModelError, match=r"fit\.sample\(\)"):
        fit.state_probabilities(parameters="estimated")


@pytest.mark.slow
def test_scores_and_reports_of_scans(fit, in_memory, tmp_path):
    assert fit.score() == pytest.approx(in_memory.score(), rel=1e-7)
    fit.report(tmp_path / "report.html", thorough=False, timelines=2)
    assert "evenly drawn" in (tmp_path / "report.html").read_text(encoding="utf-8")


@pytest.mark.slow
def test_many_fits_of_a_scan_are_those_of_a_frame(files, frame):
    scan = avem.Panel.scan(files, "subject", time="time")
    options = {"n_starts": 1, "refine": None}
    found, wanted = (
        avem.cross_validate(MODEL, data, folds=3, **more, **options)
        for data, more in ((scan, {}), (frame, {"time": "time"}))
    )
    assert found.loglik == pytest.approx(wanted.loglik, rel=1e-6)
    pd.testing.assert_frame_equal(found.by_subject, wanted.by_subject, rtol=1e-4)
    found, wanted = (
        avem.select(MODEL, data, states=[1, 2], **more, **options)
        for data, more in ((scan, {}), (frame, {"time": "time"}))
    )
    assert found.table["bic"].tolist() == pytest.approx(wanted.table["bic"].tolist(), rel=1e-6)
    check_same_data(found.best, found.fits[1])  # as tests and comparisons ask
    with pytest.raises(avem.ModelError, match="rows in memory"):
        check_same_data(found.best, wanted.best)
    with pytest.raises(avem.ModelError, match="by='subjects'"):
        avem.cross_validate(MODEL, scan, by="time", **options)


def test_what_needs_all_rows_says_what_to_ask(fit):
    with pytest.raises(avem.ModelError, match=r"rows in memory.*fit\.sample\(1000\)"):
        avem.bootstrap(fit, 2)
    with pytest.raises(avem.ModelError, match=r"rows in memory.*fit\.sample\(1000\)"):
        avem.bootstrap(fit, 2, data=fit.panel)
    with pytest.raises(avem.ModelError, match=r"scan it again; scan\.sample\(1000\)"):
        fit.panel.fill_gaps(1)
    with pytest.raises(avem.ModelError, match=r"scan\.of_subjects"):
        fit.panel.keep(min_times=12)
    kept = fit.panel.of_subjects(fit.panel.longest >= 12)  # as that advises
    assert kept.lane_length.min() >= 12 > fit.panel.lane_length.min()


def test_missing_steps_are_put_in_before_a_scan(fit, frame):
    skips = frame.query("time != 3")
    folder = fit.panel.folder.parent / "skips"
    scan = avem.Panel.scan(write_files(skips, folder), "subject", time="time")
    notes = MODEL.fit(scan, init=TRUTH, refine=None).info.notes
    assert any("Put the missing steps into the table, and scan it again." in n for n in notes)
