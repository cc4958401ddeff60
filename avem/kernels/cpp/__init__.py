"""Kernels in C++ that take the place of compiled loops, where this machine can build them.

XLA turns a loop over time into dozens of small loops over the batch; one written by hand keeps its
numbers in registers and is several times faster, and takes no time to compile with each model. The
sources beside this file are compiled on first use with the machine's own C++ compiler, for its own
processor, and kept in the user's cache (`build.py`); `calls.py` hands the arguments over.
"""
