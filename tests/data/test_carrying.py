"""Covariates that are missing: the last value before, in the sequence, and said."""

import numpy as np
import pandas as pd
import polars as pl
import pytest

import avem
from avem.data import Panel
from avem.errors import DataError, ModelError

MODEL = avem.MixedHMM("y ~ x + kind + (1 | who)", 2, transition="~ x")
KEYS = {"time": "t", "sequence": "day"}


def frame_of(seed=0):
    """Shuffled rows, with gaps of the covariates in the middle and at the end of sequences."""
    rng = np.random.default_rng(seed)
    rows = [(w, d, t) for w in "abcdefgh" for d in range(2) for t in range(12)]
    frame = pd.DataFrame(rows, columns=["who", "day", "t"])
    state = np.cumsum(rng.random(len(frame)) < 0.15) % 2
    frame["x"] = rng.standard_normal(len(frame)).round(2)
    frame["kind"] = rng.choice(["u", "v"], len(frame))
    frame["y"] = (3 * state + frame["x"] + rng.standard_normal(len(frame))).round(2)
    return frame.sample(frac=1, random_state=seed)


def with_gaps(frame):
    """Rows t = 3, 4 and 11 of every other sequence lack x; t = 7 lacks the kind."""
    gone = frame["t"].isin([3, 4, 11]) & (frame["day"] == 1)
    kind = frame["kind"].where(~((frame["t"] == 7) & (frame["who"] == "c")))
    return frame.assign(x=frame["x"].where(~gone), kind=kind)


def by_hand(frame):
    """The same filled with a loop."""
    out = frame.copy()
    for _, rows in frame.sort_values("t").groupby(["who", "day"]):
        last = {}
        for label, row in rows.iterrows():
            for name in ("x", "kind"):
                if pd.isna(row[name]):
                    out.loc[label, name] = last[name]
                else:
                    last[name] = row[name]
    return out


OPTIONS = {"n_starts": 1, "refine": None, **KEYS}


@pytest.fixture(scope="module")
def fit():
    return MODEL.fit(with_gaps(frame_of()), missing="carry", **OPTIONS)


def test_it_is_the_fit_of_the_filled_table_and_says_so(fit):
    wanted = MODEL.fit(by_hand(with_gaps(frame_of())), **OPTIONS)
    for name, value in wanted.params.items():
        np.testing.assert_array_equal(fit.params[name], value)
    (note,) = [note for note in fit.info.notes if "missing='carry'" in note]
    assert "'x' in 24 rows, 'kind' in 2 rows" in note
    assert note in str(fit.summary())
    assert not any("carry" in other for other in wanted.info.notes)
    assert fit.info.carried == ("x", "kind")


def test_without_gaps_it_changes_nothing_and_says_nothing(fit):
    found = MODEL.fit(frame_of(), missing="carry", init=fit, max_iter=500, **OPTIONS)
    plain = MODEL.fit(frame_of(), init=fit, **OPTIONS)
    np.testing.assert_array_equal(found.params["coef"], plain.params["coef"])
    assert found.info.notes == plain.info.notes


def test_new_data_are_treated_alike_also_after_saving(fit, tmp_path):
    new = frame_of(1)
    fit.save(tmp_path / "fit.avem")
    loaded = avem.load(tmp_path / "fit.avem")
    for one in (fit, loaded):
        found = one.state_probabilities(with_gaps(new))
        pd.testing.assert_frame_equal(found, one.state_probabilities(by_hand(with_gaps(new))))
    assert loaded.info.carried == ("x", "kind")
    panel = Panel.from_frame(with_gaps(new), "who", "t", "day")
    assert loaded.decode(panel).equals(fit.decode(with_gaps(new)))
    fit.report(tmp_path / "report.html", thorough=False)
    assert "missing=&#x27;carry&#x27;" in (tmp_path / "report.html").read_text("utf-8")


def test_a_monitor_carries_them_row_by_row_also_after_saving(fit, tmp_path):
    own = with_gaps(frame_of(1)).query("who == 'c'").sort_values(["day", "t"])
    wanted = fit.filter(own).to_numpy()
    monitor = fit.monitor(subject="c")
    for at, (_, row) in enumerate(own.iterrows()):
        found = monitor.update(row)
        np.testing.assert_allclose(
            list(found.states.values()), wanted[at], atol=1e-7
        )  # other nodes
        if at == 15:  # t = 3 of the second day was filled, t = 4 is to come
            monitor.save(tmp_path / "c.monitor")
            monitor = avem.Monitor.load(tmp_path / "c.monitor")
    other = fit.monitor(subject="c")
    other.follow(Panel.from_frame(own, "who", "t", "day"))
    assert other.states == pytest.approx(monitor.states, abs=1e-12)
    first = fit.monitor(subject="c")
    with pytest.raises(DataError, match="'x' is missing"):
        first.update(own.iloc[0].to_dict() | {"x": None})


def test_a_gap_at_the_start_is_an_error_that_names_rows():
    frame = frame_of()
    start = (frame["t"] == 0) & (frame["who"] == "b") & (frame["day"] == 1)
    (label,) = frame.index[start]
    gap = frame.assign(x=frame["x"].where(~start))
    wanted = rf"'x' is missing at row {label}, .* there is none"
    with pytest.raises(DataError, match=wanted):
        MODEL.fit(gap, missing="carry", **OPTIONS)
    # Where nothing reads it, it is no gap: moves lead into later rows alone.
    moves = avem.MixedHMM("y ~ 1 + (1 | who)", 2, transition="~ x")
    moves.fit(gap, missing="carry", max_iter=500, **OPTIONS)


def test_by_default_it_is_an_error_as_before():
    with pytest.raises(DataError, match=r"The covariate '(x|kind)' is missing at row") as told:
        MODEL.fit(with_gaps(frame_of()), **OPTIONS)
    assert "carry" not in str(told.value).split("Fill it in")[0]
    with pytest.raises(ModelError, match="missing is 'cary'; choose one of 'error', 'carry'"):
        MODEL.fit(frame_of(), missing="cary", **OPTIONS)


def test_sequences_end_what_is_carried():
    frame = pd.DataFrame({"who": [1, 1, 2, 2], "x": [5.0, None, None, 7.0], "n": [1, 2, 3, 4]})
    panel = Panel.from_frame(frame, "who").carry_forward(["x", "n"])
    assert panel.table["x"].fillna(-1).tolist() == [5.0, 5.0, -1.0, 7.0]
    assert panel.carried.counts == (1, 0)
    assert panel.table["n"].dtype == frame["n"].dtype
    with pytest.raises(DataError, match="a list of names is wanted"):
        panel.carry_forward("x")
    words = pd.DataFrame({"who": ["a"] * 3, "x": ["u", None, "v"]})
    for kind in (words, pl.from_pandas(words)):
        assert Panel.from_frame(kind, "who").carry_forward(["x"]).table["x"].tolist() == list("uuv")


def test_state_space_models_have_it_too():
    frame = with_gaps(frame_of()).assign(z=lambda rows: rows["y"] + rows["t"] % 3)
    model = avem.MixedSSM("y + z ~ x", 1, random="none", subject="who")
    found = model.fit(frame, missing="carry", **OPTIONS)
    wanted = model.fit(by_hand(with_gaps(frame_of())).assign(z=frame["z"]), **OPTIONS)
    np.testing.assert_array_equal(found.params["coef"], wanted.params["coef"])
    assert any("'x' in 24 rows" in note for note in found.info.notes)
