"""What strangers have in their folders: read as it is in memory, or refused."""

import gzip

import numpy as np
import pandas as pd
import pytest

import avem

pytest.importorskip("duckdb")

SMALL = pd.DataFrame({"who": ["a", "a", "b"], "t": [1, 2, 1], "y": [2.5, 1.0, -3.25]})


def rows_of(scan):
    """All rows of a scan, as they came."""
    parts = [one.table.set_axis(one.source.index) for one in scan.panels(scan.blocks(50))]
    return pd.concat(parts).sort_index()


def assert_read(source, wanted, **more):
    scan = avem.Panel.scan(source, "who", time="t", **more)
    wanted = wanted.reset_index(drop=True)
    pd.testing.assert_frame_equal(rows_of(scan), wanted, check_dtype=False, check_names=False)
    panel = avem.Panel.from_frame(wanted, "who", time="t")
    np.testing.assert_array_equal(scan.subjects, panel.subjects)
    np.testing.assert_array_equal(scan.lane_length, panel.lane_length)
    assert scan.gaps() == panel.gaps()
    return scan


def written(tmp_path, text, name="a.csv", encoding="utf-8"):
    (tmp_path / name).write_bytes(text.encode(encoding))
    return tmp_path / name


def test_the_numbers_of_rows_that_pandas_writes_are_no_column(tmp_path):
    SMALL.set_index(pd.Index([7, 4, 9])).to_parquet(tmp_path / "a.parquet")
    more = SMALL.assign(who="c", t=[1, 2, 3])
    more.to_parquet(tmp_path / "b.parquet")  # has none of them
    scan = assert_read(tmp_path, pd.concat([SMALL, more]))
    assert list(scan.facts["columns"]) == ["who", "t", "y"]
    own = avem.Panel.scan(tmp_path / "a.parquet", "who", time="__index_level_0__")
    assert own.facts["columns"]["__index_level_0__"]["max"] == 9


# --- text ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("late", ["0.5", "NA", "much"])
def test_the_last_row_says_as_much_as_the_first_of_what_a_column_holds(tmp_path, late):
    """Where a sample decided, half a unit was rounded away."""
    text = "who,t,y\n" + "".join(f"a,{i},{i}\n" for i in range(25_000)) + f"a,25000,{late}\n"
    path = written(tmp_path, text)
    assert_read(path, pd.read_csv(path))


def test_all_files_say_what_a_column_holds(tmp_path):
    for i in range(20):
        written(tmp_path, f"who,t,y\n{i},1,{i}\n{i},2,{'0.5' if i == 16 else 3}\n", f"{i:02}.csv")
    assert_read(tmp_path, pd.concat([pd.read_csv(path) for path in sorted(tmp_path.iterdir())]))


@pytest.mark.parametrize(
    "values",
    ["1 -2 3", "1e3 -.5 2.", "inf -Infinity 1", "NA nan 2", "True False true", "NA NULL null"],
)
def test_words_for_numbers_are_those_of_pandas(tmp_path, values):
    path = written(tmp_path, "".join(f"{w}\n" for w in ["who,t,y", *_rows(values.split())]))
    assert_read(path, pd.read_csv(path))


def _rows(values):
    return [f"a,{number},{value}" for number, value in enumerate(values)]


@pytest.mark.parametrize(
    "values", ["1_000 2 3", "0x1F 2 3", "01/31/2024 02/01/2024 x", "infinit 1 2"]
)
def test_what_is_no_number_stays_text(tmp_path, values):
    path = written(tmp_path, "\n".join(["who,t,y", *_rows(values.split())]))
    assert rows_of(avem.Panel.scan(path, "who", time="t"))["y"].tolist() == values.split()


def test_dates_are_dates_and_their_zones_are_kept_apart(tmp_path):
    path = written(tmp_path, "who,t,y\na,2024-01-01T10:00+02:00,1\na,2024-01-01T09:00Z,2\n")
    found = rows_of(avem.Panel.scan(path, "who", time="t"))
    assert found["t"].tolist() == [pd.Timestamp(f"2024-01-01 0{h}:00Z") for h in (8, 9)]
    path = written(tmp_path, "who,t,y\na,2024-01-01,1\na,2024-01-02,1\na,2024-01-04,2\n")
    assert avem.Panel.scan(path, "who", time="t").gaps() == (1, pd.Timedelta("1D"))
    path = written(tmp_path, "who,t,y\na,01/31/2024,1\na,02/01/2024,2\n")
    with pytest.raises(avem.DataError, match="text such as '01/31/2024'"):
        avem.Panel.scan(path, "who", time="t")


