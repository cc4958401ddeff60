"""Functions and arithmetic inside formulas: compiled, checked, evaluated; nothing is ever run."""

import ast
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from avem.data.bases import BASES, HOW, OPTIONS, Basis, read_basis
from avem.data.terms import Term, expand
from avem.data.tokens import (
    AVAILABLE,
    CLOSE,
    FUNCTIONS,
    MOMENTS,
    OPEN,
    OPERATORS,
    TRANSFORMS,
    Token,
    join,
    tokenize,
)
from avem.errors import ModelError, did_you_mean

_MAX_DEPTH = 100  # beyond is a mistake, or meant to exhaust the stack

_MAX_LAG = 1_000_000


@dataclass(frozen=True)
class Atom:
    """One column of terms: a data column, or an expression of data columns."""

    label: str
    columns: tuple[str, ...]
    tree: ast.expr | None = None  # None for a plain data column; else column i is the name _i

    @property
    def key(self) -> str:
        """What no other atom is called: its label with every column in backquotes."""
        if self.tree is None:
            return f"`{self.label}`"
        return _with_names(self.tree, [f"`{name}`" for name in self.columns])

    def calls(self, *names: str) -> Iterator[tuple[str, str, str]]:
        """Yield (label, function, column) for each call of these functions, which take a column."""
        for node in ast.walk(self.tree) if self.tree else ():
            if isinstance(node, ast.Call) and _name(node.func) in names:
                column_name = self.columns[int(_name(node.args[0])[1:])]
                yield f"{_name(node.func)}({column_name})", _name(node.func), column_name

    @property
    def lagged(self) -> frozenset[str]:
        """The columns that occur only inside lag()."""
        if self.tree is None:
            return frozenset()
        inside = [id(n.args[0]) for n in ast.walk(self.tree) if _is_lag(n)]  # type: ignore[attr-defined]
        names = [n for n in ast.walk(self.tree) if _name(n).startswith("_")]
        now = {_name(n) for n in names if id(n) not in inside}
        return frozenset(self.columns[int(_name(n)[1:])] for n in names if _name(n) not in now)

    @property
    def furthest_back(self) -> int:
        """How many rows the longest lag() goes back."""
        calls = [node for node in ast.walk(self.tree) if _is_lag(node)] if self.tree else []
        steps = [call.args[1].value if len(call.args) > 1 else 1 for call in calls]  # type: ignore[attr-defined]
        return max(steps, default=0)

    @property
    def basis(self) -> Basis | None:
        """The columns that bs() or poly() makes of it; None where it is one column."""
        node = self.tree
        if isinstance(node, ast.Call) and _name(node.func) in BASES:
            return read_basis(node, _name(node.func))
        return None

    @property
    def is_categorical(self) -> bool:
        """Whether it is C(column)."""
        return isinstance(self.tree, ast.Call) and _name(self.tree.func) == "C"


def _name(node: ast.AST) -> str:
    return node.id if isinstance(node, ast.Name) else ""


