"""Numbers for people: how many digits, which minus, and what stands for next to nothing."""

from __future__ import annotations

import math
from collections.abc import Iterable

_DIGITS = 3
_MINUS = "\u2212"
_SUPERSCRIPT = str.maketrans("-0123456789", "\u207b⁰¹²³⁴⁵⁶⁷⁸⁹")
_LEAST, _MOST = 1e-4, 1e7
"""Beyond these, powers of 10."""


def number(value: float) -> str:
    """Three significant digits; whole numbers as they are, missing ones as nothing."""
    value = float(value)
    if math.isnan(value):
        return ""
    if math.isinf(value):
        return "\u221e" if value > 0 else f"{_MINUS}\u221e"
    size = abs(value)
    if value == 0 or (value == round(value) and size < _MOST):
        return _signed(f"{size:,.0f}", value)
    if not _LEAST <= size < _MOST:
        digits, power = f"{size:.{_DIGITS - 1}e}".split("e")
        return _signed(f"{digits} \u00d7 10{str(int(power)).translate(_SUPERSCRIPT)}", value)
    # The power of the rounded number: 9.996 is 10.0.
    power = int(f"{size:.{_DIGITS - 1}e}".split("e")[1])
    return _signed(f"{size:,.{max(0, _DIGITS - 1 - power)}f}", value)


def _signed(text: str, value: float) -> str:
    return (_MINUS if value < 0 else "") + text


def fixed(value: float, decimals: int) -> str:
    """So many decimals, with the same minus."""
    return "" if math.isnan(value) else _signed(f"{abs(value):,.{decimals}f}", value)


def chance(p: float) -> str:
    """A probability to three decimals; only what is quite 0 or 1 is called so."""
    p = float(p)
    if math.isnan(p):
        return ""
    if p in (0.0, 1.0):
        return f"{p:.0f}"
    if p < 0.0005:
        return "< 0.001"
    return "> 0.999" if p >= 0.9995 else f"{p:.3f}"


def percent(share: float) -> str:
    """A share of a whole."""
    if math.isnan(share):
        return ""
    if 0 < share < 0.0005:
        return "< 0.1%"
    return f"{share:.1%}" if share < 1 else "100%"


def p_value(p: float) -> str:
    """ "< .001", or three decimals without the 0 before them."""
    if math.isnan(p):
        return ""
    if p < 0.001:
        return "< .001"
    return "> .999" if p > 0.999 else f"{p:.3f}".removeprefix("0")


def interval(lower: float, upper: float, say=number) -> str:
    """From here to there; nothing where there is no interval."""
    return "" if math.isnan(lower) or math.isnan(upper) else f"{say(lower)} to {say(upper)}"


def with_interval(value: float, lower: float, upper: float, say=number) -> str:
    """An estimate, and its interval in parentheses if it has one."""
    ends = interval(lower, upper, say)
    return f"{say(value)} ({ends})" if ends else say(value)


def numbers(values: Iterable[float]) -> list[str]:
    """All of them."""
    return [number(value) for value in values]