def test_a_spreadsheet_with_decimal_commas(tmp_path):
    path = written(tmp_path, '"who";"t";"y"\n"a,b";1;2,5\n"a,b";2;-1\n')
    assert_read(path, pd.read_csv(path, sep=";", decimal=","))


def test_tabs_quotes_packed_files_and_marks_at_the_beginning(tmp_path):
    assert_read(written(tmp_path, SMALL.to_csv(index=False), encoding="utf-8-sig"), SMALL)
    quoted = 'who,t,"y ""q"", z",note\r\na,1,2.5,"two\nlines, and more"\r\n'
    path = written(tmp_path, quoted, "q.csv")
    assert_read(path, pd.read_csv(path))
    assert_read(written(tmp_path, SMALL.to_csv(index=False, sep="\t"), "a.tsv"), SMALL)
    folder = tmp_path / "packed"
    folder.mkdir()
    (folder / "a.csv.gz").write_bytes(gzip.compress(SMALL.to_csv(index=False).encode()))
    assert_read(folder, SMALL)


@pytest.mark.parametrize(
    ("text", "encoding", "words"),
    [
        ("who,t,y\nå,1,2\n", "latin-1", r"a\.csv' is no UTF-8 text.*Save it as CSV in UTF-8"),
        ("who,t,ÿ\na,1,2\n", "latin-1", r"a\.csv' is no UTF-8 text"),
        ("who,t,y\na,1,2\n", "utf-16", r"a\.csv' is text in UTF-16"),
        ("who,t,y\na,1,2\n", "utf-16-be", r"a\.csv' is text in UTF-16"),
        ("", "utf-8", r"a\.csv' is empty"),
        ("\nwho,t,y\na,1,2\n", "utf-8", r"a\.csv' begins with an empty line"),
        ("who,t,y,y\na,1,2,3\n", "utf-8", "2 columns named 'y'"),
        ("who,t,y,Y\na,1,2,3\n", "utf-8", "columns 'y' and 'Y'"),
        ("who,t,avem row\na,1,2\n", "utf-8", "'avem row'; 'avem ...' is taken"),
        ("who,t,y\na,1,2,3\n", "utf-8", r"a\.csv'.*Line: 2.*Expected Number of Columns: 3"),
        ('who,t,y\na,1,"2\nb,1,3\n', "utf-8", r"a\.csv'.*unterminated quote"),
    ],
)
def test_text_that_is_no_table_is_refused_in_plain_words(tmp_path, text, encoding, words):
    with pytest.raises(avem.AvemError, match=words) as error:
        avem.Panel.scan(written(tmp_path, text, encoding=encoding), "who", time="t")
    assert "strict_mode" not in str(error.value)


# --- Parquet ------------------------------------------------------------------------------------


def parquet(folder, **frames):
    folder.mkdir(exist_ok=True)
    for name, frame in frames.items():
        frame.to_parquet(folder / f"{name}.parquet", index=False)
    return folder


def test_numbers_of_different_sizes_are_all_kept(tmp_path):
    """As those of the first file, halves were rounded away."""
    whole, empty = SMALL.assign(y=[1, 2, 3], t=[5, 6, 5]), SMALL.assign(y=None, t=[8, 9, 8])
    folder = parquet(tmp_path / "x", a=empty, b=whole, c=SMALL)
    assert_read(folder, pd.concat([empty.astype({"y": float}), whole, SMALL]))


def test_an_empty_file_has_columns_of_no_kind(tmp_path):
    assert_read(parquet(tmp_path / "x", a=SMALL[:0].astype(object), b=SMALL), SMALL)


@pytest.mark.parametrize("other", [["1", "1", "2"], [True, True, False]])
def test_numbers_in_one_file_and_text_in_another_are_refused(tmp_path, other):
    numbers = SMALL.assign(who=[1, 1, 2])
    folder = parquet(tmp_path / "x", a=numbers, b=numbers.assign(who=other, t=[4, 5, 6]))
    if isinstance(other[0], bool):
        assert avem.Panel.scan(folder, "who", time="t").subjects.tolist() == [1, 2, 0]
        return
    with pytest.raises(avem.FileError, match=r"'who' has text in .*b\.parquet' and numbers"):
        avem.Panel.scan(folder, "who", time="t")


