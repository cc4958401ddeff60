"""Fits in files."""
