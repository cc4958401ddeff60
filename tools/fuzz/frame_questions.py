"""What is asked of a table, and what is known of the answer."""

from __future__ import annotations

import math
import warnings
from functools import cache
from itertools import pairwise
from typing import Any

import narwhals as nw
import numpy as np
import pandas as pd

import avem
from avem.data.design import Design
from avem.data.formula import parse_formula
from tools.fuzz.case import NotFinite, Wrong

_SHAPES = ((4, 8), (3, 10), (6, 5))
_MODELS = (
    lambda: avem.MixedHMM("y ~ 1 + (1 | id)", 2),
    lambda: avem.MixedHMM("y ~ x + (1 | id)", 2),
    lambda: avem.MixedHMM("y + z ~ g + (1 | id)", 2),
    lambda: avem.MixedHMM("n ~ 1", 2, "poisson"),
    lambda: avem.MixedHMM("b ~ 1", 2, "bernoulli"),
    lambda: avem.MixedSSM(["y", "z"], 1, subject="id"),
    lambda: avem.MixedHMM(
        "y ~ x + offset(z) + (1 | id)", 2, constraints=["coef[0, 'x'] == 0"], priors="weak"
    ),
    lambda: avem.MixedHMM("y ~ 1 + (1 | id)", 2, known="k"),
    lambda: avem.MixedHMM("y ~ 1 + (1 | id)", 2, time_scale="continuous"),
    lambda: avem.MixedHMM("y ~ 1", 2, transition=avem.rates(moves=[(0, 1)], event="e")),
    lambda: avem.MixedHMM("y ~ 1", 2, duration="shifted_poisson"),
    lambda: avem.MixedHMM("y ~ 1 + (1 | id)", 2, n_clusters=2),
    lambda: avem.MixedSSM(["y", "z"], 1, subject="id", time_scale="continuous"),
)
_FEW_ROWS = 500


