"""Two panels of the same subjects as one."""

import numpy as np
import pandas as pd
import pytest

import avem
from avem.data import Panel
from avem.data.join import joined


@pytest.mark.parametrize("dtype", ["float16", "float32", "int8"])
def test_rows_that_were_seen_are_found_whatever_the_kind_of_times(dtype):
    frame = pd.DataFrame({"who": list("aabb"), "t": np.array([0, 1, 0, 1], dtype), "y": 1.0})
    later = frame.assign(t=(frame["t"] + 2).astype(dtype))
    old, new = (Panel.from_frame(each, "who", time="t") for each in (frame, later))
    assert joined(old, new, ["y"]).n_rows == 8
    with pytest.raises(avem.DataError, match="seen 4 of these rows already"):
        joined(old, old, ["y"])
