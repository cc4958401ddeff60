"""Kernels in C++ that take the place of compiled loops.

XLA turns a loop over time into dozens of small loops over the batch; one written by hand keeps its
numbers in registers and is several times faster, and takes no time to compile with each model. A
wheel has them compiled, for several sets of instructions (``hatch_build.py`` of the source). Others
are compiled on first use with the machine's own C++ compiler, for its own processor, and kept in
the user's cache: `compile.py` makes libraries, `build.py` finds them and loads none that is damaged
or another's, `calls.py` hands the arguments over.
"""
