"""Tables of any sort: read as a panel, fitted, or given to a fit as new data."""

from __future__ import annotations

from random import Random

from tools.fuzz import odd
from tools.fuzz.case import Case

_BEFORE = """\
import datetime
from decimal import Decimal
from fractions import Fraction
import avem, narwhals as nw, numpy as np, pandas as pd, polars as pl, pyarrow as pa
from tools.fuzz.frame_questions import ask, fit, make_panel, put, read, sound, walk
from tools.fuzz.row_questions import scan, watch
"""
_COLUMNS = (
    *("id", "id", "time", "time", "day", "y", "y", "y", "x", "x", "g", "z", "n", "b"),
    *("t", "w", "k", "e"),
)
_USUAL, _RARE = list(range(6)), list(range(6, 13))  # models, by number
_DTYPES = (
    *("pl.Categorical", "pl.Float32", "pl.Int8", "pl.UInt64", "pl.Decimal(20, 3)", "pl.String"),
    *("pl.Boolean", "pl.Date", "pl.Binary", "pl.Object", "pl.Null", "pl.Duration", "pl.Time"),
    *("pl.List(pl.Float64)", "pl.Datetime('ms', 'UTC')"),
)


def make(rng: Random, number: int) -> Case:
    """A sound table, spoilt in a few ways, and a question about it."""
    edits = [_edit(rng) for _ in range(rng.choice([0, 1, 1, 1, 2, 2, 3, 6]))]
    if rng.random() < 0.25:
        edits += _another_kind(rng)
    before = f"{_BEFORE}frame = sound({rng.choice([0, 0, 1, 2])})"
    return Case("frames", number, before, tuple(edits), _question(rng))


def _question(rng: Random) -> str:
    time, sequence = rng.choice(["'time'"] * 8 + ["None", "None", "'x'", "'y'"]), "None"
    if rng.random() < 0.35:
        sequence = rng.choice(["'day'"] * 6 + ["'g'", "'b'", "'id'"])
    if rng.random() < 0.04:
        time, sequence = odd.value(rng), odd.value(rng)
    which = rng.random()
    if which < 0.06:
        how = rng.choice(["kind='projected'"] * 3 + ["kind='lonlat'", "kind='lonlat', unit='m'"])
        gap = rng.choice(["None", "None", "2", "'2h'", odd.number(rng), odd.value(rng)])
        return f"walk(frame, {time}, {sequence}, max_gap={gap}, {how})"
    if which < 0.55:
        subject = rng.choice(["'id'"] * 8 + ["'g'", "'b'", "'n'", odd.value(rng)])
        return f"read(frame, {subject}, {time}, {sequence})"
    if which < 0.6:
        return f"make_panel({odd.value(rng)}, {odd.value(rng)}, {rng.randint(0, 5)})"
    if which < 0.8:
        model = rng.choice(_USUAL * 3 + _RARE)
        weights = rng.choice(["None"] * 6 + ["'w'", "'y'", "'b'"])
        kind, missing = rng.choice(["survey", "frequency"]), rng.choice(["error", "carry"])
        more = f"weights={weights}, kind={kind!r}, missing={missing!r}"
        return f"fit(frame, {model}, {time}, {sequence}, {rng.randint(2, 5)}, {more})"
    if which < 0.86:
        return f"watch(frame, {rng.randrange(3)}, {rng.choice(['None', odd.value(rng)])})"
    if which < 0.9:
        return f"scan(frame, 'id', {time}, {sequence})"
    return f"ask(frame, {rng.randrange(8)})"


def _edit(rng: Random) -> str:
    name, other = repr(rng.choice(_COLUMNS)), repr(rng.choice(_COLUMNS))
    rows = odd.places(rng)
    makers = [
        lambda: f"frame = put(frame, {name}, {rows}, {odd.value(rng)})",
        lambda: f"frame = put(frame, {name}, {rows}, {odd.value(rng)})",
        lambda: f"frame = put(frame, {name}, {rows}, {odd.number(rng)})",
        lambda: f"frame[{name}] = frame[{name}].mask(frame.index % {rng.randint(1, 5)} == 0)",
        lambda: f"frame[{name}] = {odd.value(rng)}",
        lambda: f"frame[{name}] = [{odd.value(rng)}] * len(frame)",
        lambda: f"frame[{name}] = frame[{name}].astype({rng.choice(odd.DTYPES)!r})",
        lambda: f"frame[{name}] = frame[{name}].astype({rng.choice(odd.DTYPES)!r})",
        lambda: f"frame[{name}] = frame[{name}] * {odd.number(rng)}",
        lambda: f"frame[{name}] = frame[{name}] + {odd.number(rng)}",
        lambda: f"frame[{name}] = frame[{name}] ** {rng.randint(-3, 9)}",
        lambda: f"frame[{name}] = frame[{other}]",
        lambda: f"frame[{name}] = {_times(rng)}",
        lambda: f"frame['time'] = {_times(rng)}",
        lambda: f"frame[{name}] = {_categories(rng, name)}",
        lambda: f"frame = {_rows(rng, name)}",
        lambda: f"frame = {_rows(rng, name)}",
        lambda: f"frame = frame.rename(columns={{{name}: {rng.choice(odd.NAMES)}}})",
        lambda: f"frame[{rng.choice(odd.NAMES)}] = frame[{name}]",
        lambda: f"frame = frame.drop(columns={name})",
        lambda: f"frame = {_index(rng, name)}",
    ]
    return rng.choice(makers)()


