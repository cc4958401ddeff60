"""Fits of tables beyond memory, and on clusters: `avem fit --memory` and `--cluster`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import typer

from avem.cli._files import NOT_CONVERGED, check_folder, refuse_existing
from avem.cli._process import say
from avem.errors import FileError, ModelError

_FOLDERS = ("effects", "states")
_PATIENCE = "20s"


def check_scan_folder(out: Path, force: bool) -> None:
    """Say before any work is done why the results of a scan cannot go there."""
    check_folder(out, force, ("parameters",), ())
    refuse_existing([out / name for name in _FOLDERS], force=False)


def scan_for(
    model: Any,
    source: str,
    columns: tuple[Any, Any, Any],
    memory: str | None,
    cache: Path | None = None,
) -> Any:
    """The files of a command as a scan; `columns` are subject, time and sequence."""
    import avem
    from avem.data.grouping import subject_column

    subject, time, sequence = columns
    group = subject_column(model._group, subject)
    if group is None:
        raise ModelError("Which rows belong together? Give --subject COLUMN.")
    size = "4GB" if memory is None else memory
    found = avem.Panel.scan(source, group, time=time, sequence=sequence, memory=size, cache=cache)
    say(f"{found!r}\n")
    return found


@contextmanager
def cluster_at(address: str | None) -> Iterator[Any]:
    """A client of the Dask scheduler at an address; None without one."""
    if address is None:
        yield None
        return
    from avem.data.scanning.packages import need

    distributed = need("distributed", "--cluster")
    try:
        client = distributed.Client(address, timeout=_PATIENCE)
    except (OSError, ValueError) as error:  # a refused connection, or no address at all
        raise ModelError(
            f"--cluster {address!r}: the scheduler cannot be reached ({error}). Start one with: "
            "dask scheduler"
        ) from error
    with client:
        yield client


def finish_scan(fitted: Any, out: Path, thorough: bool) -> None:
    """Write all files of a fit of a scan, print the summary, and end with the fit's exit code."""
    from avem import Stop
    from avem.data.files import write_table
    from avem.data.writing import write_text

    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileError(f"--out {str(out)!r}: {error.strerror}.") from error
    fitted.save(out / "fit.avem")  # first, so that nothing that follows can lose it
    text = str(fitted.summary(errors=thorough))
    say(text)
    write_text(out / "summary.txt", text + "\n")
    write_table(fitted.standard_errors() if thorough else fitted.table(), out / "parameters.csv")
    fitted.effects().write_parquet(out / "effects")
    fitted.decode().write_parquet(out / "states")
    fitted.report(out / "report.html", thorough=thorough or None)
    written = ["fit.avem", "summary.txt", "parameters.csv", "effects/", "states/", "report.html"]
    say("\nWritten:\n" + "\n".join(f"  {out / name}" for name in written))
    if fitted.stop is not Stop.CONVERGED:
        raise typer.Exit(NOT_CONVERGED)
