"""Names of before: lines, and emissions as pieces."""

from avem.components.emission import Emission as Piece
from avem.components.lines import Effect, Line

__all__ = ["Effect", "Line", "Piece"]