def _times(rng: Random) -> str:
    """As many times as there are rows."""
    zone = rng.choice(["None", "'UTC'", "'Europe/Berlin'", "'America/St_Johns'"])
    unit = rng.choice(["h", "min", "D", "ME", "s", "ns"])
    dates = f"pd.date_range('2024-03-30', periods=len(frame), freq={unit!r}, tz={zone})"
    shape = rng.choice(["{}", "{:03d}", "day {}", "2024-01-{:02d}", "{:02d}.01.2024", "{:e}"])
    return rng.choice(
        [
            dates,
            f"{dates}.astype(str)",
            f"{dates}.to_period({rng.choice('DMY')!r})",
            f"{dates}.time",
            f"{dates}.as_unit({rng.choice(['s', 'ms', 'us'])!r})",
            f"[{shape!r}.format(i) for i in range(len(frame))]",
            f"np.arange(len(frame)) // {rng.randint(1, 9)}",
            f"np.arange(len(frame)) * {odd.number(rng)}",
            f"np.arange(len(frame), dtype={rng.choice(['uint8', 'int8', 'uint64', 'float16'])!r})",
            f"np.arange(len(frame))[::-1] + {odd.number(rng)}",
            "pd.to_timedelta(np.arange(len(frame)), unit='s')",
            "pd.interval_range(0, len(frame))",
            "pd.array(range(len(frame)), dtype='Int64')",
        ]
    )


def _categories(rng: Random, name: str) -> str:
    ordered = rng.choice(["True", "False"])
    return rng.choice(
        [
            f"pd.Categorical(frame[{name}], ordered={ordered})",
            f"pd.Categorical(frame[{name}], categories=list(frame[{name}].unique())[::-1], "
            f"ordered={ordered})",
            f"pd.Categorical(frame[{name}], categories=[*frame[{name}].unique(), 'more'])",
            f"pd.Categorical(frame[{name}], categories=frame[{name}].unique()[:1])",
            f"pd.cut(frame['x'], {rng.randint(1, 4)})",
            f"frame[{name}].astype(str).astype('category')",
        ]
    )


def _rows(rng: Random, name: str) -> str:
    """Other rows, or the same in another order."""
    many = rng.choice([3, 40, 300])
    return rng.choice(
        [
            f"frame.sample(frac=1, random_state={rng.randint(0, 99)})",
            f"frame.iloc[{rng.choice(['::-1', '::2', ':0', ':1', ':2', '3:'])}]",
            f"frame.drop_duplicates({name})",
            "pd.concat([frame, frame])",
            "pd.concat([frame, frame], ignore_index=True)",
            "frame.loc[frame.index.repeat(2)]",
            f"pd.concat([frame.assign(id=frame['id'] + str(i)) for i in range({many})])",
            f"pd.concat([frame.assign(day=str(i)) for i in range({many})], ignore_index=True)",
            f"frame.assign(id=np.arange(len(frame)) // {rng.choice([1, 2, 7])})",
            "frame.assign(day=np.arange(len(frame)))",
            "frame[[]]",
            f"frame[[{name}]]",
            f"frame.sort_values({name})",
            f"frame.groupby('id').head({rng.randint(1, 3)})",
        ]
    )


def _index(rng: Random, name: str) -> str:
    return rng.choice(
        [
            f"frame.set_index({name})",
            f"frame.set_index({name}, drop=False)",
            f"frame.set_index(['id', {name}], drop=False)",
            "frame.set_index(np.zeros(len(frame)))",
            "frame.set_axis(pd.MultiIndex.from_product([frame.columns, ['a']]), axis=1)",
            f"frame.set_axis([{name}] * frame.shape[1], axis=1)",
            f"pd.concat([frame, frame[[{name}]]], axis=1)",
            "frame.rename_axis(columns='what')",
            "frame.T",
            "frame.convert_dtypes()",
            "frame.convert_dtypes(dtype_backend='pyarrow')",
        ]
    )


def _another_kind(rng: Random) -> list[str]:
    """The table as another kind of frame, with what only that kind has."""
    name = repr(rng.choice(_COLUMNS))
    dtype = rng.choice(_DTYPES)
    polars = "frame = pl.from_pandas(frame)"
    return rng.choice(
        [
            [polars],
            [polars, f"frame = frame.with_columns(pl.col({name}).cast({dtype}, strict=False))"],
            [polars, f"frame = frame.with_columns(pl.lit(None).alias({name}))"],
            [polars, f"frame = frame.with_columns(pl.struct('x', 'y').alias({name}))"],
            [polars, f"frame = frame.with_columns(pl.lit({odd.number(rng)}).alias({name}))"],
            [polars, "frame = frame.lazy()"],
            [polars, "frame = frame[:0]"],
            ["frame = pa.Table.from_pandas(frame)"],
            ["frame = pa.Table.from_pandas(frame, preserve_index=False)"],
            ["frame = nw.from_native(frame)"],
            [polars, "frame = nw.from_native(frame)"],
            ["frame = frame.to_dict('list')"],
            ["frame = frame.to_numpy()"],
            [f"frame = frame[{name}]"],
            [f"frame = {odd.value(rng)}"],
        ]
    )
