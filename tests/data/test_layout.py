"""The layout: a bijection between rows and cells, without much padding on odd panels."""

import numpy as np
import pandas as pd
import pytest

from avem.data import Panel
from avem.data.layout import build_layout

pytestmark = pytest.mark.usefixtures("own_shapes")


def panel(lengths_of_subjects):
    """One list of sequence lengths per subject, rows shuffled."""
    rows = [
        (subject, sequence, t)
        for subject, lengths in enumerate(lengths_of_subjects)
        for sequence, length in enumerate(lengths)
        for t in range(length)
    ]
    frame = pd.DataFrame(rows, columns=["s", "q", "t"]).sample(frac=1.0, random_state=0)
    return Panel.from_frame(frame, "s", time="t", sequence="q")


RNG = np.random.default_rng(0)
PANELS = {
    "even": [[10]] * 7,
    "sessions": [[3, 1], [5], [2, 2, 2], [1]],
    "long tail": [[int(length)] for length in 3 + RNG.pareto(1.0, 400) * 5],
    "one very long": [[20]] * 300 + [[3000]],
    "many sessions": [[4]] * 300 + [[4] * 150, [4] * 150],
}


@pytest.mark.parametrize("name", PANELS)
@pytest.mark.parametrize("max_lanes", [4, 64, 1024])
def test_rows_survive_the_round_trip(name, max_lanes):
    data = panel(PANELS[name])
    layout = build_layout(data, max_lanes)
    values = np.arange(2.0 * data.n_rows).reshape(-1, 2)
    np.testing.assert_array_equal(layout.gather(list(layout.scatter(values))), values)
    of_subjects = np.arange(3.0 * data.n_subjects).reshape(3, -1)
    np.testing.assert_array_equal(layout.join(list(layout.split(of_subjects))), of_subjects)
    together = sorted(int(s) for slot in layout.slots for s in slot.subjects)
    assert together == list(range(data.n_subjects))


@pytest.mark.parametrize("name", PANELS)
def test_each_lane_is_one_sequence_of_its_owner(name):
    data = panel(PANELS[name])
    layout = build_layout(data, 64)
    subject = data.row_subject[:, None].astype(float)
    for slot, cells in zip(layout.slots, layout.scatter(subject + 1), strict=True):
        for lane in range(slot.shape[1]):
            inside = cells[:, 0, lane]
            seen = inside[inside > 0] - 1
            if len(seen):
                assert (seen == slot.subjects[slot.owner[lane]]).all()
                assert (inside[: len(seen)] > 0).all()  # no holes
        if slot.shape[1] == slot.shape[2]:
            assert (slot.owner == np.arange(slot.shape[2])).all()


@pytest.mark.parametrize(("name", "most"), [("long tail", 2.5), ("one very long", 2.0)])
def test_padding_stays_small(name, most, monkeypatch):
    monkeypatch.setattr("avem.data.layout._BUCKET_PRICE", 100)
    data = panel(PANELS[name])
    layout = build_layout(data, 1024)
    cells = sum(slot.shape[0] * slot.shape[1] for slot in layout.slots)
    longest = int(data.lane_length.max())
    assert cells < most * data.n_rows + 8 * longest  # there are at least eight lanes


def test_few_chunks_for_subjects_with_many_sequences():
    layout = build_layout(panel(PANELS["many sessions"]), 160)
    assert len(layout.slots) <= 6


def test_as_many_lanes_as_subjects_only_where_everyone_has_one():
    layout = build_layout(panel([[5, 5]] * 3 + [[5]]))  # seven lanes, four subjects
    _, lanes, subjects = layout.slots[0].shape
    assert lanes > subjects
    layout = build_layout(panel([[5]] * 4))
    assert layout.slots[0].shape[1] == layout.slots[0].shape[2]


@pytest.mark.parametrize(
    ("first", "second"), [((97, 41), (100, 43)), ((6, 20), (7, 21)), ((40, 200), (39, 195))]
)
def test_similar_sizes_share_a_shape(first, second):
    one, two = (build_layout(panel([[t]] * n)) for n, t in (first, second))
    assert one.slots[0].shape == two.slots[0].shape
