"""Tables in files as other programs write them."""

import csv

import pandas as pd
import pytest

from avem.data.files import read_table, write_table

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
