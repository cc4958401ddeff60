"""The vocabulary of formulas: which tokens, functions and operators exist. Nothing else does."""

import ast
import operator
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from avem.data.bases import BASES
from avem.errors import ModelError

FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    **{f.__name__: f for f in (np.log, np.log1p, np.log2, np.log10, np.exp, np.expm1, np.sqrt)},
    **{f.__name__: f for f in (np.sin, np.cos, np.tanh)},
    "abs": np.abs,
    "I": lambda x: x,
}
MOMENTS = ("center", "scale", "standardize")
TRANSFORMS = (*FUNCTIONS, *MOMENTS, *BASES, "C", "lag")
"""The functions a formula may use. C makes a column categorical; I shields arithmetic;
lag(x) and lag(x, 2) are the values one and two rows before, in the same sequence;
bs(x, df=5) and poly(x, 3) make several columns of one."""
AVAILABLE = ", ".join(TRANSFORMS)

OPERATORS: dict[type, Callable[..., Any]] = {
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
    r"\s*(?:(?P<name>[^\W\d]\w*)|`(?P<quoted>[^`]+)`|"
    r"(?P<number>(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?)|(?P<op>\*\*|\|\||==|!=|<=|>=|[-+*/:|~(){}<>,=^]))\s*"
)
OPEN, CLOSE = ("(", "{"), (")", "}")


@dataclass(frozen=True)
class Token:
    """A piece of a formula."""

    kind: str  # "name" (of a column or transform), "quoted" (surely a column), "number" or "op"
    text: str

    def __str__(self) -> str:
        return f"`{self.text}`" if self.kind == "quoted" else self.text

    def is_op(self, *texts: str) -> bool:
        """Whether this is one of these operators."""
        return self.kind == "op" and self.text in texts


def tokenize(text: str) -> list[Token]:
    """Return the tokens of a formula, or say which piece is none."""
    found, at = [], 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None or match.lastgroup is None:
            raise ModelError(
                f"Cannot read {text[at : at + 10].strip()!r} in the formula {text!r}. A formula "
                f"holds column names, numbers, + - * / : ** ^ ( | ) and the functions {AVAILABLE}"
                ". Put other column names in backquotes: `reaction time`."
            )
        text_of = match[match.lastgroup]
        found.append(Token(match.lastgroup, "**" if text_of == "^" else text_of))
        at = match.end()
    return found


def join(tokens: list[Token]) -> str:
    """Return tokens as text that reads well and gives the same tokens back."""
    text = " ".join(str(token) for token in tokens)
    return re.sub(r"(?<=[\w`]) (?=\()|(?<=[({]) | (?=[)}])", "", text)
