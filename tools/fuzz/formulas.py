"""Formulas: sound ones, whose columns are known, and what typing errors make of them."""

from __future__ import annotations

from random import Random

from tools.fuzz.case import Case

_BEFORE = """\
from tools.fuzz.formula_questions import check_terms, check_text, garble
from tools.fuzz.sentence_questions import check_sentences
"""
_PLAIN = ("x", "z", "w", "g", "h", "b", "`odd name`")
_COLUMNS = (*_PLAIN, "x", "z", "g")
_WORDS = r"""
+ - * / : ** ~ | || ( ) { } , == != < <= > >= 0 1 2 1.5 1e3 00 1e999 x z g id y nothing log I C lag
scale center sin if None __import__ x.y x[0] 'x' "x" ` `` `x` `a~b` \ ; # % ^ @ ! = := -> lambda é ∞
bs(x,df=5) poly(z,2) offset(x) offset( df=
x:x (x) ((((( ))))) 9999999999999999999 ((x+z+w)**6) **6 *g*h*b I(x**99**99) (1|id)
""".strip().replace("\n", " ")
_PIECES = [*_WORDS.split(" "), " ", "\n", "\t", "\x00", "\ud800"]
_MENTIONS = (
    *(
        "coef[0, 'x']",
        "coef[1, 'x']",
        "coef[:, 'x']",
        "coef[0, 'z']",
        "coef[1, 'Intercept']",
        "coef",
    ),
    *(
        "variance[0]",
        "variance[1]",
        "variance",
        "transition[0, 1]",
        "transition[1, 1]",
        "initial[0]",
    ),
    *("transition[0]", "effect_covariance", "coef[0]", "nothing[0]"),
)
_INSIDE = ("log", "sqrt", "abs", "cos", "expm1", "scale", "lag")


def make(rng: Random, number: int) -> Case:
    """A formula and what its design must be; or one that was garbled, which may be refused."""
    if rng.random() < 0.15:
        edits = [f"terms.append({_sure_term(rng)!r})" for _ in range(rng.randint(1, 3))]
        after = f"check_terms(terms, {rng.randrange(1000)}, sure=True)"
        return Case("formulas", number, f"{_BEFORE}terms = []", tuple(edits), after)
    if rng.random() < 0.12:
        edits = [f"texts.append({_sentence(rng)!r})" for _ in range(rng.choice([1, 1, 2, 4]))]
        for _ in range(rng.choice([0, 0, 1, 3])):
            piece, how = rng.choice(_PIECES), rng.choice(["insert", "delete", "replace", "swap"])
            edits.append(f"texts[-1] = garble(texts[-1], {how!r}, {rng.random():.4f}, {piece!r})")
        return Case(
            "formulas", number, f"{_BEFORE}texts = []", tuple(edits), "check_sentences(texts)"
        )
    if rng.random() < 0.4:
        edits = [f"terms.append({_term(rng)!r})" for _ in range(rng.randint(1, 4))]
        if rng.random() < 0.2:
            edits.append(f"terms.append({rng.choice(['0', '1', '-1'])!r})")
        after = f"check_terms(terms, {rng.randrange(1000)})"
        return Case("formulas", number, f"{_BEFORE}terms = []", tuple(edits), after)
    edits = [_typo(rng) for _ in range(rng.choice([1, 1, 2, 3, 8]))]
    return Case("formulas", number, f"{_BEFORE}text = {_text(rng)!r}", tuple(edits), _question(rng))


def _question(rng: Random) -> str:
    use = rng.choice(["design"] * 8 + ["model", "transition", "initial", "ssm", "rates", "stays"])
    return f"check_text(text, {use!r})"


def _sentence(rng: Random) -> str:
    """A constraint that could be one."""
    mention = rng.choice(_MENTIONS)
    value = rng.choice(["0", "1", "-1", "0.3", "2.5e-3", mention, rng.choice(_MENTIONS)])
    return rng.choice(
        [f"{mention} {rng.choice(['==', '>=', '<='])} {value}"] * 4 + [f"{mention} equal"]
    )


