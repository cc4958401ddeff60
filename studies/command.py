"""What `avem study` and `python -m studies` do."""

from __future__ import annotations

from pathlib import Path

from avem.errors import ModelError
from studies import catalogue, overview
from studies.pages import markdown
from studies.runner import run
from studies.workers import prepare_process

PAGES = Path(__file__).resolve().parents[1] / "docs" / "studies"


def run_study(
    name: str,
    reps: int | None = None,
    jobs: int = 2,
    out: Path | None = None,
    protocol: str = "both",
    quick: bool = False,
) -> None:
    """Run a study, or go on with it, and print its tables.

    Parameters
    ----------
    name
        One of `catalogue.NAMES`.
    reps
        Replicates per setting; None: as many as the study says, or two or so when `quick`.
    jobs
        Processes at a time.
    out
        Folder of the results; None: the study's page in ``docs/studies`` of the source, or
        ``study-output/NAME`` when `quick`.
    protocol
        ``"paper"``, ``"converged"`` or ``"both"``.
    quick
        A few settings and replicates, in about a minute.
    """
    study = catalogue.find(name)
    known = tuple(study.replicate)
    if protocol not in (*known, "both"):
        raise ModelError(f"{name} has no protocol {protocol!r}; choose {' or '.join(known)}.")
    prepare_process()
    chosen = known if protocol == "both" else (protocol,)
    counts = {p: study.default_reps(p, quick) if reps is None else reps for p in chosen}
    if out is None:
        out = Path("study-output") / name if quick else PAGES / name
    tables = run(study, counts, jobs, out, quick)
    for title, table in tables.items():
        if len(table) <= 40:
            print(f"\n{title}\n{markdown(table)}")
    if out.parent == PAGES:
        overview.write(PAGES)
    print(f"\n{out / 'README.md'}")
