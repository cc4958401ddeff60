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


@pytest.mark.parametrize("lengths", [[[10]] * 7, [[6, 6]] * 5, [[10]] * 7 + [[4]] * 5])
@pytest.mark.parametrize("max_lanes", [4, 64])
def test_rows_in_order_are_laid_out_as_in_any_order(lengths, max_lanes):
    """Sequences that lie one below the other are copied as a whole, not row by row."""
    shuffled = panel(lengths)
    first = {who: place for place, who in enumerate(shuffled.subjects.tolist())}
    table = shuffled.table.assign(place=shuffled.table["s"].map(first))
    # As in the shuffled table, sequences are numbered by first appearance.
    table["lane"] = shuffled.row_lane
    table = table.sort_values(["place", "lane", "t"])
    ordered = Panel.from_frame(table, "s", time="t", sequence="q")
    assert ordered.in_order
    assert not shuffled.in_order
    one, other = build_layout(ordered, max_lanes), build_layout(shuffled, max_lanes)
    rows = table.index.to_numpy()
    rng = np.random.default_rng(1)
    y, a = rng.standard_normal((2, shuffled.n_rows, 2))
    y[rng.random(y.shape) < 0.2] = np.nan
    seen, listed = ~np.isnan(y), ~np.isnan(y[:, 0])
    cells = rng.integers(0, 3, shuffled.n_rows)
    pattern = np.arange(6.0).reshape(3, 2), np.arange(3.0)[:, None]
    found = one.chunks(y[rows], a[rows], seen[rows], [(cells[rows], *pattern)], [listed[rows]])
    wanted = other.chunks(y, a, seen, [(cells, *pattern)], [listed])
    for made, good in zip(found, wanted, strict=True):
        for part, same in zip(_arrays(made), _arrays(good), strict=True):
            np.testing.assert_array_equal(part, same)
    values = rng.standard_normal((shuffled.n_rows, 3))
    np.testing.assert_array_equal(one.gather(list(one.scatter(values[rows]))), values[rows])
    kinds = {type(slot.places).__name__ for slot in one.slots}
    assert kinds == {"Stacked"} or len(set(shuffled.lane_length.tolist())) > 1
    assert {type(slot.places).__name__ for slot in other.slots} == {"Listed"}


def _arrays(chunk):
    flat = [part for part in chunk if isinstance(part, np.ndarray)]
    return flat + [part for some in (chunk.patterns, chunk.lists) for one in some for part in one]


def test_what_is_missing_or_infinite_is_a_number_in_a_chunk():
    data = Panel.from_lengths(np.zeros((6, 1)), [3, 3])
    y = np.array([[np.nan, 1.0], [np.inf, 2.0], [-np.inf, 3.0], *np.zeros((3, 2))])
    (chunk,) = build_layout(data).chunks(y, y[:, :0], np.ones((6, 1), bool))
    largest = np.finfo(float).max
    np.testing.assert_array_equal(chunk.y[:3, 0, 0], [0.0, largest, -largest])
    assert np.isnan(y[0, 0])
