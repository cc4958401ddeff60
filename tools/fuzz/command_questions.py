"""What is asked of a command line: an exit code that is known, and words instead of a traceback."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path

from avem.errors import AvemError
from tools.fuzz.case import Wrong

_CODES = (0, 2, 3)


@cache
def prepared() -> Path:
    """A folder of sound files."""
    from tools.fuzz.frame_questions import known

    made = tables()
    known(1).save(made / "hmm.avem")
    known(5).save(made / "ssm.avem")
    return made


def tables() -> Path:
    """A new folder of tables."""
    from tools.fuzz.frame_questions import sound

    made = Path(tempfile.mkdtemp(prefix="avem-fuzz-"))
    frame = sound()
    frame.to_csv(made / "data.csv", index=False)
    frame.to_csv(made / "data.csv.gz", index=False)
    frame.to_csv(made / "data.tsv", index=False, sep="\t")
    frame.to_csv(made / "semicolons.csv", index=False, sep=";", decimal=",")
    frame.to_parquet(made / "data.parquet", index=False)
    ahead = frame.assign(time=frame["time"] + 8)
    ahead.drop(columns=["y", "z"]).to_csv(made / "future.csv", index=False)
    return made


@cache
def _workplace() -> Path:
    return Path(tempfile.mkdtemp(prefix="avem-fuzz-"))


def folder() -> Path:
    """A folder with a copy of every file, and nothing else."""
    shutil.rmtree(_workplace())
    shutil.copytree(prepared(), _workplace())
    return _workplace()


def spoil(files: Path, name: str, change: Callable[[bytes], bytes]) -> None:
    """Damage one of the files."""
    path = files / name
    path.write_bytes(change(path.read_bytes()))


def check(args: list[str], files: Path) -> None:
    """Raise unless the command ends as its documentation says."""
    from typer.testing import CliRunner

    from avem.cli import app

    here = os.getcwd()
    os.chdir(files)
    try:
        result = CliRunner().invoke(app, args, env={"AVEM_NO_CACHE": "1"})
    finally:
        os.chdir(here)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    if result.exit_code not in _CODES:
        raise Wrong(f"exit code {result.exit_code}", result.stderr)
    if "Traceback" in result.output or (result.exit_code == 2 and not result.stderr.strip()):
        raise Wrong("words", result.output)
    left = [path.name for path in files.rglob("*.tmp")]
    if left:
        raise Wrong("a file left behind", left)
    if result.exit_code == 2:
        raise AvemError(result.stderr)
