"""What a newcomer waits for: `avem demo` in a fresh process, without and with the cache."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time


def seconds(command: list[str], env: dict[str, str]) -> float:
    began = time.perf_counter()
    subprocess.run(command, env=env, check=True, capture_output=True)
    return time.perf_counter() - began


if __name__ == "__main__":
    folder = tempfile.mkdtemp()
    try:
        env = {**os.environ, "XDG_CACHE_HOME": os.path.join(folder, "cache")}
        avem = [sys.executable, "-m", "avem"]
        demo = [*avem, "demo", "--out", os.path.join(folder, "out")]
        print(
            f"import avem             {seconds([sys.executable, '-c', 'import avem'], env):6.2f} s"
        )
        print(f"avem --help             {seconds([*avem, '--help'], env):6.2f} s")
        print(f"avem demo, no cache     {seconds(demo, {**env, 'AVEM_NO_CACHE': '1'}):6.2f} s")
        print(f"avem demo, fills cache  {seconds(demo, env):6.2f} s")
        print(f"avem demo, cached       {seconds(demo, env):6.2f} s")
    finally:
        shutil.rmtree(folder)
