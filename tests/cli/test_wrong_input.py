"""Whatever is wrong with a command or its files is said in one line, with exit code 2."""

import bz2
import gzip
import io
import lzma
import os
import subprocess
import sys
import zipfile

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from avem.cli import app
from tests.cli.processes import ended, fit, frame, start

TEXT = frame().to_csv(index=False)
COLUMNS = ("--subject", "who", "--time", "t")
unix = pytest.mark.skipif(sys.platform == "win32", reason="as Unix does it")


def packed_twice():
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        archive.writestr("a.csv", TEXT)
        archive.writestr("b.csv", TEXT)
    return made.getvalue()


def flipped(data):
    return data[:60] + bytes([data[60] ^ 255]) + data[61:]


FILES = {
    "cut.csv.gz": (gzip.compress(TEXT.encode())[:300], "it ends too early"),
    "bits.csv.gz": (flipped(gzip.compress(TEXT.encode(), mtime=0)), "Cannot read"),
    "checksum.csv.gz": (gzip.compress(TEXT.encode())[:-6] + b"\0" * 6, "CRC check failed"),
    "plain.csv.gz": (TEXT.encode(), "Not a gzipped file"),
    "empty.csv.gz": (b"", "it is empty"),
    "cut.csv.bz2": (bz2.compress(TEXT.encode())[:100], "it ends too early"),
    "plain.csv.bz2": (TEXT.encode(), "Invalid data stream"),
    "cut.csv.xz": (lzma.compress(TEXT.encode())[:100], "it ends too early"),
    "plain.csv.xz": (TEXT.encode(), "Cannot read"),
    "plain.csv.zip": (TEXT.encode(), "not a zip file"),
    "two.csv.zip": (packed_twice(), "Only one file per ZIP"),
    "empty.csv": (b"", "it is empty"),
    "lines.csv": (b"\n\n \n", "it is empty"),
    "head.csv": (b"who,t,y\n", "no rows"),
    "utf16.csv": (TEXT.encode("utf-16"), "it is text in UTF-16. Save it as UTF-8"),
    "utf16le.csv": (TEXT.encode("utf-16-le"), "begins with zero bytes, as text in UTF-16"),
    "latin.csv": (TEXT.replace("y", "\xe9").encode("latin-1"), "byte 0xe9 is no UTF-8 text"),
    "late.csv": ((TEXT + "9,1,\xe9\n").encode("latin-1"), "byte 0xe9 is no UTF-8 text"),
    "binary.csv": (np.random.default_rng(0).bytes(5000), "is no UTF-8 text"),
    "zeros.csv": (b"\0" * 1000, "begins with zero bytes"),
    "twice.csv": (TEXT.replace("t,y", "y,y").encode(), "has 2 columns named 'y'"),
    "ragged.csv": ((TEXT + "1,2,3,4,5\n").encode(), "Expected 3 fields in line 122"),
    "words.csv": (b"hello world\nfoo\n", "no column 'who'"),
    "text.parquet": (TEXT.encode(), "Cannot read"),
    "empty.parquet": (b"", "Cannot read"),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("wrong")
    for name, (content, _) in FILES.items():
        (place / name).write_bytes(content)
    (place / "data.csv").write_text(TEXT)
    (place / "folder.csv").mkdir()
    frame().rename(columns={"y": "state"}).to_csv(place / "other.csv", index=False)
    frame().assign(y=np.nan).to_csv(place / "no_values.csv", index=False)
    fit().save(place / "fit.avem")
    return place


@pytest.fixture
def refused(folder, monkeypatch):
    """The one line that a wrong command gives; nothing is written."""
    monkeypatch.chdir(folder)
    before = sorted(os.listdir(folder))

    def run(*arguments):
        words = [str(word) for word in arguments]
        result = CliRunner().invoke(app, words, env={"AVEM_NO_CACHE": "1"})
        assert result.exit_code == 2, (result.exit_code, result.output, result.exception)
        (line,) = result.stderr.splitlines()
        assert line.startswith("avem: ")
        assert len(line) < 1100
        assert sorted(os.listdir(folder)) == before
        return line

    return run


def commands(name):
    """Every command that reads a table."""
    fit_options = (*COLUMNS, "--starts", 1, "--no-plots", "--out", "out")
    return [
        ("fit", name, "y ~ 1", "--states", 2, *fit_options),
        ("fit-ssm", name, "--outcomes", "y", "--latent", 1, *fit_options),
        ("fit-ssm", "data.csv", "--outcomes", "y", "--latent", 1, *fit_options, "--future", name),
        ("select", name, "y ~ 1", "--states", "1-2", *COLUMNS, "--out", "x.csv"),
        ("decode", "fit.avem", name, "--out", "x.csv"),
        ("predict", "fit.avem", name, "--out", "x.csv"),
        ("simulate", "fit.avem", "--data", name, "--out", "x.csv"),
        ("report", "fit.avem", name, "--out", "x.html"),
    ]


@pytest.mark.parametrize("name", FILES)
def test_files_that_are_no_tables(refused, name):
    if name.endswith(".parquet"):
        pytest.importorskip("pyarrow")
    assert FILES[name][1] in refused(*commands(name)[0])


@pytest.mark.parametrize("name", ["cut.csv.gz", "plain.csv.zip", "twice.csv", "latin.csv"])
@pytest.mark.parametrize("number", range(1, 8))
def test_every_command_says_so(refused, name, number):
    assert FILES[name][1] in refused(*commands(name)[number])


def test_a_folder_for_a_file(refused):
    assert "is a folder without .csv, .tsv or .parquet files" in refused(*commands("folder.csv")[0])


def test_data_of_another_kind(refused):
    """Such as the states of the rows, which have the same subjects and times."""
    for command in ("report", "predict"):
        line = refused(command, "fit.avem", "other.csv", "--out", "x.csv")
        assert "There is no column 'y', wanted as an outcome" in line


def test_data_without_any_value(refused):
    assert "'y' has no value here" in refused("report", "fit.avem", "no_values.csv", "--out", "x.h")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--states", 0), "n_states is 0"),
        (("--states", -1), "n_states is -1"),
        (("--states", 10**9), "n_states is 1000000000; at most 1,000"),
        (("--states", 10**23), "n_states is 1000"),
        (("--states", 900), "900 states need at least"),
        (("--states", "many"), "Invalid value for '--states'"),
        (("--states", 2, "--starts", 0), "n_starts is 0"),
        (("--states", 2, "--seed", -1), "seed is -1"),
        (("--states", 2, "--covariance", ""), "covariance is ''"),
        (("--states", 2, "--sates", 2), "No such option: --sates"),
        ((), "Missing option '--states'"),
    ],
)
def test_numbers_and_words_of_a_fit(refused, arguments, words):
    assert words in refused("fit", "data.csv", "y ~ 1", *COLUMNS, *arguments, "--out", "out")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--subjects", 10**12, "--times", 2), "2,000,000,000,000 rows; at most 100,000,000"),
        (("--subjects", 2, "--times", 10**9), "2,000,000,000 rows; at most 100,000,000"),
        (("--subjects", 10**25, "--times", 1), "rows; at most 100,000,000"),
        (("--subjects", 0, "--times", 1), "Invalid value for '--subjects'"),
        (("--subjects", 2, "--times", 2, "--states", ""), "--states is empty"),
    ],
)
def test_numbers_of_a_simulation(refused, arguments, words):
    assert words in refused("simulate", "fit.avem", *arguments, "--out", "x.csv")


