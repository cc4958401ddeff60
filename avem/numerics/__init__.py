"""Numerical helpers that know no statistics."""
