"""Tables in files as other programs write them."""

import csv

import pandas as pd
import pytest

from avem.data.files import read_table, write_table
from avem.errors import FileError

FRAME = pd.DataFrame({"id": ["a", "a", "b"], "beep": [1, 2, 1], "y": [0.5, 1.5, None]})
COLUMNS = {"subject": "id", "sequence": None, "time": "beep"}


@pytest.mark.parametrize("quoting", [csv.QUOTE_MINIMAL, csv.QUOTE_NONNUMERIC, csv.QUOTE_ALL])
@pytest.mark.parametrize("marks", [{}, {"sep": ";", "decimal": ","}])
@pytest.mark.parametrize("end", [".csv", ".csv.gz"])
def test_quoted_names_and_semicolons_are_read(tmp_path, quoting, marks, end):
    path = tmp_path / f"table{end}"
    FRAME.to_csv(path, index=False, quoting=quoting, **marks)
    pd.testing.assert_frame_equal(read_table(path, COLUMNS, []), FRAME)


def test_a_byte_order_mark_is_no_part_of_a_name(tmp_path):
    path = tmp_path / "table.csv"
    FRAME.to_csv(path, index=False, quoting=csv.QUOTE_ALL, encoding="utf-8-sig")
    pd.testing.assert_frame_equal(read_table(path, COLUMNS, []), FRAME)


def test_labels_of_several_kinds_become_text_in_parquet(tmp_path):
    pytest.importorskip("pyarrow")
    frame = pd.DataFrame({"id": [1, "a", None], "y": [0.5, 1.5, 2.5], "k": [1, 2, 3]})
    write_table(frame, tmp_path / "t.parquet")
    found = pd.read_parquet(tmp_path / "t.parquet")
    assert found["id"].fillna("gone").tolist() == ["1", "a", "gone"]
    pd.testing.assert_frame_equal(found[["y", "k"]], frame[["y", "k"]])
    assert frame["id"].tolist()[0] == 1


# --- several files ------------------------------------------------------------------------------


def cut(folder, frame=FRAME, ending=".csv", names=("b", "a")):
    """A frame's rows in two files, whose names are not in the order of writing."""
    folder.mkdir(exist_ok=True)
    for name, part in zip(names, (frame[1:], frame[:1]), strict=True):
        write_table(part, folder / f"{name}{ending}")
    return folder


@pytest.mark.parametrize("ending", [".csv", ".tsv", ".csv.gz", ".parquet"])
def test_a_folder_and_a_pattern_are_one_table(tmp_path, ending):
    if ending == ".parquet":
        pytest.importorskip("pyarrow")
    folder = cut(tmp_path / "days", ending=ending)
    (folder / "README.txt").write_text("not a table")
    (folder / "_metadata.csv").write_text("nor this")
    pd.testing.assert_frame_equal(read_table(folder, COLUMNS, []), FRAME)
    (folder / "_metadata.csv").unlink()
    pd.testing.assert_frame_equal(read_table(folder / f"*{ending}", COLUMNS, []), FRAME)
    pd.testing.assert_frame_equal(read_table(tmp_path / "**" / f"[ab]{ending}", COLUMNS, []), FRAME)


def test_columns_may_be_in_another_order_and_labels_are_those_of_one_file(tmp_path):
    frame = FRAME.assign(id=["007", "12", "12"])
    folder = cut(tmp_path / "days", frame)
    turned = pd.read_csv(folder / "b.csv")[["y", "id", "beep"]]
    turned.to_csv(folder / "b.csv", index=False)
    found = read_table(folder, COLUMNS, [])
    pd.testing.assert_frame_equal(found, frame)  # 12 is text, because 007 is
    empty = cut(tmp_path / "gaps", FRAME.assign(y=[None, 1.5, 2.5]))
    assert read_table(empty, COLUMNS, [])["y"].isna().tolist() == [True, False, False]


def test_a_file_that_can_always_be_named_is_itself(tmp_path):
    path = tmp_path / "day[1].csv"
    FRAME.to_csv(path, index=False)
    pd.testing.assert_frame_equal(read_table(path, COLUMNS, []), FRAME)


def test_what_is_no_one_table_is_named(tmp_path):
    folder = cut(tmp_path / "days")
    pd.read_csv(folder / "b.csv").rename(columns={"y": "z"}).to_csv(folder / "b.csv", index=False)
    with pytest.raises(FileError, match=r"b\.csv' has other columns than .*a\.csv'.*lacks 'y' and"):
        read_table(folder, COLUMNS, [])
    words = cut(tmp_path / "words", FRAME.assign(y=[0.5, "none", 2.5]))
    with pytest.raises(FileError, match=r"'y' has numbers in .*a\.csv' and text in .*b\.csv'"):
        read_table(words, COLUMNS, [])
    assert read_table(words, COLUMNS, ["none"])["y"].isna().sum() == 1
    write_table(FRAME, words / "c.tsv")
    with pytest.raises(FileError, match=r"several kinds.*c\.tsv.*a pattern: '.*/\*\.csv'"):
        read_table(words, COLUMNS, [])
    with pytest.raises(FileError, match=r"no file that matches '.*\*\.parquet'"):
        read_table(words / "*.parquet", COLUMNS, [])
    with pytest.raises(FileError, match=r"is a folder without \.csv, \.tsv or \.parquet files"):
        read_table(tmp_path, COLUMNS, [])
