"""How a fit ended."""

from __future__ import annotations

from enum import Enum


class Stop(Enum):
    """Why the iteration ended; the value is a sentence for the reader.

    Examples
    --------
    >>> fit.stop is avem.Stop.CONVERGED
    True
    >>> print(fit.stop)
    CONVERGED: The iteration converged: a further step changes nothing that matters.
    """

    CONVERGED = "The iteration converged: a further step changes nothing that matters."
    OUT_OF_STEPS = "The iteration limit was reached before the fit converged."
    BOUND_FELL = (
        "The bound kept falling and the best parameters seen were kept: the model asks more of "
        "the data than they hold. Use fewer states, fewer effects or a simpler formula."
    )
    INTERRUPTED = "Stopped by the user; the best parameters so far were kept."

    def __str__(self) -> str:
        return f"{self.name}: {self.value}"
