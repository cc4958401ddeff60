"""Priors of parameters, for ``MixedHMM(..., priors={"transition": avem.priors.Sticky(10)})``."""

from avem.components.priors import (
    Dirichlet,
    HalfNormal,
    InverseWishart,
    Normal,
    Prior,
    Sticky,
    Wishart,
)

__all__ = ["Dirichlet", "HalfNormal", "InverseWishart", "Normal", "Prior", "Sticky", "Wishart"]
