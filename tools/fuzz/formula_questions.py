"""What the columns of a formula must be, worked out with sets and plain NumPy."""

from __future__ import annotations

import ast
import json
import re
from functools import cache
from itertools import combinations
from random import Random
from typing import Any

import numpy as np
import pandas as pd

import avem
from avem.data.design import Design
from avem.data.formula import parse_formula
from tools.fuzz.case import NotFinite, Wrong

Terms = dict[frozenset[str], None]
"""Sets of atoms that are multiplied, in order."""
_BINDS = {"+": 0, "*": 1, "/": 1, ":": 2, "**": 3}
_FACTORS = ("g", "h", "C(g)", "C(h)")
_MOST_COLUMNS = 60


@cache
def panel() -> Any:
    """Numbers above 0, so that logarithms and roots exist, and factors of three and two levels."""
    rng = np.random.default_rng(1)
    n = 240
    columns = {name: rng.uniform(0.5, 2.0, n).round(3) for name in ("x", "z", "w", "odd name")}
    frame = pd.DataFrame(
        {
            "id": np.repeat(["a", "b", "c", "d"], n // 4),
            **columns,
            "g": rng.choice(["k", "l", "m"], n),
            "h": rng.choice(["no", "yes"], n),
            "b": rng.random(n) < 0.5,
            "y": rng.normal(size=n),
            "v": rng.normal(size=n),
        }
    )
    return avem.Panel.from_frame(frame, "id")


# --- formulas whose terms are known --------------------------------------------------------------


def check_terms(trees: list[Any], layout: int, sure: bool = False) -> None:
    """Raise unless the design of a sum of terms has their columns; if `sure`, it has to."""
    rng = Random(layout)
    said = [tree for tree in trees if tree in ("0", "1", "-1")]
    expected: Terms = {}
    for tree in trees:
        if tree not in said:
            expected |= _terms(tree)
    texts = [_text(tree, 0, rng) for tree in trees]
    text = "y ~ " + rng.choice([" + ", "+", "  +"]).join(texts or ["1"])
    try:
        design = Design.build(parse_formula(text), panel())
        check_columns(design)
    except avem.AvemError as error:
        if sure:
            raise Wrong("a sound formula is refused", text) from error
        raise
    for column in design.terms:
        parts = _parts(column)
        if parts and not any(parts <= term for term in expected):
            raise Wrong("a term that was not written", column, text)
    if "bs(" in text or "poly(" in text:
        return  # of which `check_columns` knows enough
    _check_span(design, expected, intercept=not {"0", "-1"} & set(said), text=text)


def _terms(tree: Any) -> Terms:
    """The terms of R's grammar."""
    if isinstance(tree, str):
        return {frozenset([_label(tree)]): None}
    op, *parts = tree
    if op == "**":
        base, power = list(_terms(parts[0])), parts[1]
        several = [some for n in range(1, power + 1) for some in combinations(base, n)]
        return {frozenset().union(*some): None for some in several}
    found = _terms(parts[0])
    for other in map(_terms, parts[1:]):
        both = {one | two: None for one in found for two in other}
        if op == "/":
            above = frozenset().union(*found)
            both = {above | two: None for two in other}
        found = {"+": found | other, ":": both, "*": found | other | both, "/": found | both}[op]
    return found


def _label(atom: str) -> str:
    """An atom as designs name it."""
    plain = atom.strip("`")
    if plain != atom or atom.isidentifier():
        return plain
    call = f"I({atom[1:-1]})" if atom.startswith("{") else atom
    return ast.unparse(ast.parse(call))


def _text(tree: Any, binds: int, rng: Random) -> str:
    """A tree as it is written, with no fewer parentheses than it needs."""
    if isinstance(tree, str):
        return tree
    op, *parts = tree
    own = _BINDS[op]
    if op == "**":
        text = f"{_text(parts[0], 4, rng)} ** {parts[1]}"
    else:  # from left to right: what follows an operator of the same rank needs parentheses
        sides = [_text(part, own + (i > 0), rng) for i, part in enumerate(parts)]
        text = rng.choice([f" {op} ", op]).join(sides)
    return f"({text})" if own < binds or rng.random() < 0.1 else text


def _check_span(design: Any, expected: Terms, intercept: bool, text: str) -> None:
    """Raise unless columns span what the terms, with every level of every factor, span."""
    full = [np.ones((panel().n_rows, 1))] if intercept else []
    for term in expected:
        block = np.ones((panel().n_rows, 1))
        for atom in sorted(term):
            values = _all_levels(atom)
            with np.errstate(all="ignore"):
                block = (block[:, :, None] * values[:, None, :]).reshape(len(block), -1)
        full.append(block)
    wanted = np.hstack(full) if full else np.zeros((panel().n_rows, 0))
    if wanted.shape[1] > _MOST_COLUMNS or not np.isfinite(wanted).all():
        return
    found = design.apply(panel()).A[:, list(design.x_cols)]
    ranks = [_rank(some) for some in (found, wanted, np.hstack([found, wanted]))]
    if len(set(ranks)) > 1:
        raise Wrong("span", ranks, design.terms, text)


def _rank(columns: np.ndarray) -> int:
    sizes = np.linalg.norm(columns, axis=0)
    unit = columns[:, sizes > 0] / sizes[sizes > 0]
    return int((np.linalg.svd(unit, compute_uv=False) > 1e-9).sum()) if unit.size else 0


def _all_levels(atom: str) -> np.ndarray:
    """(rows, columns) of an atom: an indicator of every level of a factor, or its values."""
    if atom not in _FACTORS:
        return _value(atom)[:, None]
    values = panel().table[atom.strip("C()")]
    return np.column_stack([values == level for level in sorted(values.unique())]).astype(float)


# --- any formula ---------------------------------------------------------------------------------


def garble(text: str, how: str, at: float, piece: str) -> str:
    """The text with one error of typing."""
    tokens = re.findall(r"\w+|`[^`]*`|\*\*|\s+|.", text, re.DOTALL) or [""]
    i = int(at * len(tokens))
    if how == "insert":
        tokens.insert(i, piece)
    elif how == "delete":
        del tokens[i]
    elif how == "replace":
        tokens[i] = piece
    elif how == "swap":
        tokens[i - 1], tokens[i] = tokens[i], tokens[i - 1]
    else:
        tokens[i] *= 2
    return "".join(tokens)


def check_text(text: str, use: str) -> None:
    """Raise unless the formula is refused, or its columns are what their names say."""
    if use == "design":
        check_columns(Design.build(parse_formula(text), panel()))
    elif use == "model":
        repr(avem.MixedHMM(text, 2))
    elif use == "ssm":
        repr(avem.MixedSSM(text, 1, subject="id"))
    elif use in ("rates", "stays"):
        given: dict[str, Any] = {"transition": avem.rates(text)}
        if use == "stays":
            given = {"duration": avem.Duration("negative_binomial", text)}
        repr(avem.MixedHMM("y ~ 1", 2, **given))
    else:
        given = {use: text}
        repr(avem.MixedHMM("y ~ 1", 2, **given))


def check_columns(design: Any) -> None:
    """Raise unless every column is what its name says, and the design comes back from a file."""
    found = design.apply(panel()).A
    if not np.isfinite(found).all():
        raise NotFinite("design")
    again = Design.from_state(json.loads(json.dumps(design.state)))
    if again.columns != design.columns or not np.array_equal(again.apply(panel()).A, found):
        raise Wrong("another design from its state", design.formula.text)
    for label, values in zip(design.columns, found.T, strict=True):
        if "bs(" in label or "poly(" in label:
            _check_basis(label, values)
            continue
        known = _column(label)
        lagged = "lag(" in label
        known = np.where(np.isfinite(known), known, 0.0) if lagged else known
        if not np.allclose(known, values, rtol=1e-9, atol=1e-12):
            raise Wrong("column", label, design.formula.text)


def _check_basis(label: str, values: np.ndarray) -> None:
    """Raise unless a column of one basis alone is what its kind has: shares, or polynomials."""
    found = re.fullmatch(r"(bs|poly)\((\w), (?:df=)?(\d+)\)\[(\d+)\]", label)
    if found is None:
        return
    x, size = panel().table[found[2]].to_numpy(float), int(found[3])
    if found[1] == "bs":
        if values.min() < -1e-12 or values.max() > 1 + 1e-12:
            raise Wrong("spline", label)
        return
    powers = np.vander(x - x.mean(), size + 1)
    left = values - powers @ np.linalg.lstsq(powers, values, rcond=None)[0]
    if np.abs(left).max() > 1e-8 or abs(values.sum()) > 1e-8:
        raise Wrong("polynomial", label)


def _column(label: str) -> np.ndarray:
    """The values that a column's name promises."""
    found = np.ones(panel().n_rows)
    for part in label.split(":") if label != "Intercept" else ():
        name, _, level = part.partition("[")
        if level:
            values = panel().table[name.removeprefix("C(").removesuffix(")")]
            found = found * (values.astype(str) == level[:-1])
        else:
            found = found * _value(part)
    return found


def _parts(label: str) -> frozenset[str]:
    return frozenset(p.partition("[")[0] for p in label.split(":")) - {"Intercept"}


def _value(atom: str) -> np.ndarray:
    """An atom's values, by Python's own reading of it."""
    table = panel().table
    if atom in table:
        return table[atom].to_numpy(float)
    names = {name: table[name].to_numpy(float) for name in table if table[name].dtype.kind in "fb"}
    tree = ast.fix_missing_locations(_InFloats().visit(ast.parse(atom, mode="eval")))
    with np.errstate(all="ignore"):
        found = eval(compile(tree, "<atom>", "eval"), {"__builtins__": {}, **_FUNCTIONS, **names})
    return np.broadcast_to(np.asarray(found, float), (len(table),))


class _InFloats(ast.NodeTransformer):
    """Whole numbers and comparisons are floating point in a formula: 2 ** -1, -(x > 1)."""

    def visit_Constant(self, node: ast.Constant) -> ast.expr:
        return _called("float64", node)

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        return _called("float64", self.generic_visit(node))


def _called(name: str, argument: Any) -> ast.expr:
    return ast.Call(ast.Name(name, ast.Load()), [argument], [])


def _lag(values: np.ndarray, back: float = 1) -> np.ndarray:
    back = int(back)
    found = np.full(len(values), np.nan)
    each = len(values) // 4
    for start in range(0, len(values), each):
        found[start + back : start + each] = values[start : start + max(0, each - back)]
    return found


_NUMPY = ("log", "log1p", "log2", "log10", "exp", "expm1", "sqrt", "sin", "cos", "tanh", "abs")
_FUNCTIONS = {
    **{name: getattr(np, name) for name in (*_NUMPY, "float64")},
    "I": lambda x: x,
    "offset": lambda x: x,
    "lag": _lag,
    "center": lambda x: x - x.mean(),
    "scale": lambda x: (x - x.mean()) / x.std(),
    "standardize": lambda x: (x - x.mean()) / x.std(),
}
