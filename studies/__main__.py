"""`python -m studies NAME`: the same as `avem study NAME`, from the source alone."""

from __future__ import annotations

import sys

from avem.cli import app

if __name__ == "__main__":
    sys.argv[0] = "avem"
    app(["study", *sys.argv[1:]])