def test_names_of_files_are_no_patterns(tmp_path):
    """Where they were, 'a[1]' was read from 'a1'."""
    parquet(tmp_path, **{"a[1]": SMALL, "a1": SMALL.assign(y=0.0)})
    assert_read(tmp_path / "a[1].parquet", SMALL)
    parquet(tmp_path / "q*", a=SMALL)
    parquet(tmp_path / "qq", a=SMALL.assign(y=0.0))
    assert_read(tmp_path / "q*", SMALL)
    assert_read(str(tmp_path / "q[*]" / "*.parquet"), SMALL)


@pytest.mark.parametrize("name", ["first", "length", "longest", "number", "lane", "same", "before"])
def test_columns_may_be_called_as_they_like(tmp_path, name):
    """Some of these were names of columns of our own, and moved subjects about."""
    frame = SMALL.iloc[[2, 0, 1]].assign(**{name: [7, 7, 8]})
    assert_read(parquet(tmp_path / "plain", a=frame), frame)
    for key in ("who", "t"):
        columns = {"subject": "who", "time": "t"}
        columns = {use: name if own == key else own for use, own in columns.items()}
        own = SMALL.iloc[[2, 0, 1]].rename(columns={key: name}).reset_index(drop=True)
        scan = avem.Panel.scan(parquet(tmp_path / key, a=own), **columns)
        assert scan.subjects.tolist() == ["b", "a"]
        pd.testing.assert_frame_equal(rows_of(scan), own, check_dtype=False, check_names=False)


def test_decimals_are_numbers(tmp_path):
    arrow, parquets = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    table = arrow.Table.from_pandas(SMALL, preserve_index=False)
    exact = table.set_column(2, "y", table["y"].cast(arrow.decimal128(10, 2)))
    parquets.write_table(exact, tmp_path / "a.parquet")
    scan = assert_read(tmp_path / "a.parquet", SMALL)
    assert scan.facts["columns"]["y"]["mean"] == pytest.approx(SMALL["y"].mean())


def test_lists_beside_the_columns_that_are_read(tmp_path):
    frame = SMALL.assign(words=[["a", "b"]] * 3)
    scan = avem.Panel.scan(parquet(tmp_path / "x", a=frame), "who", time="t")
    assert scan.n_rows == 3


def test_durations_are_no_times(tmp_path):
    folder = parquet(tmp_path / "x", a=SMALL.assign(t=pd.to_timedelta(SMALL["t"], "s")))
    with pytest.raises(avem.DataError, match="'t' holds durations"):
        avem.Panel.scan(folder, "who", time="t")


# --- folders ------------------------------------------------------------------------------------


def test_what_programs_leave_beside_their_tables_is_not_read(tmp_path):
    folder = parquet(tmp_path / "x", a=SMALL)
    for name in ("._a.parquet", "_metadata.parquet", ".a.parquet.crc", "_SUCCESS"):
        (folder / name).write_bytes(b"12")
    parquet(folder / "_temporary", a=SMALL)
    assert_read(folder, SMALL)
    for _ in range(2):  # its own cache among the files is no source
        assert_read(folder, SMALL, cache=folder)


def test_columns_in_names_of_folders(tmp_path):
    for kind, key, labels in (("parquet", "who", ("007", "7")), ("csv", "year", ("2023", "2024"))):
        for number, label in enumerate(labels):
            (tmp_path / kind / f"{key}={label}").mkdir(parents=True)
            own = pd.DataFrame({"t": [1, 2], "y": [number, number + 0.5]})
            path = tmp_path / kind / f"{key}={label}" / f"a.{kind}"
            getattr(own, f"to_{kind}")(path, index=False)
    scan = avem.Panel.scan(tmp_path / "parquet", "who", time="t")
    assert scan.subjects.tolist() == ["007", "7"]
    assert rows_of(scan)["y"].tolist() == [0, 0.5, 1, 1.5]
    scan = avem.Panel.scan(tmp_path / "csv", "year", time="t")
    assert scan.subjects.tolist() == [2023, 2024]


