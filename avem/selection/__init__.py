"""Which model? How many states, and how well each foretells data it has not seen."""

from avem.selection.folds import cross_validate
from avem.selection.states import select

__all__ = ["cross_validate", "select"]