def _is_lag(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and _name(node.func) == "lag"


def compile_side(side: str) -> tuple[tuple[Term, ...], dict[str, Atom]]:
    """Return the terms of a side, made of labels, and the atoms of these labels."""
    tokens, parts, atoms, i = tokenize(side), [], {}, 0
    while i < len(tokens):
        token, following = tokens[i], tokens[i + 1 : i + 2]
        before = tokens[i - 1] if i else Token("op", "+")
        if (token.kind != "op" or token.is_op(*OPEN)) and (
            before.kind != "op" or before.is_op(*CLOSE)
        ):
            raise ModelError(f"An operator is missing before '{token}' in {side!r}.")
        if token.is_op("{") or (token.kind == "name" and following and following[0].is_op("(")):
            stop = _closing(tokens, i if token.is_op("{") else i + 1)
            atom = _expression(tokens[i : stop + 1])
            i = stop
        elif token.kind in ("name", "quoted"):
            atom = Atom(token.text, (token.text,))
        else:
            if token.is_op("|", "||", "}", "==", "!=", "<", "<=", ">", ">=", ",", "="):
                raise ModelError(f"'{token}' in {side!r} is only allowed inside a function.")
            parts.append(token)
            i += 1
            continue
        add_atom(atoms, atom, side)
        parts.append(Token("quoted", atom.label))
        i += 1
    return expand(parts, side), atoms


def compile_offset(text: str) -> Atom:
    """Return the expression that a formula adds to its linear predictor."""
    return _expression(tokenize(f"I({text})"))


def add_atom(atoms: dict[str, Atom], atom: Atom, where: str) -> None:
    """Add an atom, or say that another one has its label."""
    known = atoms.setdefault(atom.label, atom)
    if known.key != atom.key:
        kinds = "a column and a function" if None in (known.tree, atom.tree) else "two functions"
        raise ModelError(f"{atom.label!r} is both {kinds} in {where!r}; rename a column.")


def _closing(tokens: list[Token], start: int) -> int:
    depth = 0
    for i in range(start, len(tokens)):
        depth += tokens[i].is_op(*OPEN) - tokens[i].is_op(*CLOSE)
        if depth == 0:
            return i
    raise ModelError(f"'{join(tokens[start:])}' is not closed.")


def _expression(tokens: list[Token]) -> Atom:
    """Return the atom of a call such as log(x + 1) or {x ** 2}, checked node by node."""
    columns: dict[str, int] = {}
    python = []
    for token, following in zip(tokens, [*tokens[1:], None], strict=True):
        if token.kind == "name" and following is not None and following.is_op("("):
            if token.text == "offset":
                raise ModelError(
                    f"offset() in '{join(tokens)}' is inside another term. It is a term of its "
                    "own: y ~ x + offset(log(hours))."
                )
            if token.text not in TRANSFORMS:
                raise ModelError(
                    f"{token.text}() is not available in a formula. Available: {AVAILABLE}."
                    f"{did_you_mean(token.text, TRANSFORMS)}"
                )
            python.append(token.text)
        elif token.kind == "name" and following is not None and following.is_op("="):
            if token.text not in OPTIONS:
                raise _unreadable(tokens, f"'{token.text} =' names no option")
            python.append(token.text)
        elif token.kind in ("name", "quoted"):
            python.append(f"_{columns.setdefault(token.text, len(columns))}")
        elif token.kind == "number":
            python.append(_number(token.text))
        else:
            python.append({"{": "I(", "}": ")"}.get(token.text, token.text))
    depths = np.cumsum([token.is_op(*OPEN) - token.is_op(*CLOSE) for token in tokens])
    if depths.max() > _MAX_DEPTH:
        raise _unreadable(tokens, "it is nested too deeply")
    try:
        tree = ast.parse(" ".join(python), mode="eval").body
        _check(tree)
    except _NotAllowed as error:
        raise _unreadable(tokens, str(error)) from None
    except SyntaxError:
        reason = "a column, an operator or an argument is missing or one too many"
        raise _unreadable(tokens, reason) from None
    except (RecursionError, MemoryError):
        raise _unreadable(tokens, "it is nested too deeply") from None
    names = tuple(columns)
    if not names:
        raise ModelError(
            f"'{join(tokens)}' names no column: it is the same in every row, as the intercept is. "
            "Leave it out, or write 1."
        )
    return Atom(_with_names(tree, names), names, tree)


def _with_names(tree: ast.expr, names: Sequence[str]) -> str:
    """The text of a tree, with these names for its columns."""
    return re.sub(r"\b_(\d+)\b", lambda match: names[int(match[1])], ast.unparse(tree))


def _number(text: str) -> str:
    """A number as Python writes it; its own text may have zeros in front."""
    if not np.isfinite(float(text)):
        raise ModelError(f"The number {text[:20]}... in the formula is too large.")
    return text.lstrip("0") or "0" if text.isdecimal() else repr(float(text))


def _unreadable(tokens: list[Token], reason: str) -> ModelError:
    shown = join(tokens)
    shown = shown if len(shown) <= 200 else f"{shown[:200]}..."
    return ModelError(
        f"Cannot read '{shown}' in the formula: {reason}. Functions take one argument; "
        f"arithmetic is + - * / ** and comparisons. Functions: {AVAILABLE}."
    )


class _NotAllowed(Exception):
    pass


def _check(node: ast.expr, depth: int = 0) -> None:
    """Raise unless the tree is made only of what `evaluate` knows."""
    if depth > _MAX_DEPTH:
        raise _NotAllowed("it is nested too deeply")
    match node:
        case ast.Call(func=ast.Name(id="lag"), args=[ast.Name(), *steps], keywords=[]):
            whole = [isinstance(s, ast.Constant) and type(s.value) is int for s in steps]
            if (
                len(steps) > 1 or not all(whole) or any(not 1 <= s.value <= _MAX_LAG for s in steps)  # type: ignore[attr-defined]
            ):
                raise _NotAllowed(
                    "lag() takes a column and how many rows to go back, a whole number from 1 to "
                    f"{_MAX_LAG:,}"
                )
            parts: list[ast.expr] = []
        case ast.Call(func=ast.Name(id="lag")):
            raise _NotAllowed("lag() takes a column name")
        case ast.Call(func=ast.Name(id=name)) if name in BASES:
            if depth > 0:
                raise _NotAllowed(f"{name}() makes several columns, and cannot be inside another")
            if read_basis(node, name) is None:
                raise _NotAllowed(HOW[name])
            parts = []
        case ast.Call(func=ast.Name(id=name), args=[argument], keywords=[]) if name in TRANSFORMS:
            if name in (*MOMENTS, "C") and not isinstance(argument, ast.Name):
                raise _NotAllowed(f"{name}() takes a column name")
            if name == "C" and depth > 0:
                raise _NotAllowed("C() cannot be inside another function")
            parts = [argument]
        case ast.Constant(value=int() | float()) | ast.Name():
            parts = []
        case _:
            parts = _operation(node)[1]
    for part in parts:
        _check(part, depth + 1)


def _operation(node: ast.expr) -> tuple[type, list[ast.expr]]:
    """Return the operator of an arithmetic node, and what it acts on."""
    match node:
        case ast.BinOp(left=left, op=op, right=right) if type(op) in OPERATORS:
            return type(op), [left, right]
        case ast.UnaryOp(op=op, operand=operand) if type(op) in OPERATORS:
            return type(op), [operand]
        case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in OPERATORS:
            return type(op), [left, right]
        case ast.Call(func=ast.Name(id=name)) if name in TRANSFORMS:
            raise _NotAllowed(f"{name}() takes one argument")
        case ast.Compare():
            raise _NotAllowed("comparisons take two sides: (x > 1) * (x < 2), not 1 < x < 2")
        case _:
            raise _NotAllowed("only columns, numbers, functions and arithmetic can stand there")


Lag = Callable[[np.ndarray, int], np.ndarray]
"""(column, rows to go back) -> the values then, NaN where there is no such row."""


def evaluate(
    node: ast.expr,
    atom: Atom,
    data: Mapping[str, np.ndarray],
    moments: Mapping[str, list[float]],
    lag: Lag,
) -> Any:
    """Return the value of a checked tree on float columns."""
    match node:
        case ast.Call(func=ast.Name(id="lag"), args=[argument, *steps]):
            back = steps[0].value if steps else 1  # type: ignore[attr-defined]
            return lag(evaluate(argument, atom, data, moments, lag), back)
        case ast.Name(id=name):
            return data[atom.columns[int(name[1:])]]
        case ast.Constant(value=value):
            return np.float64(value)  # type: ignore[arg-type]  # whole numbers could grow forever
        case ast.Call(func=ast.Name(id=name), args=[argument]):
            value = evaluate(argument, atom, data, moments, lag)
            if name not in MOMENTS:
                return FUNCTIONS[name](np.asarray(value, dtype=np.float64))
            mean, sd = moments[f"{name}({atom.columns[int(_name(argument)[1:])]})"]
            return (value - mean) / sd
        case _:
            op, parts = _operation(node)
            found = [np.asarray(evaluate(part, atom, data, moments, lag), float) for part in parts]
            return OPERATORS[op](*found)