def test_a_column_of_the_files_counts_more_than_a_folder_of_its_name(tmp_path):
    (tmp_path / "y=99").mkdir()
    assert_read(parquet(tmp_path / "y=99", a=SMALL).parent, SMALL)


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (None, "has None"),
        (3, "has 3"),
        ("", "has ''"),
        ({}, "has {}"),
        (b"a.parquet", "has b'a.parquet'"),
        (SMALL, "a DataFrame.*fitted as it is"),
        ([SMALL], "a DataFrame.*fitted as it is"),
        ("s3://logs/*.parquet", "no file.*pyarrow Dataset"),
    ],
)
def test_sources_that_are_none_are_refused(source, words):
    with pytest.raises(avem.AvemError, match=words):
        avem.Panel.scan(source, "who", time="t")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"subject": None}, "subject is None; the name of a column"),
        ({"subject": ["who", "t"]}, "subject is "),
        ({"time": 3}, "time is 3"),
        ({"cache": 3}, "cache is 3; the path of a folder"),
    ],
)
def test_odd_options_are_refused(tmp_path, options, words):
    parquet(tmp_path / "x", a=SMALL)
    with pytest.raises(avem.DataError, match=words):
        avem.Panel.scan(tmp_path / "x", **{"subject": "who", "time": "t", **options})


# --- lazy tables --------------------------------------------------------------------------------


def test_what_a_lazy_table_raises_is_said(tmp_path):
    polars, duckdb = pytest.importorskip("polars"), pytest.importorskip("duckdb")
    lost = polars.scan_parquet(tmp_path / "none.parquet")
    with pytest.raises(avem.DataError, match=r"polars LazyFrame cannot be computed.*none\.parquet"):
        avem.Panel.scan(lost, "who", time="t")
    with pytest.raises(avem.DataError, match=r"LazyFrame cannot be computed.*nope"):
        avem.Panel.scan(polars.from_pandas(SMALL).lazy().select("nope"), "who", time="t")
    path = parquet(tmp_path / "x", a=SMALL) / "a.parquet"
    odd = duckdb.read_parquet(str(path)).project("CAST(who AS INTEGER) AS who, t")
    with pytest.raises(avem.DataError, match=r"DuckDB relation cannot be computed.*Could not conv"):
        avem.Panel.scan(odd, "who", time="t")
    with pytest.raises(avem.DataError, match="no column 'day' in the polars LazyFrame"):
        avem.Panel.scan(polars.scan_parquet(path), "who", time="day")


def test_parts_of_a_dask_frame_are_widened(tmp_path):
    """Whole numbers in the first part, halves in the second."""
    dask, delayed = pytest.importorskip("dask.dataframe"), pytest.importorskip("dask").delayed
    parts = [SMALL.assign(y=[1, 2, 3]), SMALL.assign(t=SMALL["t"] + 5)]
    frame = dask.from_delayed([delayed(part) for part in parts], meta=SMALL[:0], verify_meta=False)
    assert_read(frame, pd.concat(parts))


# --- interruptions ------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [RuntimeError("Query interrupted"), KeyboardInterrupt()])
def test_ctrl_c_while_rows_are_sorted_is_one(tmp_path, monkeypatch, error):
    """DuckDB makes a RuntimeError of it."""
    from avem.data.scanning import cache

    def interrupted(_):
        raise error

    monkeypatch.setattr(cache.Sorter, "_write", interrupted)
    folder = parquet(tmp_path / "x", a=SMALL)
    with pytest.raises(KeyboardInterrupt):
        avem.Panel.scan(folder, "who", time="t", cache=tmp_path / "cache")
    assert not [path for path in (tmp_path / "cache").iterdir() if path.is_dir()]


def test_a_cache_that_cannot_be_written_into_is_told(tmp_path, monkeypatch):
    """Root may write everywhere, so the system's refusal is acted out."""
    from avem.data.scanning import cache

    def refused(path, *_):
        raise PermissionError(13, "Permission denied", str(path))

    folder = parquet(tmp_path / "x", a=SMALL)
    monkeypatch.setattr(cache, "open", refused, raising=False)
    with pytest.raises(avem.FileError, match=r"Cannot write into the folder .*Permission denied"):
        avem.Panel.scan(folder, "who", time="t", cache=tmp_path / "cache")


def test_a_column_without_a_name_is_refused(tmp_path):
    SMALL.assign(**{"": 1.0}).to_parquet(tmp_path / "rows.parquet")
    with pytest.raises(avem.DataError, match="a column named ''"):
        avem.Panel.scan(tmp_path / "rows.parquet", "who", time="t")