@pytest.mark.parametrize("horizon", [0, 10**9, 10**25])
def test_horizons(refused, horizon):
    words = "rows; at most 100,000,000" if horizon else "horizon is 0"
    assert words in refused(
        "predict", "fit.avem", "data.csv", "--horizon", horizon, "--out", "x.csv"
    )


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--states", ""), "--states '': numbers are wanted"),
        (("--states", "5-1"), "--states '5-1': the first number and a larger one"),
        (("--states", "1-1000000000"), "at most 100 apart"),
        (("--latent", "1-99999999999999999999"), "at most 100 apart"),
        (("--states", 10**12), "states is 1000000000000; at most 1,000"),
        (("--states", 10**23), "at most 1,000"),
        (("--states", 1, "--folds", 0), "folds is 0"),
        (("--states", 1, "--folds", 10**9), "6 subjects"),
        (("--states", 1, "--folds", 2, "--by", "luck"), "by is 'luck'"),
    ],
)
def test_numbers_of_a_selection(refused, arguments, words):
    formula = "y" if "--latent" in arguments else "y ~ 1"
    assert words in refused("select", "data.csv", formula, *COLUMNS, *arguments, "--out", "x.csv")


@pytest.mark.parametrize("name", ["../x", "...", ".x", "a.b.c", "os.path", "x y", ""])
def test_studies_that_there_are_not(refused, name):
    assert repr(name) in refused("study", name)


