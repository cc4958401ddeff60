"""Saved fits and monitors that were damaged by accident or on purpose."""

from __future__ import annotations

from random import Random

from tools.fuzz import odd
from tools.fuzz.case import Case

_BEFORE = """\
from tools.fuzz.damage import *
from tools.fuzz.file_questions import check, saved
"""
KINDS = (
    *("gaussian", "choice", "labels", "movement", "moving", "by_state", "types", "ssm"),
    *("held", "marked", "clock", "stays", "ssm_clock"),
    *("monitor", "monitor_clock", "monitor_stays", "monitor_types"),
)
_JSON = odd.words(
    """
None; True; False; 0; 1; -1; 2; 3; 7; 1.5; -0.0; 1e308; 5e-324; float('nan'); float('inf'); 10**9;
10**30; 10**120; -(2**63); ''; 'x'; 'y'; 'who'; 'gaussian'; 'hmm'; 'ssm'; '~ 1'; 'y ~ x'; 'full';
'y ~ 1 + (1 | who)'; 'x' * 100000; '\\x00'; '\\ud800'; '__class__'; '../../x'; []; [[]]; [1, 2];
['x']; [None] * 50; {}; {'a': 1}; [0.0] * 100000; {'model': {}}; nested(19); nested(100000)
"""
)
_NUMBERS = [
    "np.nan",
    "np.inf",
    "-np.inf",
    "0.0",
    "-1.0",
    "1e300",
    "-1e300",
    "5e-324",
    "1e75",
    "0.5",
]
_SHAPES = ["(-1,)", "(1, -1)", "(0,)", "(-1, 1, 1)"]
_PIECES = [*"{}[],:", "NaN", "1e999"]
_HEADERS = [
    "'<f8' '|O' ",
    "'<f8' '<f4' ",
    "'<f8' '>f8' ",
    "'<f8' '<U2' ",
    "'<f8' '<M8[ns]' ",
    "False True ",
    "( (1, ",
    "( (-1, ",
    "2 4000000000 ",
    "2 3 ",
    "shape shpae ",
    "descr __import__ ",
    ", } , 'x': 1} ",
    "'<f8' '<f8,<f8' ",
]


def make(rng: Random, number: int) -> Case:
    """The file of a fit of some kind, with damage."""
    kind = rng.choice(KINDS)
    outside = rng.random() < 0.35  # of bytes alone: the archive's own checks are not made right
    edit = of_bytes if outside else of_contents
    edits = [edit(rng) for _ in range(rng.choice([1, 1, 1, 2, 4]))]
    if rng.random() < 0.01:
        edits.append(f"data = of_zeros(data, {rng.random():.6f}, {10**8})")
    before = f"{_BEFORE}data = saved({kind!r})"
    after = f"check(data, {kind!r}, same={outside}, thorough={rng.random() < 0.1})"
    return Case("files", number, before, tuple(edits), after)


def of_bytes(rng: Random) -> str:
    """Damage that the archive's own checks may find."""
    at, length = f"{rng.random():.6f}", rng.choice([1, 1, 2, 4, 16, 300])
    return rng.choice(
        [
            f"data = flip(data, {at}, {rng.randrange(8)})",
            f"data = flip(data, {at}, {rng.randrange(8)})",
            f"data = flip(data, {1 - rng.random() / 10:.6f}, {rng.randrange(8)})",
            f"data = write(data, {at}, {rng.randbytes(length)!r})",
            f"data = insert(data, {at}, {rng.randbytes(length)!r})",
            f"data = remove(data, {at}, {length})",
            f"data = data[: int({at} * len(data))]",
            f"data = data[int({at} * len(data)) :]",
            f"data = data + {rng.randbytes(length)!r}",
            "data = data + data",
            f"data = copy_part(data, {at}, {rng.random():.6f}, {length})",
        ]
    )


def of_contents(rng: Random) -> str:
    """Damage after which the archive is made sound again."""
    at, where = f"{rng.random():.6f}", f"{rng.random():.6f}"
    value = rng.choice(_JSON)
    headers = rng.choice(_HEADERS)
    old, new = headers.strip().split(" ", 1)
    return rng.choice(
        [
            *[f"data = in_json(data, {at}, {value})"] * 5,
            f"data = in_json(data, {at}, {odd.number(rng)})",
            f"data = rename_key(data, {at}, {rng.choice(['x', '', 'model', 'format'])!r})",
            f"data = without_key(data, {at})",
            f"data = garble_json(data, {at}, {rng.choice(_PIECES)!r})",
            *[f"data = in_array(data, {at}, {where}, {rng.choice(_NUMBERS)})"] * 3,
            *[f"data = in_header(data, {at}, {old!r}, {new!r})"] * 2,
            f"data = reshaped(data, {at}, {rng.choice(_SHAPES)})",
            f"data = without_member(data, {at})",
            f"data = swapped(data, {at}, {where})",
            f"data = renamed(data, {at}, {rng.choice(['x', '../x', '/etc/x', 'fit.json', ''])!r})",
            f"data = cut_member(data, {at}, {where})",
            f"data = twice(data, {at})",
            f"data = packed(data, {rng.choice([0, 8, 12, 14])})",
            f"data = of_zeros(data, {at}, {10**5})",
        ]
    )
