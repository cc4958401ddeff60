"""Formulas to design matrices, lme4 style: "y1 + y2 ~ x + scale(age) + (1 + x | mouse)".

A formula may come from a stranger's saved fit, so it must never run code. Three walls:

1. Only the tokens of `_TOKEN` exist: no dots, quotes, brackets or keywords.
2. Functions and arithmetic are evaluated here, by `_evaluate`, which knows `TRANSFORMS` and a few
   operators and nothing else. The formulae package sees ready columns, never a call.
3. formulae gets an empty environment and only backquoted column names.
"""

import ast
import operator
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from formulae import design_matrices
from formulae.environment import Environment

from avem.data.frames import column, examples, numbers
from avem.data.panel import Panel
from avem.errors import DataError, ModelError

_FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    **{f.__name__: f for f in (np.log, np.log1p, np.log2, np.log10, np.exp, np.expm1, np.sqrt)},
    **{f.__name__: f for f in (np.sin, np.cos, np.tanh)},
    "abs": np.abs,
    "I": lambda x: x,
}
_MOMENTS = ("center", "scale", "standardize")
TRANSFORMS = (*_FUNCTIONS, *_MOMENTS, "C")
"""The functions a formula may use. C makes a column categorical; I shields arithmetic."""

_OPERATORS: dict[type, Callable[..., Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: operator.pow,
    ast.UAdd: operator.pos,
    ast.USub: operator.neg,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_TOKEN = re.compile(
    r"\s*(?:(?P<name>[^\W\d]\w*)|`(?P<quoted>[^`]+)`|(?P<number>\d+(?:\.\d*)?|\.\d+)"
    r"|(?P<op>\*\*|\|\||==|!=|<=|>=|[-+*/:|~(){}<>]))\s*"
)
_OPEN, _CLOSE = ("(", "{"), (")", "}")
_MAX_LENGTH, _MAX_DEPTH = 10_000, 100  # beyond is a mistake, or meant to exhaust the parser
_MAX_LEVELS = 1000  # a column with more is an identifier, not a covariate


@dataclass(frozen=True)
class _Token:
    kind: str  # "name" (of a column or transform), "quoted" (surely a column), "number" or "op"
    text: str

    def __str__(self) -> str:
        return f"`{self.text}`" if self.kind == "quoted" else self.text

    def is_op(self, *texts: str) -> bool:
        return self.kind == "op" and self.text in texts


def _tokens(text: str) -> list[_Token]:
    found, at = [], 0
    if len(text) > _MAX_LENGTH:
        raise ModelError(f"The formula has {len(text)} characters; at most {_MAX_LENGTH} are read.")
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None or match.lastgroup is None:
            raise ModelError(
                f"Cannot read {text[at : at + 10].strip()!r} in the formula {text!r}. A formula "
                f"holds column names, numbers, + - * / : ** ( | ) and the functions {_available()}"
                ". Put other column names in backquotes: `reaction time`."
            )
        found.append(_Token(match.lastgroup, match[match.lastgroup]))
        at = match.end()
    return found


def _available() -> str:
    return ", ".join(TRANSFORMS)


def _join(tokens: list[_Token]) -> str:
    """Return tokens as text that reads well and gives the same tokens back."""
    text = " ".join(str(token) for token in tokens)
    return re.sub(r"(?<=[\w`]) (?=\()|(?<=[({]) | (?=[)}])", "", text)


@dataclass(frozen=True)
class Formula:
    """A formula taken apart; make one with `parse_formula`.

    Attributes
    ----------
    text : str
        The formula as it was written.
    outcomes : tuple of str
        Column names left of the tilde; empty for a one-sided formula.
    fixed : str
        The right side without its group terms; "1" when there was nothing else.
    groups : tuple of (effects, group)
        For each `(effects | group)`: the text of its effects, and the grouping column.
    """

    text: str
    outcomes: tuple[str, ...]
    fixed: str
    groups: tuple[tuple[str, str], ...]


def parse_formula(text: str) -> Formula:
    """Return the parts of a formula such as "y ~ x + (1 + x | mouse)" or, one-sided, "~ x".

    Right-hand names are columns or one of `TRANSFORMS`; anything else is refused.
    """
    if not isinstance(text, str):
        raise ModelError(f"The formula is a {type(text).__name__}; text such as 'y ~ x' is wanted.")
    tokens = _tokens(text)
    tildes = [i for i, token in enumerate(tokens) if token.is_op("~")]
    if len(tildes) != 1:
        raise ModelError(
            f"The formula {text!r} has {len(tildes)} tildes; one is wanted, as in 'y ~ x'."
        )
    outcomes = _outcomes(tokens[: tildes[0]], text)
    fixed: list[_Token] = []
    groups: list[tuple[str, str]] = []
    for sign, term in _split_terms(tokens[tildes[0] + 1 :], text):
        if not any(token.is_op("|", "||") for token in term):
            fixed += [_Token("op", sign), *term] if fixed or sign == "-" else term
        elif sign == "-":
            raise ModelError(f"A group term cannot be taken away: '- {_join(term)}' in {text!r}.")
        else:
            groups.append(_group_term(term, text))
    if len({group for _, group in groups}) > 1:
        raise ModelError(
            f"The formula {text!r} groups by {examples(dict.fromkeys(g for _, g in groups))}; "
            "all group terms must name the same column, the subject."
        )
    formula = Formula(text, outcomes, _join(fixed) or "1", tuple(groups))
    for side in (formula.fixed, *(effects for effects, _ in groups)):
        _compile(side)  # refuse here, before any data are seen
    return formula


def _outcomes(tokens: list[_Token], text: str) -> tuple[str, ...]:
    names = [token.text for token in tokens[::2]]
    shape = all(
        token.is_op("+") if i % 2 else token.kind in ("name", "quoted")
        for i, token in enumerate(tokens)
    )
    if not shape or (tokens and len(tokens) % 2 == 0):
        raise ModelError(
            f"The left side of {text!r} is '{_join(tokens)}'; column names joined by + are wanted. "
            "Compute a transformed outcome as a column first."
        )
    if len(set(names)) < len(names):
        raise ModelError(f"The left side of {text!r} names an outcome twice.")
    return tuple(names)


def _split_terms(tokens: list[_Token], text: str) -> Iterator[tuple[str, list[_Token]]]:
    """Yield (sign, tokens) for each term of a sum, split outside all parentheses."""
    sign, term, open_ones = "+", [], []
    for i, token in enumerate([*tokens, _Token("op", "+")]):
        if token.is_op(*_OPEN):
            open_ones.append(token.text)
        elif token.is_op(*_CLOSE) and (
            not open_ones or _OPEN.index(open_ones.pop()) != _CLOSE.index(token.text)
        ):
            raise ModelError(f"A closing '{token.text}' has no partner in {text!r}.")
        if open_ones or not token.is_op("+", "-"):
            term.append(token)
            continue
        if term:
            yield sign, term
        elif i == len(tokens) or (i > 0 and (sign, token.text) != ("+", "-")):  # "x + -1" is fine
            raise ModelError(f"A term is missing in {text!r}. For only an intercept write ~ 1.")
        sign, term = token.text, []
    if open_ones:
        raise ModelError(f"A '{open_ones[-1]}' is not closed in {text!r}.")


def _group_term(term: list[_Token], text: str) -> tuple[str, str]:
    """Return (effects, group) of the tokens of one `(effects | group)`."""
    shown = _join(term)
    if any(token.is_op("||") for token in term):
        raise ModelError(
            f"'||' in {shown} is not supported. For independent effects write separate terms: "
            "(1 | g) + (0 + x | g)."
        )
    bar = next(i for i, token in enumerate(term) if token.is_op("|"))
    inner, group = term[1:bar], term[bar + 1 : -1]
    depth = sum(token.is_op(*_OPEN) - token.is_op(*_CLOSE) for token in inner)
    if not (term[0].is_op("(") and term[-1].is_op(")") and inner) or depth:
        raise ModelError(
            f"Cannot read the group term '{shown}' in {text!r}; write it on its own, in "
            "parentheses: (1 + x | subject)."
        )
    if len(group) != 1 or group[0].kind not in ("name", "quoted"):
        raise ModelError(
            f"'{_join(group)}' in {shown} is not supported as a group; one column name is wanted, "
            "as in (1 + x | subject). Nested (a/b) and crossed (a:b) groups are not available."
        )
    return _join(inner), group[0].text


@dataclass(frozen=True)
class _Atom:
    """One column handed to formulae: a data column, or an expression of data columns."""

    label: str
    columns: tuple[str, ...]
    tree: ast.expr | None = None  # None for a plain data column; else column i is the name _i

    def calls(self, *names: str) -> Iterator[tuple[str, str, str]]:
        """Yield (label, function, column) for each call of these functions, which take a column."""
        for node in ast.walk(self.tree) if self.tree else ():
            if isinstance(node, ast.Call) and _name(node.func) in names:
                column_name = self.columns[int(_name(node.args[0])[1:])]
                yield f"{_name(node.func)}({column_name})", _name(node.func), column_name

    @property
    def is_categorical(self) -> bool:
        return isinstance(self.tree, ast.Call) and _name(self.tree.func) == "C"


def _name(node: ast.AST) -> str:
    return node.id if isinstance(node, ast.Name) else ""


def _compile(side: str) -> tuple[str, dict[str, _Atom]]:
    """Return the text for formulae, where every atom is a backquoted column, and the atoms."""
    tokens, text, atoms, i = _tokens(side), [], {}, 0
    while i < len(tokens):
        token, following = tokens[i], tokens[i + 1 : i + 2]
        before = tokens[i - 1] if i else _Token("op", "+")
        if (token.kind != "op" or token.is_op(*_OPEN)) and (
            before.kind != "op" or before.is_op(*_CLOSE)
        ):
            raise ModelError(f"An operator is missing before '{token}' in {side!r}.")
        if token.is_op("{") or (token.kind == "name" and following and following[0].is_op("(")):
            stop = _closing(tokens, i if token.is_op("{") else i + 1)
            atom = _expression(tokens[i : stop + 1])
            i = stop
        elif token.kind in ("name", "quoted"):
            atom = _Atom(token.text, (token.text,))
        else:
            allowed = "23456" if before.is_op("**") else "01"
            if token.kind == "number" and token.text not in allowed:
                raise ModelError(
                    f"The number {token.text} in {side!r} stands outside a function. Write "
                    "arithmetic inside I(), as in I(x / 2)."
                )
            if token.is_op("**") and not before.is_op(")"):
                raise ModelError(f"'**' in {side!r} would mean interactions; write I(x ** 2).")
            if token.is_op("|", "||", "}", "==", "!=", "<", "<=", ">", ">="):
                raise ModelError(f"'{token}' in {side!r} is only allowed inside I().")
            text.append(token.text)
            i += 1
            continue
        known = atoms.setdefault(atom.label, atom)
        if (known.tree is None) != (atom.tree is None):
            raise ModelError(f"{atom.label!r} is both a column and a function in {side!r}; rename.")
        text.append(f"`{atom.label}`")
        i += 1
    return " ".join(text), atoms


def _closing(tokens: list[_Token], start: int) -> int:
    depth = 0
    for i in range(start, len(tokens)):
        depth += tokens[i].is_op(*_OPEN) - tokens[i].is_op(*_CLOSE)
        if depth == 0:
            return i
    raise ModelError(f"'{_join(tokens[start:])}' is not closed.")


def _expression(tokens: list[_Token]) -> _Atom:
    """Return the atom of a call such as log(x + 1) or {x ** 2}, checked node by node."""
    columns: dict[str, int] = {}
    python = []
    for token, following in zip(tokens, [*tokens[1:], None], strict=True):
        if token.kind == "name" and following is not None and following.is_op("("):
            if token.text not in TRANSFORMS:
                raise ModelError(
                    f"{token.text}() is not available in a formula. Available: {_available()}."
                )
            python.append(token.text)
        elif token.kind in ("name", "quoted"):
            python.append(f"_{columns.setdefault(token.text, len(columns))}")
        else:
            python.append({"{": "I(", "}": ")"}.get(token.text, token.text))
    try:
        tree = ast.parse(" ".join(python), mode="eval").body
        _check(tree)
    except (SyntaxError, RecursionError, MemoryError, OverflowError, _NotAllowed) as error:
        raise ModelError(
            f"Cannot read '{_join(tokens)}' in the formula ({error}). Functions take one argument; "
            f"arithmetic is + - * / ** and comparisons. Functions: {_available()}."
        ) from None
    names = tuple(columns)
    label = re.sub(r"\b_(\d+)\b", lambda match: names[int(match[1])], ast.unparse(tree))
    return _Atom(label, names, tree)


class _NotAllowed(Exception):
    pass


def _check(node: ast.expr, depth: int = 0) -> None:
    """Raise unless the tree is made only of what `_evaluate` knows."""
    if depth > _MAX_DEPTH:
        raise _NotAllowed("it is nested too deeply")
    match node:
        case ast.Call(func=ast.Name(id=name), args=[argument], keywords=[]) if name in TRANSFORMS:
            if name in (*_MOMENTS, "C") and not isinstance(argument, ast.Name):
                raise _NotAllowed(f"{name}() takes a column name")
            if name == "C" and depth > 0:
                raise _NotAllowed("C() cannot be inside another function")
            parts: list[ast.expr] = [argument]
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            parts = [left, right]
        case ast.UnaryOp(op=op, operand=operand) if type(op) in _OPERATORS:
            parts = [operand]
        case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _OPERATORS:
            parts = [left, right]
        case ast.Constant(value=int() | float() as value):
            float(value)  # overflows here rather than in _evaluate
            parts = []
        case ast.Name():
            parts = []
        case _:
            raise _NotAllowed(f"{type(node).__name__} is not allowed")
    for part in parts:
        _check(part, depth + 1)


def _evaluate(
    node: ast.expr, atom: _Atom, data: Mapping[str, np.ndarray], moments: Mapping[str, list[float]]
) -> Any:
    """Return the value of a checked tree on float columns."""
    match node:
        case ast.Name(id=name):
            return data[atom.columns[int(name[1:])]]
        case ast.Constant(value=value):
            return np.float64(value)  # type: ignore[arg-type]  # whole numbers could grow forever
        case ast.BinOp(left=left, op=op, right=right):
            parts = [left, right]
        case ast.UnaryOp(op=op, operand=operand):
            parts = [operand]
        case ast.Compare(left=left, ops=[op], comparators=[right]):
            parts = [left, right]
        case ast.Call(func=ast.Name(id=name), args=[argument]):
            value = _evaluate(argument, atom, data, moments)
            if name not in _MOMENTS:
                return _FUNCTIONS[name](np.asarray(value, dtype=np.float64))
            mean, sd = moments[f"{name}({atom.columns[int(_name(argument)[1:])]})"]
            return (value - mean) / sd
        case _:
            raise _NotAllowed(type(node).__name__)
    values = [np.asarray(_evaluate(part, atom, data, moments), dtype=np.float64) for part in parts]
    return _OPERATORS[type(op)](*values)


@dataclass(frozen=True, eq=False)
class DesignData:
    """A design's numbers in panel row order: Y (rows, p) with NaN where missing, A (rows, a)."""

    Y: np.ndarray
    A: np.ndarray


@dataclass(frozen=True, eq=False)
class Design:
    """How to turn a panel into outcomes and covariates, with everything learned from the data.

    Attributes
    ----------
    formula : Formula
    outcomes : tuple of str
    terms, effect_terms : tuple of str
        Names of the fixed columns (m,) and of the effect columns (mz,).
    effect_blocks : tuple of int
        For each effect column, which group term it came from.
    columns : tuple of str
        Names of the columns of A. A column used by both sides is there once.
    x_cols, z_cols : tuple of int
        Which columns of A are the fixed ones and the effect ones.
    state : dict
        Formula, levels of categorical columns, and mean and sd of centred and scaled ones: goes
        through JSON, and `Design.from_state` gives the same design back.
    """

    formula: Formula
    outcomes: tuple[str, ...]
    terms: tuple[str, ...]
    effect_terms: tuple[str, ...]
    effect_blocks: tuple[int, ...]
    columns: tuple[str, ...]
    x_cols: tuple[int, ...]
    z_cols: tuple[int, ...]
    state: dict[str, Any]
    _sides: tuple[tuple[str, dict[str, _Atom]], ...] = field(repr=False)

    @classmethod
    def build(cls, formula: Formula, panel: Panel) -> "Design":
        """Return the design of a formula, its levels, means and sds learned from `panel`.

        Text and categorical columns become indicators, the first level being the reference where
        the intercept is present: ordered categoricals keep their order, others are sorted, and
        levels that do not occur are left out. Booleans are the numbers 0 and 1; wrap them in C()
        for levels. Scaling divides by the root mean square deviation (n, not n - 1).
        """
        for _, group in formula.groups[:1]:
            if group != panel.subject:
                raise ModelError(
                    f"The formula groups by {group!r}, but the panel's subject column is "
                    f"{panel.subject!r}. They must be the same."
                )
        levels: dict[str, list[Any]] = {}
        moments: dict[str, list[float]] = {}
        for _, atoms in _compile_sides(formula):
            for atom in atoms.values():
                for name in atom.columns:
                    values = column(panel.table, name, f"a covariate in {formula.text!r}")
                    if atom.is_categorical or (atom.tree is None and numbers(values) is None):
                        levels[atom.label] = _levels(values, atom.label)
                for label, function, name in atom.calls(*_MOMENTS):
                    moments[label] = _learn_moments(
                        column(panel.table, name, label), function, label
                    )
        return cls.from_state({"formula": formula.text, "levels": levels, "moments": moments})

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> "Design":
        """Return the design that `state` describes; the state may come from a stranger's file."""
        _check_state(state)
        formula = parse_formula(state["formula"])
        sides = _compile_sides(formula)
        keys: list[tuple[str, str]] = []  # by term and label, which together fix the values
        cols: list[tuple[int, ...]] = []
        for text, atoms in sides:
            one_row = {label: _placeholder(atom, state) for label, atom in atoms.items()}
            found = _matrix(text, pd.DataFrame(one_row, index=range(1)))[1]
            keys += [key for key in found if key not in keys]
            cols.append(tuple(keys.index(key) for key in found))
        z_cols = tuple(col for block in cols[1:] for col in block)
        names = tuple(label for _, label in keys)
        twice = [names[col] for col in dict.fromkeys(z_cols) if z_cols.count(col) > 1]
        if twice:
            raise ModelError(
                f"The effect {twice[0]!r} is in two group terms of {formula.text!r}. An intercept "
                "is implied: to leave it out of one, write (0 + x | subject)."
            )
        if not all(cols[1:]):
            raise ModelError(f"A group term of {formula.text!r} has no effects.")
        return cls(
            formula,
            formula.outcomes,
            tuple(names[col] for col in cols[0]),
            tuple(names[col] for col in z_cols),
            tuple(block for block, found in enumerate(cols[1:]) for _ in found),
            names,
            cols[0],
            z_cols,
            dict(state),
            sides,
        )

    def apply(
        self, panel: Panel, outcomes: bool = True, needed: np.ndarray | None = None
    ) -> DesignData:
        """Return the outcomes and design columns of a panel, in its row order.

        Parameters
        ----------
        panel : Panel
            The training panel or a new one.
        outcomes : bool
            With False the outcomes are not read and Y is all NaN: for data without them.
        needed : (rows,) bool array, optional
            The rows whose covariates are used, where a missing one is an error. By default those
            with an observed outcome, or all rows when there are no outcomes to look at. Elsewhere
            a missing covariate makes its columns 0.
        """
        Y = np.full((panel.n_rows, len(self.outcomes)), np.nan)
        if outcomes:
            for j, name in enumerate(self.outcomes):
                Y[:, j] = _outcome(panel, name)
        if needed is None:
            known = outcomes and len(self.outcomes) > 0
            needed = np.asarray(~np.isnan(Y).all(axis=1)) if known else np.ones(panel.n_rows, bool)
        A = np.empty((panel.n_rows, len(self.columns)))
        ready: dict[str, tuple[Any, np.ndarray]] = {}
        done: set[tuple[str, str]] = set()
        for text, atoms in self._sides:
            for label in atoms.keys() - ready.keys():
                ready[label] = _values(atoms[label], panel, self.state, needed)
            frame = pd.DataFrame({label: ready[label][0] for label in atoms}, panel.table.index)
            matrix, keys, uses = _matrix(text, frame)
            for j, key in enumerate(keys):
                if key in done:
                    continue
                for label in uses[j]:
                    matrix[ready[label][1], j] = 0
                A[:, len(done)] = matrix[:, j]
                done.add(key)
        return DesignData(Y, A)


def _compile_sides(formula: Formula) -> tuple[tuple[str, dict[str, _Atom]], ...]:
    return tuple(_compile(s) for s in (formula.fixed, *(effects for effects, _ in formula.groups)))


def _matrix(
    text: str, frame: pd.DataFrame
) -> tuple[np.ndarray, list[tuple[str, str]], list[set[str]]]:
    """Return the matrix of ready columns, with each column's (term, label) and what it uses."""
    nothing: Any = Environment([])  # declared as an int, but an Environment is taken as it is
    try:
        made = design_matrices(text, frame, na_action="pass", env=nothing)
    except Exception as error:  # formulae raises many kinds, bare Exception among them
        raise ModelError(f"Cannot make a design from '{text}': {error}") from error
    if made.common is None:
        return np.empty((len(frame), 0)), [], []
    keys, uses = [], []
    for name, term in made.common.terms.items():
        keys += [(name, label) for label in term.labels]
        uses += [term.var_names] * len(term.labels)
    matrix = np.array(made.common.design_matrix, dtype=np.float64)
    if len(made.common.terms) != len(made.model.common_terms) or matrix.shape != (
        len(frame),
        len(keys),
    ):
        raise ModelError(f"Two terms of '{text}' have the same name. Rename a column.")
    return matrix, keys, uses


def _placeholder(atom: _Atom, state: Mapping[str, Any]) -> Any:
    """Return one row that makes formulae name the columns as it will on real data."""
    absent = [label for label, *_ in atom.calls(*_MOMENTS) if label not in state["moments"]]
    if absent or (atom.is_categorical and atom.label not in state["levels"]):
        raise ModelError(f"The saved design lacks what it learned for {atom.label!r}.")
    levels = state["levels"].get(atom.label)
    return np.zeros(1) if levels is None else pd.Categorical(levels[:1], levels, ordered=True)


def _check_state(state: Mapping[str, Any]) -> None:
    """Raise unless a saved state has the shape that `Design.build` gives it."""
    try:
        good = isinstance(state["formula"], str)
        for levels in state["levels"].values():
            good &= isinstance(levels, list) and len(set(levels)) == len(levels) > 0
            good &= all(isinstance(level, str | int | float) for level in levels)
        for mean, sd in state["moments"].values():
            good &= bool(np.isfinite([mean, sd]).all()) and sd > 0
    except (KeyError, TypeError, ValueError, AttributeError):
        good = False
    if not good:
        raise ModelError("The saved design is damaged: formula, levels and moments are wanted.")


def _levels(values: pd.Series, label: str) -> list[Any]:
    """Return the levels that occur, as plain Python values, in the order of their columns."""
    found = values.dropna().unique()
    levels = [level.item() if isinstance(level, np.generic) else level for level in found]
    if not all(isinstance(level, str | int | float) for level in levels):
        raise DataError(
            f"The covariate {label!r} is {values.dtype}; numbers, booleans, text or categories are "
            "wanted. Convert dates to numbers first."
        )
    if not 2 <= len(levels) <= _MAX_LEVELS:
        raise DataError(
            f"The categorical covariate {label!r} has {len(levels)} level(s); from 2 to "
            f"{_MAX_LEVELS} are wanted. Drop it from the formula."
        )
    if isinstance(values.dtype, pd.CategoricalDtype) and values.dtype.ordered:
        return [level for level in values.dtype.categories.tolist() if level in set(levels)]
    try:
        return sorted(levels)
    except TypeError:
        raise DataError(f"The covariate {label!r} mixes numbers and text. Make it one.") from None


def _learn_moments(values: pd.Series, function: str, label: str) -> list[float]:
    """Return [mean, divisor] of a column, over the rows where it is known."""
    array = _numeric(values, label)
    array = array[np.isfinite(array)]
    if not len(array):
        raise DataError(f"The column of {label} has no values.")
    mean, sd = float(array.mean()), float(array.std()) if function != "center" else 1.0
    if sd <= 1e-12 * max(abs(mean), np.finfo(float).tiny):  # rounding leaves a constant some sd
        raise DataError(f"The column of {label} is constant, so it cannot be scaled. Drop it.")
    return [mean, sd]


def _numeric(values: pd.Series, use: str) -> np.ndarray:
    array = numbers(values)
    if array is None:
        raise DataError(
            f"Column {values.name!r} is {values.dtype}, but {use} needs numbers. "
            f"Use the column on its own or as C({values.name}) if it is categorical."
        )
    return array


def _outcome(panel: Panel, name: str) -> np.ndarray:
    values = column(panel.table, name, "an outcome")
    array = numbers(values)
    if array is None:
        raise DataError(
            f"The outcome {name!r} is {values.dtype}; numbers or booleans are wanted. Text "
            "outcomes are not for this family: code them as numbers first."
        )
    if np.isinf(array).any():
        raise DataError(
            f"The outcome {name!r} is infinite at {panel.source.name_rows(np.isinf(array))}. Use "
            "a missing value where there is no measurement."
        )
    return array


def _values(
    atom: _Atom, panel: Panel, state: Mapping[str, Any], needed: np.ndarray
) -> tuple[Any, np.ndarray]:
    """Return an atom's values with every gap filled by something harmless, and where gaps were."""
    table, levels = panel.table, state["levels"].get(atom.label)
    use = "a covariate" if atom.tree is None else atom.label
    series = {name: column(table, name, use) for name in atom.columns}
    if levels is not None:
        (values,) = series.values()
        codes = _level_codes(values, levels, atom.label)
        gap = codes < 0
        _refuse_gaps(panel, str(values.name), "missing", gap & needed)
        return pd.Categorical.from_codes(np.where(gap, 0, codes), levels, ordered=True), gap
    data = {name: _numeric(values, use) for name, values in series.items()}
    gap = np.zeros(panel.n_rows, dtype=bool)
    for name, array in data.items():
        _refuse_gaps(panel, name, "missing", np.isnan(array) & needed)
        _refuse_gaps(panel, name, "infinite", np.isinf(array) & needed)
        gap |= ~np.isfinite(array)
    if atom.tree is None:
        return np.where(gap, 0.0, data[atom.label]), gap
    with np.errstate(all="ignore"):
        result = _evaluate(atom.tree, atom, data, state["moments"])
    array = np.broadcast_to(np.asarray(result, dtype=np.float64), (panel.n_rows,))
    gap = gap | ~np.isfinite(array)
    _refuse_gaps(panel, atom.label, "not a finite number", gap & needed)
    return np.where(gap, 0.0, array), gap


def _level_codes(values: pd.Series, levels: list[Any], label: str) -> np.ndarray:
    """Return (rows,) the number of each row's level, -1 where missing."""
    codes, found = pd.factorize(values)
    number = {level: i for i, level in enumerate(levels)}
    unseen = [level for level in found.tolist() if level not in number]
    if unseen:
        raise DataError(
            f"The covariate {label!r} has levels that the design does not know: "
            f"{examples(unseen)}. It knows {examples(levels)}."
        )
    # The extra entry at the end is what code -1, missing, picks up.
    return np.array([*(number[level] for level in found.tolist()), -1])[codes]


def _refuse_gaps(panel: Panel, name: str, what: str, gap: np.ndarray) -> None:
    if gap.any():
        raise DataError(
            f"The covariate {name!r} is {what} at {panel.source.name_rows(gap)}, where it is "
            "needed. Fill it in, drop these rows, or make their outcomes missing."
        )