def sound(shape: int = 0) -> pd.DataFrame:
    """A table that nothing is wrong with; day splits each subject's rows into two sequences."""
    n_subjects, n_times = _SHAPES[shape]
    rng = np.random.default_rng(shape)
    n = n_subjects * n_times
    time = np.tile(np.arange(n_times), n_subjects)
    return pd.DataFrame(
        {
            "id": np.repeat([f"s{i}" for i in range(n_subjects)], n_times),
            "time": time,
            "day": np.where(time < n_times // 2, "mon", "tue"),
            "y": 4.0 * (time // 2 % 2) + rng.normal(size=n).round(3),
            "z": rng.normal(size=n).round(3),
            "x": rng.normal(size=n).round(3),
            "g": rng.permutation(np.resize(["a", "b", "c"], n)),
            "n": rng.poisson(3 + 5 * (time // 2 % 2)),
            "b": rng.permutation(np.resize([True, False], n)),
            "t": (time + 0.5 * rng.random(n)).round(3),
            "w": np.repeat(1.0 + np.arange(n_subjects), n_times),
            "k": np.where(time == 2, "0", np.where(time == 3, "0|1", "")),
            "e": time == n_times - 1,
        }
    )


def put(frame: pd.DataFrame, name: str, rows: list[int], value: Any) -> pd.DataFrame:
    """The table with one value in some rows of a column."""
    values = frame[name].astype(object).tolist()
    for row in rows:
        if row < len(values):
            values[row] = value
    found = pd.Series(values, index=frame.index, dtype=object)
    # As pandas reads them where it can; otherwise they stay Python's.
    return frame.assign(**{name: found.infer_objects()})


def make_panel(arrays: Any, lengths: Any, times: int) -> None:
    """Panels that are not made from tables."""
    panel = avem.Panel.from_arrays([np.zeros((times, 2)), arrays])
    if panel.n_subjects != 2:
        raise Wrong("arrays")
    avem.Panel.from_lengths(arrays, lengths)


# --- reading -------------------------------------------------------------------------------------


def read(frame: Any, subject: Any, time: Any, sequence: Any) -> None:
    """The table as a panel, its gaps, and the design of a formula."""
    panel = avem.Panel.from_frame(frame, subject, time, sequence)
    repr(panel)
    if panel.n_rows <= _FEW_ROWS:
        _check_order(panel, _lists(frame), subject, time, sequence)
    _check_gaps(panel)
    design = Design.build(parse_formula("y ~ x + g"), panel)
    _check_design(design, panel)


def _lists(frame: Any) -> dict[Any, list[Any]]:
    """The columns as lists, by another way than avem's."""
    frame = nw.to_native(frame, pass_through=True)
    if not isinstance(frame, pd.DataFrame):
        columns = nw.from_native(frame, eager_only=True)
        return {name: _comparable(columns[name]) for name in columns.columns}
    columns = {name: pd.Series(frame[name]) for name in frame.columns}
    return {
        name: (values.cat.codes if _is_categorical(values) else values).tolist()
        for name, values in columns.items()
    }


def _comparable(values: Any) -> list[Any]:
    """Dates as whole numbers, which Python's own dates would round; intervals as pairs."""
    if values.dtype in (nw.Datetime, nw.Duration):
        values = values.cast(nw.Int64)
    found = values.to_list()
    return [tuple(one.values()) if isinstance(one, dict) else one for one in found]


def _is_categorical(values: pd.Series) -> bool:
    return isinstance(values.dtype, pd.CategoricalDtype)


def _check_order(panel: Any, lists: dict, subject: Any, time: Any, sequence: Any) -> None:
    """Raise unless rows of one subject and sequence are together, and in the order of time."""
    if subject not in lists:
        return  # one that is missing, which names a column without a name
    lanes: dict[Any, list[int]] = {}
    owners: dict[Any, set[int]] = {}
    for row, who in enumerate(lists[subject]):
        key = (who, None if sequence is None else lists[sequence][row])
        lanes.setdefault(key, []).append(row)
        owners.setdefault(who, set()).add(int(panel.row_subject[row]))
    if len(owners) != panel.n_subjects or any(len(numbers) > 1 for numbers in owners.values()):
        raise Wrong("subjects", panel.subjects, owners)
    if len(lanes) != panel.n_lanes:
        raise Wrong("sequences", len(lanes), panel.n_lanes)
    for rows in lanes.values():
        if len(set(panel.row_lane[rows].tolist())) > 1:
            raise Wrong("rows of a sequence", rows)
        steps = sorted(rows, key=lambda row: panel.row_step[row])
        if sorted(panel.row_step[rows].tolist()) != list(range(len(rows))):
            raise Wrong("steps", panel.row_step[rows])
        if time is None:
            right = steps == rows
        else:
            times = [lists[time][row] for row in steps]
            right = all(one < two for one, two in pairwise(times))
        if not right:
            raise Wrong("order in time", steps)


def _check_gaps(panel: Any) -> None:
    """Raise unless filling gaps leaves none."""
    n_gaps, step = panel.gaps()
    if not n_gaps or not isinstance(step, int):
        return
    full = panel.fill_gaps(step)
    if full.gaps()[0] or full.n_rows <= panel.n_rows:
        raise Wrong("gaps", full.gaps())


def _check_design(design: Any, panel: Any) -> None:
    """Raise unless numbers are those of the table."""
    made = design.apply(panel)
    if not np.isfinite(made.A).all() or np.isinf(made.Y).any():
        raise NotFinite("design")
    seen = ~np.isnan(made.Y[:, 0])
    for name, found in (("y", made.Y[:, 0]), ("x", _column(design, made.A, "x"))):
        values = panel.table[name].tolist()
        if found is None:
            continue
        for row in np.flatnonzero(seen)[:_FEW_ROWS]:
            if not math.isclose(float(values[row]), found[row], rel_tol=1e-6):
                raise Wrong(f"column {name}", values[row], found[row])


def _column(design: Any, A: np.ndarray, name: str) -> np.ndarray | None:
    return A[:, design.columns.index(name)] if name in design.columns else None


# --- movement ------------------------------------------------------------------------------------


def walk(frame: Any, time: Any, sequence: Any, **options: Any) -> None:
    """Steps and turns of positions in x and y."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", avem.AvemWarning)  # times that are not equally far apart
        made = avem.steps_and_turns(frame, "id", time=time, sequence=sequence, **options)
    found = nw.from_native(made, eager_only=True, pass_through=False)
    if len(found) != n_rows(frame):
        raise Wrong("number of rows")
    for name, least, most in (("step", 0.0, np.inf), ("angle", -np.pi, np.pi)):
        values = found[name].to_numpy().astype(float)
        values = values[~np.isnan(values)]
        if np.isinf(values).any() or ((values < least) | (values > most)).any():
            raise NotFinite(name, values)


# --- fitting -------------------------------------------------------------------------------------


def fit(
    frame: Any,
    model: int,
    time: Any,
    sequence: Any,
    max_iter: int,
    weights: Any,
    kind: str,
    missing: str,
) -> None:
    """A short fit; what it says of every row."""
    made = _MODELS[model]()
    subject = None if made._group else "id"
    options = {"n_starts": 1, "max_iter": max_iter, "refine": None, "missing": missing}
    options |= {} if weights is None else {"weights": weights, "weights_kind": kind}
    found = made.fit(frame, subject=subject, time=time, sequence=sequence, **options)
    numbers = {"bound": found.bound, **found.params, "effects": found.effects_mean}
    for name, value in numbers.items():
        check_finite(name, value)
    str(found.summary(errors=False))
    if isinstance(nw.from_native(frame, pass_through=True), nw.LazyFrame):
        rows = found.decode() if isinstance(found, avem.HMMFit) else found.states()
        for answer in (found.effects(), rows):
            answer.head()
        return
    _check_rows(found, None, frame)


def check_finite(name: str, value: Any) -> None:
    if not np.isfinite(np.asarray(value, dtype=float)).all():
        raise NotFinite(name, value)


def _check_rows(found: Any, data: Any, frame: Any) -> None:
    """Raise unless there is something sound for every row of the frame."""
    if found.kind == "ssm":
        states = nw.from_native(found.states(data), eager_only=True)
        check_finite("states", states.to_numpy())
        if len(states) != n_rows(frame):
            raise Wrong("number of states")
        return
    path = nw.from_native(found.decode(data), series_only=True)
    if len(path) != n_rows(frame) or not set(path.to_list()) <= {0, 1}:
        raise Wrong("path", path.to_list()[:10])
    chances = nw.from_native(found.state_probabilities(data), eager_only=True).to_numpy()
    check_finite("probabilities", chances)
    if len(chances) != len(path) or np.abs(chances.sum(axis=1) - 1).max() > 1e-6:
        raise Wrong("probabilities")


def n_rows(frame: Any) -> int:
    return len(nw.from_native(frame, eager_only=True))


# --- new data ------------------------------------------------------------------------------------


@cache
def known(model: int) -> Any:
    """A fit of sound data."""
    made = _MODELS[model]()
    subject = None if made._group else "id"
    options = {"n_starts": 1, "max_iter": 5, "refine": None}
    return made.fit(sound(), subject=subject, time="time", **options)


def ask(frame: Any, question: int) -> None:
    """What a fit of sound data says of other rows."""
    found = known((1, 2, 5)[question % 3])
    if question < 3:
        _check_rows(found, frame, frame)
    elif question < 5:
        ahead = found.predict(frame, horizon=2)
        check_finite("forecast", nw.from_native(ahead, eager_only=True)["mean"].to_numpy())
    elif question == 5:
        check_finite("score", found.score(frame))
    elif question == 6:
        found.infer_effects(frame)
    else:
        found.simulate(frame, seed=1)