def _typo(rng: Random) -> str:
    piece = rng.choice(_PIECES)
    if rng.random() < 0.05:
        piece *= rng.choice([10, 500, 3000])
    how = rng.choice(["insert", "insert", "delete", "replace", "swap", "repeat"])
    return f"text = garble(text, {how!r}, {rng.random():.4f}, {piece!r})"


def _sure_term(rng: Random) -> object:
    """A term that nothing can be said against."""
    one, two, three = rng.sample(_PLAIN, 3)
    return rng.choice(
        [one, (":", one, two), ("*", one, two), ("/", one, two), ("**", ("+", one, two, three), 2)]
    )


def _term(rng: Random, depth: int = 0) -> object:
    """A term as (operator, left, right); names and calls are text."""
    if depth > 2 or rng.random() < 0.5:
        return _atom(rng)
    op = rng.choice([":", ":", "*", "/", "+", "**"])
    if op == "**":
        several = tuple(_term(rng, depth + 1) for _ in range(rng.randint(2, 3)))
        return ("**", ("+", *several), rng.choice([2, 3]))
    return (op, _term(rng, depth + 1), _term(rng, depth + 1))


def _atom(rng: Random) -> str:
    if rng.random() < 0.65:
        return rng.choice(_COLUMNS)
    inner = arithmetic(rng)
    if not set(inner) & set("xzwb"):  # the same in every row: refused
        inner += rng.choice([" + x", "*z"])
    return rng.choice(
        [
            f"I({inner})",
            f"{{{inner}}}",
            f"{rng.choice(['log', 'sqrt', 'exp', 'abs', 'log1p', 'sin', 'tanh'])}({inner})",
            f"{rng.choice(['scale', 'center', 'standardize'])}({rng.choice('xzw')})",
            f"C({rng.choice('gh')})",
            f"bs({rng.choice('xzw')}, df={rng.randint(3, 7)})",
            f"poly({rng.choice('xzw')}, {rng.randint(1, 4)})",
        ]
    )


def arithmetic(rng: Random, depth: int = 0) -> str:
    """An expression of columns and numbers, as Python reads it."""
    if depth > 3 or rng.random() < 0.35:
        plain = [*"xzwb", f"{rng.randint(0, 12)}", f"{rng.random():.3f}", f"{rng.randint(1, 9)}e-2"]
        return rng.choice(plain)
    left, right = arithmetic(rng, depth + 1), arithmetic(rng, depth + 1)
    return rng.choice(
        [
            f"{left} {rng.choice(['+', '-', '*', '/'])} {right}",
            f"{left}{rng.choice(['+', '-', '*', '/'])}{right}",
            f"({left} {rng.choice(['+', '-', '*'])} {right})",
            f"({left} {rng.choice(['<', '<=', '>', '>=', '==', '!='])} {right})",
            f"{left} ** {rng.choice(['2', '3', '0.5', '-1'])}",
            f"-{left}",
            f"({left})",
            f"{rng.choice(_INSIDE)}({rng.choice('xzw')})",
        ]
    )


def _text(rng: Random) -> str:
    """A formula that could be sound."""
    terms = [rng.choice([_atom(rng), f"{_atom(rng)}:{_atom(rng)}", f"{_atom(rng)} * {_atom(rng)}"])]
    terms += [_atom(rng) for _ in range(rng.randint(0, 3))]
    if rng.random() < 0.6:
        terms.append(rng.choice(["(1 | id)", "(1 + x | id)", "(0 + x:g | id)", "(1|id)+(0+z|id)"]))
    if rng.random() < 0.1:
        terms.append(rng.choice(["offset(x)", "offset(log(w))", "offset(x - z)", "offset(g)"]))
    rng.shuffle(terms)
    return rng.choice(["y ~ ", "y ~ ", "y + v ~ ", "~ "]) + " + ".join(terms)
