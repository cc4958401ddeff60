"""Data in: frames to panels, formulas to design matrices. NumPy and pandas only."""

from avem.data.formula import TRANSFORMS, Design, DesignData, Formula, parse_formula
from avem.data.panel import Panel

__all__ = ["TRANSFORMS", "Design", "DesignData", "Formula", "Panel", "parse_formula"]
