"""Loads files within limits on memory and prints what came of it, in a process of its own."""

import json
import os
import re
import resource
import sys
import time
from pathlib import Path

import avem


def _status(name):
    """Bytes of one line of the kernel's account of this process."""
    found = re.search(rf"^{name}:\s+(\d+) kB", Path("/proc/self/status").read_text(), re.MULTILINE)
    return int(found[1]) * 1024 if found else 0


def measure(path):
    """What loading says, how long it takes, and by how much memory grows at most."""
    Path("/proc/self/clear_refs").write_text("5")  # the peak is counted from here
    before, begun = _status("VmRSS"), time.perf_counter()
    allowed = 100_000_000 + 20 * os.path.getsize(path)
    resource.setrlimit(resource.RLIMIT_AS, (_status("VmSize") + allowed, resource.RLIM_INFINITY))
    try:
        said = type(avem.load(path)).__name__
    except avem.AvemError as error:
        said = str(error)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    seconds = time.perf_counter() - begun
    return {
        "said": said,
        "seconds": seconds,
        "share": (_status("VmHWM") - before) / allowed,
    }


if __name__ == "__main__":
    first, *others = sys.argv[1:]
    avem.load(first)  # imports are not counted
    print(json.dumps({Path(path).name: measure(path) for path in others}))
