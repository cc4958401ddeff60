"""Tables in files as other programs write them."""

import csv

import pandas as pd
import pytest

from avem.data.files import read_table

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
