"""`avem fit --memory` and `--cluster`: tables that stay on disk."""

import pandas as pd
import pytest

import avem
from tests.scans import uneven, write_files
from tests.test_cli import run

pytest.importorskip("duckdb")
FORMULA = "y ~ 1 + (1 | subject)"


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return write_files(uneven(), tmp_path_factory.mktemp("scale") / "data")


def fit(files, out, *more):
    words = ("--states", 2, "--time", "time", "--starts", 1, "--refine", "never", "--out", out)
    return run("fit", f"{files}/*.parquet", FORMULA, *words, *more)


@pytest.mark.slow
def test_a_pattern_of_files_is_fitted_from_disk(files, tmp_path):
    kept = ("--memory", "500MB", "--cache", tmp_path / "cache")
    done = fit(files, tmp_path / "out", *kept, "--checkpoint", tmp_path / "ckpt")
    assert done.exit_code == 0, done.output
    assert "60 subjects in 'subject'" in done.output
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert names == {
        *("fit.avem", "summary.txt", "parameters.csv", "report.html"),
        *("effects", "states"),
    }
    frame = uneven()
    saved = avem.load(tmp_path / "out" / "fit.avem")
    states = pd.read_parquet(tmp_path / "out" / "states")
    assert len(states) == len(frame)
    wanted = frame[["subject", "time"]].assign(state=saved.decode(frame))
    both = states.merge(wanted, on=["subject", "time"])
    assert (both["state_x"] == both["state_y"]).all()
    assert not (tmp_path / "ckpt").exists()
    assert [path.is_dir() for path in (tmp_path / "cache").glob("avem-scan-*[!k]")] == [True]
    again = fit(files, tmp_path / "out", "--memory", "500MB")
    assert again.exit_code == 2
    assert "would be overwritten" in again.output


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (("--memory", "lots"), "memory is 'lots'"),
        (("--memory", "1GB", "--missing-code", "-99"), "--missing-code is for tables in memory"),
        (("--memory", "1GB", "--format", "csv"), "--format is for tables in memory"),
        (("--cluster", "tcp://127.0.0.1:1"), "the scheduler cannot be reached"),
        (("--cache", "rows"), "--cache goes with --memory or --cluster"),
        (("--cluster", "nowhere"), "the scheduler cannot be reached"),
    ],
)
def test_what_is_wrong_is_said_in_a_line(files, tmp_path, monkeypatch, more, words):
    monkeypatch.setattr("avem.cli._scale._PATIENCE", "1s")
    done = fit(files, tmp_path / "out", *more)
    assert done.exit_code == 2
    assert words in " ".join(done.output.split())
    assert not (tmp_path / "out").exists()
