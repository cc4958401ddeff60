"""Emission families, one per file."""

from avem.families.gaussian import Gaussian

__all__ = ["Gaussian"]
