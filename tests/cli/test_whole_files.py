"""What the command writes is there whole or not at all."""

import os
import signal
import sys

import pandas as pd
import pytest
from typer.testing import CliRunner

from avem.cli import app
from tests.cli.processes import ended, fit, frame, start, until

unix = pytest.mark.skipif(sys.platform == "win32", reason="as Unix does it")


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("saved")
    fit().save(folder / "fit.avem")
    frame().to_csv(folder / "data.csv", index=False)
    return folder


def run(*arguments):
    return CliRunner().invoke(app, [str(a) for a in arguments], env={"AVEM_NO_CACHE": "1"})


@unix
def test_a_killed_simulation_leaves_no_table(saved, tmp_path):
    out = tmp_path / "x.csv"
    command = ("simulate", saved / "fit.avem", "--times", 200, "--out", out)
    victim = start(*command, "--subjects", 2000)
    until(lambda: list(tmp_path.iterdir()), victim)
    os.kill(victim.pid, signal.SIGKILL)
    ended(victim)
    assert not out.exists()
    assert len(list(tmp_path.iterdir())) == 1
    assert run(*command, "--subjects", 2).exit_code == 0
    assert [path.name for path in tmp_path.iterdir()] == ["x.csv"]
    assert len(pd.read_csv(out)) == 400


@pytest.mark.parametrize("command", ["fit", "select", "decode", "simulate", "report", "demo"])
@pytest.mark.parametrize("name", ["", " "])
def test_an_empty_name_is_refused(saved, command, name):
    more = {
        "fit": (saved / "data.csv", "y ~ 1", "--states", 2, "--subject", "who"),
        "select": (saved / "data.csv", "y ~ 1", "--subject", "who"),
        "decode": (saved / "fit.avem", saved / "data.csv"),
        "simulate": (saved / "fit.avem", "--subjects", 2, "--times", 2),
        "report": (saved / "fit.avem",),
        "demo": (),
    }
    result = run(command, *more[command], "--out", name)
    assert result.exit_code == 2
    assert result.stderr.startswith("avem: Invalid value for '--out': it is empty")
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("out", "words"),
    [
        ("x.txt", "'.txt'; .csv, .tsv or .parquet is wanted"),
        ("x.parquet.gz", "End its name in .parquet"),
        ("absent/x.csv", "There is no folder"),
        (".", "is a folder; the name of a file is wanted"),
    ],
)
@pytest.mark.parametrize("command", ["select", "decode", "predict", "simulate"])
def test_a_table_that_cannot_be_written_is_refused_before_the_work(
    saved, monkeypatch, tmp_path, command, out, words
):
    """Not even the other files, which do not exist, are looked at."""
    monkeypatch.chdir(tmp_path)
    files = {
        "select": ("no.csv", "y ~ 1"),
        "decode": ("no.avem", "no.csv"),
        "predict": ("no.avem", "no.csv"),
        "simulate": ("no.avem", "--subjects", 2, "--times", 2),
    }
    result = run(command, *files[command], "--out", out, "--force")
    assert result.exit_code == 2
    assert words in result.stderr
    assert len(result.stderr.splitlines()) == 1


@unix
def test_tables_and_pages_go_to_devices(saved, capfd):
    command = ("simulate", saved / "fit.avem", "--subjects", 2, "--times", 3, "--seed", 1)
    done = run(*command, "--out", "/dev/stdout")
    assert (done.exit_code, done.output) == (0, "")
    out = capfd.readouterr().out
    assert out.startswith("who,t,y\n1,1,")
    assert len(out.splitlines()) == 7
    assert run(*command, "--out", "/dev/null").stdout == ""


@unix
def test_work_goes_on_where_nobody_reads(saved, tmp_path):
    """Such as in `avem select ... | true`: the table is written after the first words."""
    read, write = os.pipe()
    os.close(read)
    command = ("select", saved / "data.csv", "y ~ 1", "--subject", "who", "--states", "1")
    process = start(*command, "--out", tmp_path / "x.csv", stdout=write)
    os.close(write)
    code, _, err = ended(process)
    assert (code, err) == (0, "")
    assert pd.read_csv(tmp_path / "x.csv")["n_states"].tolist() == [1]
