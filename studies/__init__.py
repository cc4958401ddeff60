"""Simulation studies of avem: `python -m studies NAME`. They use the public interface alone."""
