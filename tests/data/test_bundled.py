"""The bundled data are what their script makes, and what their card says."""

import runpy
import sys
from importlib.resources import files
from pathlib import Path

import numpy as np

from avem.data.examples import load_affect

ROOT = Path(__file__).resolve().parents[2]
BUNDLED = files("avem.data") / "bundled"


def test_the_script_makes_the_same_bytes(tmp_path, monkeypatch):
    script = str(ROOT / "examples" / "make_affect.py")
    monkeypatch.setattr(sys, "argv", [script, str(tmp_path / "made.csv")])
    runpy.run_path(script, run_name="__main__")
    made = (tmp_path / "made.csv").read_bytes()
    assert made == (BUNDLED / "affect.csv").read_bytes()
    assert len(made) < 250_000


def test_the_data_are_what_their_card_says():
    data = load_affect()
    assert list(data.columns) == ["person", "day", "beep", "stress", "valence", "arousal"]
    assert data["person"].unique().tolist() == [f"p{i:02d}" for i in range(1, 61)]
    days = data.groupby("person")["day"].nunique()
    beeps = data.groupby(["person", "day"])["beep"].max()
    assert (days.min(), days.max(), beeps.min(), beeps.max()) == (5, 9, 6, 10)
    answers = data[["valence", "arousal"]]
    assert answers.min(axis=None) >= 0
    assert answers.max(axis=None) <= 100
    assert 0.12 < answers.isna().all(axis=1).mean() < 0.18
    assert 0.005 < (answers.isna().sum(axis=1) == 1).mean() < 0.03
    assert not data.drop(columns=answers.columns).isna().any(axis=None)
    usual = data.groupby("person")["stress"].mean()
    assert abs(data["stress"].std() - 1) < 0.1
    assert 0.3 < usual.std() < 0.8
    card = (BUNDLED / "affect.md").read_text(encoding="utf-8")
    for number in (len(data), len(beeps), 20240607):
        assert f"{number:,}" in card or str(number) in card


def test_every_call_gives_a_frame_of_its_own():
    mine = load_affect()
    mine["stress"] = np.nan
    assert load_affect()["stress"].notna().all()
