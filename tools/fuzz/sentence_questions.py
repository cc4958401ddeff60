"""Constraints, as Python would read them."""

from __future__ import annotations

import ast
from typing import Any

import numpy as np

import avem
from avem.models.hmm import HMMModel
from avem.models.hmm_restriction import restriction_of
from tools.fuzz.case import NotFinite, Wrong
from tools.fuzz.formula_questions import panel

_TERMS = ["Intercept", "x", "z"]


def check_sentences(texts: list[str]) -> None:
    """Raise unless they are refused, or parameters that keep to them do what they say."""
    made = avem.MixedHMM("y ~ x + z + (1 | id)", 2, constraints=texts)
    model = HMMModel.learn(made.spec, panel())
    begin = {name: np.array(value, float) for name, value in model.middle().items()}
    rule = restriction_of(model, (), begin)
    theta = None if rule is None else rule.within(begin)
    if theta is None:
        return
    params = model.params_out(theta)
    if not all(np.isfinite(value).all() for value in params.values()):
        raise NotFinite("parameters")
    for text in texts:
        if not _holds(text, params):
            raise Wrong("a sentence that does not hold", text, params)


def _holds(text: str, params: Any) -> bool:
    if text.rstrip().endswith("equal"):
        values = _value(ast.parse(text.rstrip()[:-5].strip(), mode="eval").body, params)
        apart = np.ptp(values, axis=0)
        return bool(np.max(apart) < 1e-6)
    compared = ast.parse(text.strip(), mode="eval").body
    assert isinstance(compared, ast.Compare)
    left = _value(compared.left, params)
    right = _value(compared.comparators[0], params)
    apart = np.ravel(left) - np.ravel(right)
    signs = {ast.Eq: np.abs(apart), ast.GtE: -apart, ast.LtE: apart}
    room = 1e-6 * (1 + np.abs(right).max())
    return bool((signs[type(compared.ops[0])] <= room).all())


def _value(node: ast.expr, params: Any) -> np.ndarray:
    """A number, or a parameter at some places."""
    if isinstance(node, ast.Name):
        return params[node.id]
    if not isinstance(node, ast.Subscript):
        return np.asarray(ast.literal_eval(node), float)
    assert isinstance(node.value, ast.Name)
    given = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    array = np.asarray(params[node.value.id])
    # Of one outcome, which has an axis without a choice.
    array = array[:, 0] if node.value.id in ("coef", "variance") else array
    places: list[Any] = []
    for one in given:
        item = slice(None) if isinstance(one, ast.Slice) else ast.literal_eval(one)
        places.append(_TERMS.index(item) if isinstance(item, str) else item)
    return array[tuple(places)]
