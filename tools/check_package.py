"""Builds sdist and wheel, installs the wheel into an empty environment and tries it there.

    python tools/check_package.py [--dist FOLDER] [--tag TAG]

The interpreter that runs this is the one that is tried; `make package PYTHON=python3.12` chooses
it. What a user gets is tried: only the wheel and what it requires, no extras, and nothing of the
source on the path.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
IN_THE_WHEEL = (
    "avem/py.typed",
    "avem/data/bundled/affect.csv",
    "avem/fits/report/assets/report.css",
)
IN_THE_SDIST = (
    "README.md",
    "LICENSE",
    "CHANGELOG.md",
    "CITATION.cff",
    "pyproject.toml",
    "avem/py.typed",
)


def main() -> None:
    """Build, look inside, install, try."""
    parser = argparse.ArgumentParser(description="Build, install, try.")
    parser.add_argument("--dist", type=Path, default=ROOT / "dist", help="where to build to")
    parser.add_argument("--tag", default="", help="of a release, which must be that of the wheel")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="avem-package-") as folder:
        place = Path(folder)
        build(place / "build", given.dist)
        sdist, wheel = newest(given.dist, "*.tar.gz"), newest(given.dist, "*.whl")
        look_inside(sdist, wheel)
        check_tag(given.tag, wheel)
        python = empty_environment(place / "empty")
        pip(python, "install", str(wheel))
        smoke = ROOT / "tools" / "smoke.py"
        # -I: no folder of the source, no user's packages, no PYTHONPATH.
        run(python, "-I", str(smoke), *(["--pure"] if is_pure(wheel) else []), cwd=place)
    print(f"{wheel.name} works on Python {sys.version.split()[0]}.")


def build(folder: Path, dist: Path) -> None:
    """The sdist, and the wheel made from it, as an installer that gets the sdist would."""
    python = empty_environment(folder)
    pip(python, "install", "build")
    run(python, "-m", "build", "--outdir", str(dist), str(ROOT), cwd=folder)


def look_inside(sdist: Path, wheel: Path) -> None:
    """Whether all that must be there is, and nothing that must not."""
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    lacking = [name for name in IN_THE_WHEEL if name not in names]
    top = {name.partition("/")[0] for name in names if ".dist-info/" not in name}
    with tarfile.open(sdist) as archive:
        inside = {name.partition("/")[2] for name in archive.getnames()}
    lacking += [name for name in IN_THE_SDIST if name not in inside]
    if not is_pure(wheel) and not any(name.endswith(".so") for name in names):
        lacking.append("compiled kernels")
    if lacking or top != {"avem"}:
        sys.exit(f"The package lacks {lacking}; the wheel installs {sorted(top)}.")


def check_tag(tag: str, wheel: Path) -> None:
    """Whether a tag such as v0.1.0 names the version of the wheel; other words are no tags."""
    version = wheel.name.split("-")[1]
    if re.fullmatch(r"v\d.*", tag) and tag != f"v{version}":
        sys.exit(f"The tag is {tag}, and avem/__init__.py says {version}.")


def is_pure(wheel: Path) -> bool:
    """Built where there was no C++ compiler: for any platform, with sources only."""
    return wheel.name.endswith("-none-any.whl")


def empty_environment(folder: Path) -> Path:
    """The interpreter of a new environment with pip alone."""
    venv.create(folder, with_pip=True)
    return folder / ("Scripts" if sys.platform == "win32" else "bin") / "python"


def newest(folder: Path, pattern: str) -> Path:
    return max(folder.glob(pattern), key=lambda path: path.stat().st_mtime)


def pip(python: Path, *words: str) -> None:
    run(python, "-m", "pip", "-q", "--disable-pip-version-check", *words, cwd=ROOT)


def run(python: Path, *words: str, cwd: Path) -> None:
    done = subprocess.run([str(python), *words], cwd=cwd, check=False)
    if done.returncode:
        sys.exit(f"`python {' '.join(words)}` ended with {done.returncode}.")


if __name__ == "__main__":
    main()
