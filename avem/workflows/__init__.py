"""What is done with many fits: choose, compare, validate, resample."""

from avem.workflows.folds import cross_validate
from avem.workflows.states import select

__all__ = ["cross_validate", "select"]
