"""Runs one case in this process and says what came of it."""

from __future__ import annotations

import io
import os
import sys
import tempfile
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any

import avem
from avem.errors import AvemError, AvemWarning
from tools.fuzz.case import ANSWERED, REFUSED, Case, NotFinite, Verdict, Wrong

_LONGEST = 25_000  # characters of a message; a formula that is quoted may have 10,000


def judge(case: Case) -> Verdict:
    """The verdict on a case that neither crashes nor hangs."""
    space: dict[str, Any] = {"__name__": "case"}
    with warnings.catch_warnings(), redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        exec(case.before, space)
        edits = tuple(edit for edit in case.edits if _done(edit, space))
    printed = io.StringIO()
    with (
        warnings.catch_warnings(record=True) as warned,
        redirect_stdout(printed),
        _standard_error(printed),
    ):
        warnings.simplefilter("always")
        verdict = _asked(case, space)
    return (_beside(verdict, warned, printed.getvalue()))._replace(edits=edits)


def _done(edit: str, space: dict[str, Any]) -> bool:
    try:
        exec(edit, space)
    except Exception:
        return False
    return True


def _asked(case: Case, space: dict[str, Any]) -> Verdict:
    try:
        exec(compile(case.after, "<question>", "exec"), space)
    except AvemError as error:
        said = str(error)
        if not 0 < len(said) <= _LONGEST:
            words = f"{type(error).__name__} with {len(said)} characters"
            return Verdict("wrong answer", _place(error), words)
        return Verdict(REFUSED, type(error).__name__, said)
    except Wrong as error:
        return Verdict("wrong answer", str(error.args[0]), _told(error))
    except NotFinite as error:
        return Verdict("not finite", str(error.args[0]), _told(error))
    except MemoryError as error:
        return Verdict("memory", _place(error), _told(error))
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # compiled code may raise what is no Exception
        return Verdict("foreign error", f"{type(error).__name__} {_place(error)}", _told(error))
    return Verdict(ANSWERED)


def _beside(verdict: Verdict, warned: list[warnings.WarningMessage], printed: str) -> Verdict:
    """The verdict, unless something was said that nobody asked for."""
    foreign = [one for one in warned if not issubclass(one.category, AvemWarning)]
    if verdict.is_finding:
        return verdict
    if foreign:
        one = foreign[0]
        place = f"{one.category.__name__} {Path(one.filename).name}"
        return Verdict("foreign warning", place, f"{one.filename}:{one.lineno}: {one.message}")
    if printed:
        return Verdict("printed", printed[:40], printed)
    return verdict


def _told(error: BaseException) -> str:
    return "".join(traceback.format_exception(error))[-6000:]


def _place(error: BaseException) -> str:
    """The innermost function of avem that an error went through."""
    inside = str(Path(avem.__file__).parent) + os.sep
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename.startswith(inside)]
    return f"{Path(frames[-1].filename).name}:{frames[-1].name}" if frames else "outside avem"


@contextmanager
def _standard_error(into: io.StringIO) -> Iterator[None]:
    """Whatever is written to it, by compiled code as well, goes into a text."""
    with tempfile.TemporaryFile() as file:
        kept, stream = os.dup(2), sys.stderr
        os.dup2(file.fileno(), 2)
        sys.stderr = io.TextIOWrapper(io.FileIO(2, "w", closefd=False), write_through=True)
        try:
            yield
        finally:
            sys.stderr.close()
            sys.stderr = stream
            os.dup2(kept, 2)
            os.close(kept)
            file.seek(0)
            into.write(file.read().decode("utf-8", "replace"))
