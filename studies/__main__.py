"""`python -m studies NAME`: the same as `avem study NAME`, from the source alone."""

from __future__ import annotations

import sys

from avem.__main__ import main

if __name__ == "__main__":
    sys.argv[0] = "avem"
    main(args=["study", *sys.argv[1:]])
