"""What the page's script reads: packed numbers, chosen subjects, and text that stays text."""

import base64
import dataclasses
import json

import numpy as np
import pandas as pd
import pytest

from avem.data import Panel
from avem.errors import DataError, ModelError
from avem.fits.report import frame as _frame
from avem.fits.report import timelines as _timelines
from avem.fits.report.pack import pack, pack_roughly, pack_times, script_json
from avem.fits.report.timelines import make_timelines
from tests.fits.kinds import fit_of

KINDS = {
    "i1": (np.int8, -128),
    "i2": (np.int16, -32768),
    "i4": (np.int32, -2147483648),
    "q2": (np.uint16, 65535),
    "f4": (np.float32, None),
    "f8": (np.float64, None),
}


def unpack(packed):
    """As the page does it."""
    kind, missing = KINDS[packed["t"]]
    raw = np.frombuffer(base64.b64decode(packed["d"]), kind)
    values = raw * packed["u"] + packed["o"]
    return values if missing is None else np.where(raw == missing, np.nan, values)


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([0, 1, 2, np.nan], "i1"),
        ([-127, 127], "i2"),  # the ends of a kind are kept free
        ([0, 3.25, -7.5, np.nan], "i2"),
        ([100000, 2], "i4"),
        ([0.1234567, 2.0], "f4"),
        ([1e300, 2.0], "f8"),
        ([], "i1"),
        ([np.nan, np.nan], "i1"),
    ],
)
def test_numbers_come_back(values, kind):
    packed = pack(np.array(values))
    assert packed["t"] == kind
    np.testing.assert_allclose(unpack(packed), values, rtol=1e-6)


def test_what_is_not_finite_is_missing():
    for made in (pack, pack_roughly):
        found = unpack(made(np.array([1.0, np.inf, -np.inf, np.nan, 2.0])))
        np.testing.assert_array_equal(np.isnan(found), [False, True, True, True, False])


def test_rough_numbers_are_good_to_a_pixel():
    x = np.random.default_rng(0).normal(size=500)
    packed = pack_roughly(x)
    assert packed["t"] == "q2"
    np.testing.assert_allclose(unpack(packed), x, atol=np.ptp(x) / 65534)
    x[0] = 1e6  # one value that dwarfs the others must not flatten them
    np.testing.assert_allclose(unpack(pack_roughly(x)), x, rtol=1e-6)
    np.testing.assert_array_equal(unpack(pack_roughly(np.full(4, 2.5))), 2.5)


def test_times_lose_nothing():
    days = 864e5 * np.array([19000, 19001, 19400.0])
    assert pack_times(days)["t"] == "i2"
    np.testing.assert_array_equal(unpack(pack_times(days)), days)
    odd = days + np.array([0.001, 1 / 3, 7.0])
    np.testing.assert_array_equal(unpack(pack_times(odd)), odd)


def test_no_markup_in_the_data():
    nasty = {"a": "</script><!-- <script> & \u2028 \U0001f600 \"'"}
    text = script_json(nasty)
    assert not set(text) & set("<>&\u2028")
    assert text.isascii()
    assert json.loads(text) == nasty


def test_colours_can_be_told_from_dark_paper():
    dark = _frame._luminance(_frame._DARK_PAPER)
    for color in ("#000000", "#0072B2", "#D55E00", "#222222"):
        lighter = _frame._on_dark(color)
        rgb = [int(lighter[i : i + 2], 16) for i in (1, 3, 5)]
        assert (_frame._luminance(rgb) + 0.05) / (dark + 0.05) >= 4.5
    assert _frame._on_dark("#ffffff") == "#181b1f"  # paper is paper
    assert _frame._on_dark("#ffffaa") == "#ffffaa"


# --- timelines ----------------------------------------------------------------------------------


def test_rows_of_an_hmm_are_those_of_its_tables():
    fit = fit_of("counts")
    made = make_timelines(fit)
    data, table = made.data, fit.panel.table
    assert (made.n_shown, made.n_subjects, made.n_cut) == (8, 8, 0)
    assert data["subjects"] == list(range(8))
    assert data["counts"] == data["rows"] == [24] * 8
    np.testing.assert_array_equal(unpack(data["state"]), fit.decode())
    chances = fit.state_probabilities()
    for k in range(2):
        np.testing.assert_allclose(unpack(data["chance"][k]), chances[f"state_{k}"], atol=1e-5)
    (outcome,) = data["outcomes"]
    np.testing.assert_array_equal(unpack(outcome["y"]), table["n"])
    assert np.isnan(unpack(outcome["fit"])[table["n"].isna()]).all()
    np.testing.assert_array_equal(unpack(data["time"]["values"]), table["t"])


def test_sequences_texts_and_dates():
    fit = fit_of("counts")
    table = fit.panel.table.sample(frac=1, random_state=1).reset_index(drop=True)
    table["half"] = np.where(table["t"] < 12, "early", "late")
    table["when"] = pd.Timestamp("2024-02-28") + pd.to_timedelta(table["t"], "D")
    for column, axis in (("t", "time"), ("when", "date")):
        panel = Panel.from_frame(table, "who", time=column, sequence="half")
        data = make_timelines(dataclasses.replace(fit, panel=panel)).data
        assert (data["axis"], data["axisLabel"]) == (axis, column)
        np.testing.assert_array_equal(unpack(data["sequenceLengths"]), [12] * 16)
        names = np.array(data["sequence"]["texts"])[unpack(data["sequence"]["codes"]).astype(int)]
        assert names.tolist() == ["early", "late"] * 8
    moments = unpack(data["time"]["values"]).reshape(8, 24)
    assert moments[0, 0] == pd.Timestamp("2024-02-28").timestamp() * 1e3
    assert (np.diff(moments) == 864e5).all()
    table["word"] = table["t"].map("t{:02d}".format)
    panel = Panel.from_frame(table, "who", time="word")
    data = make_timelines(dataclasses.replace(fit, panel=panel)).data
    assert data["axis"] == "row"
    assert data["time"]["texts"][0] == "t00"


def test_a_page_is_bounded_and_subjects_can_be_chosen(monkeypatch):
    fit = fit_of("counts")
    assert make_timelines(fit, 3).data["subjects"] == [0, 4, 7]
    assert make_timelines(fit, ["s6", "s1"]).data["subjects"] == [6, 1]
    for wrong in (0, True):
        with pytest.raises(ModelError, match="positive number of subjects"):
            make_timelines(fit, wrong)
    with pytest.raises(DataError, match="no subject 'nobody'"):
        make_timelines(fit, ["nobody"])
    monkeypatch.setattr(_timelines, "BUDGET", 2600)
    made = make_timelines(fit)
    assert 1 <= made.n_shown < 8
    assert len(json.dumps(made.data)) < 2 * 2600
    monkeypatch.setattr(_timelines, "_FEWEST", 10)
    monkeypatch.setattr(_timelines, "BUDGET", 200)
    made = make_timelines(fit)
    assert (made.n_shown, made.n_cut) == (1, 1)
    assert made.data["counts"][0] < made.data["rows"][0] == 24
