"""Data in: frames to panels, formulas to design matrices. NumPy and pandas only."""

from avem.data.design import Design, DesignData
from avem.data.formula import Formula, parse_formula
from avem.data.panel import Panel
from avem.data.tokens import TRANSFORMS

__all__ = ["TRANSFORMS", "Design", "DesignData", "Formula", "Panel", "parse_formula"]
