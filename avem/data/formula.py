"""Formulas taken apart, lme4 style: "y1 + y2 ~ x + scale(age) + (1 + x | mouse)".

A formula may come from a stranger's saved fit, so it must never run code. Three walls:

1. Only the tokens of `tokens.py` exist: no dots, quotes, brackets or keywords.
2. Functions and arithmetic are evaluated by `expressions.py`, which knows `TRANSFORMS` and a few
   operators and nothing else.
3. What + - * / : and ** make of the columns is worked out by `terms.py`, which counts the terms
   before it makes them; `coding.py` counts their columns.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from avem.data.expressions import Atom, compile_offset, compile_side
from avem.data.frames import examples
from avem.data.tokens import CLOSE, OPEN, Token, join, tokenize
from avem.errors import ModelError

_MAX_LENGTH = 10_000  # beyond is a mistake, or meant to exhaust the parser


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
    offset : str
        What is added to the linear predictor as it is: the sum of all `offset(...)`, or empty.
    """

    text: str
    outcomes: tuple[str, ...]
    fixed: str
    groups: tuple[tuple[str, str], ...]
    offset: str = ""

    @property
    def is_constant(self) -> bool:
        """It has an intercept, and nothing else."""
        return self.fixed == "1" and not self.groups and not self.offset

    @property
    def sides(self) -> tuple[str, ...]:
        """The fixed side, then the effects of each group term."""
        return (self.fixed, *(effects for effects, _ in self.groups))

    @property
    def atoms(self) -> list[Atom]:
        """All columns and expressions that it reads, with those of its offset."""
        found = [atom for side in self.sides for atom in compile_side(side)[1].values()]
        return [*found, compile_offset(self.offset)] if self.offset else found


def parse_formula(text: str) -> Formula:
    """Return the parts of a formula such as "y ~ x + (1 + x | mouse)" or, one-sided, "~ x".

    Right-hand names are columns or one of `TRANSFORMS`; anything else is refused.
    """
    if not isinstance(text, str):
        raise ModelError(f"The formula is a {type(text).__name__}; text such as 'y ~ x' is wanted.")
    if len(text) > _MAX_LENGTH:
        raise ModelError(f"The formula has {len(text)} characters; at most {_MAX_LENGTH} are read.")
    tokens = tokenize(text)
    tildes = [i for i, token in enumerate(tokens) if token.is_op("~")]
    if len(tildes) != 1:
        raise ModelError(
            f"The formula {text!r} has {len(tildes)} tildes; one is wanted, as in 'y ~ x'."
        )
    outcomes = _outcomes(tokens[: tildes[0]], text)
    fixed: list[Token] = []
    groups: list[tuple[str, str]] = []
    offsets: list[str] = []
    for sign, term in _split_terms(tokens[tildes[0] + 1 :], text):
        if _is_offset(term):
            offsets.append(_offset_term(sign, term, text))
        elif not any(token.is_op("|", "||") for token in term):
            fixed += [Token("op", sign), *term] if fixed or sign == "-" else term
        elif sign == "-":
            raise ModelError(f"A group term cannot be taken away: '- {join(term)}' in {text!r}.")
        else:
            groups.append(_group_term(term, text))
    if len({group for _, group in groups}) > 1:
        raise ModelError(
            f"The formula {text!r} groups by {examples(dict.fromkeys(g for _, g in groups))}; "
            "all group terms must name the same column, the subject."
        )
    formula = Formula(text, outcomes, join(fixed) or "1", tuple(groups), " + ".join(offsets))
    # What cannot be read is refused here, before any data are seen.
    now = [name for atom in formula.atoms for name in set(atom.columns) - atom.lagged]
    both = [name for name in outcomes if name in now]
    if both:
        raise ModelError(
            f"{both[0]!r} is on both sides of {text!r}. Drop it from one, or write "
            f"lag({both[0]}) for its value one row before."
        )
    return formula


def _is_offset(term: list[Token]) -> bool:
    return len(term) > 1 and term[0] == Token("name", "offset") and term[1].is_op("(")


def _offset_term(sign: str, term: list[Token], text: str) -> str:
    """Return what stands inside one `offset(...)`, in parentheses."""
    inner, depth = term[2:-1], 0
    for token in inner:
        depth += token.is_op(*OPEN) - token.is_op(*CLOSE)
        if depth < 0:
            break
    if sign == "-" or depth or not inner or not term[-1].is_op(")"):
        raise ModelError(
            f"Cannot read '{sign} {join(term)}' in {text!r}. An offset is a term of its own, which "
            "is added: y ~ x + offset(log(hours)). To take it away, write offset(-x)."
        )
    return f"({join(inner)})"


def _outcomes(tokens: list[Token], text: str) -> tuple[str, ...]:
    names = [token.text for token in tokens[::2]]
    shape = all(
        token.is_op("+") if i % 2 else token.kind in ("name", "quoted")
        for i, token in enumerate(tokens)
    )
    if not shape or (tokens and len(tokens) % 2 == 0):
        raise ModelError(
            f"The left side of {text!r} is '{join(tokens)}'; column names joined by + are wanted. "
            "Compute a transformed outcome as a column first."
        )
    if len(set(names)) < len(names):
        raise ModelError(f"The left side of {text!r} names an outcome twice.")
    return tuple(names)


def _split_terms(tokens: list[Token], text: str) -> Iterator[tuple[str, list[Token]]]:
    """Yield (sign, tokens) for each term of a sum, split outside all parentheses."""
    sign, term, open_ones = "+", [], []
    for i, token in enumerate([*tokens, Token("op", "+")]):
        if token.is_op(*OPEN):
            open_ones.append(token.text)
        elif token.is_op(*CLOSE) and (
            not open_ones or OPEN.index(open_ones.pop()) != CLOSE.index(token.text)
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


def _group_term(term: list[Token], text: str) -> tuple[str, str]:
    """Return (effects, group) of the tokens of one `(effects | group)`."""
    shown = join(term)
    if any(token.is_op("||") for token in term):
        raise ModelError(
            f"'||' in {shown} is not supported. For independent effects write separate terms: "
            "(1 | g) + (0 + x | g)."
        )
    bar = next(i for i, token in enumerate(term) if token.is_op("|"))
    inner, group = term[1:bar], term[bar + 1 : -1]
    depth = sum(token.is_op(*OPEN) - token.is_op(*CLOSE) for token in inner)
    if not (term[0].is_op("(") and term[-1].is_op(")") and inner) or depth:
        raise ModelError(
            f"Cannot read the group term '{shown}' in {text!r}; write it on its own, in "
            "parentheses: (1 + x | subject)."
        )
    if len(group) != 1 or group[0].kind not in ("name", "quoted"):
        raise ModelError(
            f"'{join(group)}' in {shown} is not supported as a group; one column name is wanted, "
            "as in (1 + x | subject). Nested (a/b) and crossed (a:b) groups are not available."
        )
    return join(inner), group[0].text