def test_a_long_formula_is_shortened(refused):
    formula = "y ~ " + "(" * 5000
    line = refused("fit", "data.csv", formula, *COLUMNS, "--states", 2, "--out", "out")
    assert "is not closed" in line


def test_memory_that_there_is_not(refused, monkeypatch):
    def fails(*_):
        raise MemoryError("Unable to allocate 7.28 TiB.")

    monkeypatch.setattr("avem.cli._select.read_for", fails)
    line = refused("select", "data.csv", "y ~ 1", *COLUMNS, "--out", "x.csv")
    assert line.startswith("avem: Out of memory. Unable to allocate 7.28 TiB. Use fewer")


@pytest.mark.slow
@unix
@pytest.mark.parametrize("reader", ["head -1", "true"])
def test_a_reader_that_leaves(folder, reader):
    command = f"{sys.executable} -m avem summary {folder / 'fit.avem'} | {reader}"
    done = subprocess.run(
        ["bash", "-c", f"{command}; exit ${{PIPESTATUS[0]}}"], capture_output=True
    )
    assert done.returncode in (0, 141)
    assert done.stderr == b""


@unix
@pytest.mark.parametrize("arguments", ["--help", "fit --help", "--version"])
def test_a_reader_of_the_help_that_leaves(arguments):
    command = f"{sys.executable} -m avem {arguments} | true"
    done = subprocess.run(
        ["bash", "-c", f"{command}; exit ${{PIPESTATUS[0]}}"], capture_output=True
    )
    assert done.returncode in (0, 141)
    assert done.stderr == b""


def test_what_ends_well_ends_with_0(monkeypatch):
    monkeypatch.setattr(
        "shellingham.detect_shell", lambda: ("bash", "/bin/bash")
    )  # or none is there
    for words in (["--help"], ["--version"], ["--show-completion"]):
        assert CliRunner().invoke(app, words).exit_code == 0


@unix
def test_a_table_for_a_reader_that_leaves(folder):
    read, write = os.pipe()
    os.close(read)
    command = ("simulate", folder / "fit.avem", "--subjects", 500, "--times", 200)
    process = start(*command, "--out", "/dev/stdout", stdout=write)
    os.close(write)
    code, _, err = ended(process)
    assert (code, err) == (141, "")


def test_a_duplicate_name_in_parquet(refused, folder):
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    column = pa.array([1.0, 2.0])
    table = pa.Table.from_arrays([column, column], names=["y", "y"])
    parquet.write_table(table, folder / "twice.parquet")
    result = CliRunner().invoke(app, ["decode", "fit.avem", "twice.parquet", "--out", "x.csv"])
    (folder / "twice.parquet").unlink()
    assert result.exit_code == 2
    assert len(result.stderr.splitlines()) == 1


def test_tables_with_names_left_out_are_read(folder, tmp_path):
    """As spreadsheets write them: empty columns at the end have no name, and are not the same."""
    (tmp_path / "wide.csv").write_text("\n".join(line + ",," for line in TEXT.splitlines()) + "\n")
    command = ["decode", folder / "fit.avem", tmp_path / "wide.csv", "--out", tmp_path / "x.csv"]
    assert CliRunner().invoke(app, [str(word) for word in command]).exit_code == 0
    assert len(pd.read_csv(tmp_path / "x.csv")) == 120
