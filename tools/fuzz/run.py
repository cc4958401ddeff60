"""Cases of all areas, one after the other; findings are written down, and a table at the end."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import NamedTuple, TextIO

from tools.fuzz import commands, files, formulas, frames, journals
from tools.fuzz.case import ANSWERED, FINDINGS, REFUSED, Case, Verdict
from tools.fuzz.pool import Limits, Worker

_MB = 1 << 20


class Area(NamedTuple):
    """One class of cases."""

    make: Callable[[Random, int], Case]
    """From a source of random numbers and the case's own number."""
    share: float
    """Of all cases."""
    limits: Limits


AREAS = {
    "frames": Area(frames.make, 0.32, Limits(60.0, 2000 * _MB)),
    "formulas": Area(formulas.make, 0.33, Limits(20.0, 500 * _MB)),
    "files": Area(files.make, 0.26, Limits(20.0, 1000 * _MB)),
    "journals": Area(journals.make, 0.03, Limits(60.0, 2000 * _MB)),
    "commands": Area(commands.make, 0.06, Limits(90.0, 2000 * _MB)),
}


@dataclass
class Tally:
    """What came of the cases of one area."""

    counts: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0


@dataclass
class Finding:
    """What someone has to look at: the first case of its sort, and how many there were."""

    case: Case
    verdict: Verdict
    times: int = 1


def cases(area: str, n: int, seed: int) -> Iterator[Case]:
    """The first n cases of an area; each depends on its own number alone."""
    for number in range(n):
        yield case_of(area, number, seed)


def case_of(area: str, number: int, seed: int) -> Case:
    """One case."""
    return AREAS[area].make(Random(f"{seed} {area} {number}"), number)


def run(
    n: int,
    seed: int = 0,
    only: Sequence[str] = (),
    folder: Path | None = None,
    progress: TextIO | None = None,
) -> tuple[dict[str, Tally], list[Finding]]:
    """Run n cases, and write what was found into the folder."""
    names = list(only or AREAS)
    whole = sum(AREAS[name].share for name in names)
    tallies = {name: Tally() for name in names}
    found: dict[tuple[str, str, str], Finding] = {}
    worker = Worker()
    try:
        for name in names:
            share = max(1, round(n * AREAS[name].share / whole))
            for case in cases(name, share, seed):
                begun = time.monotonic()
                verdict = worker.ask(case, AREAS[name].limits)
                tallies[name].seconds += time.monotonic() - begun
                tallies[name].counts[verdict.kind] += 1
                if verdict.is_finding:
                    _note(found, case, verdict, worker, folder, seed)
            if progress is not None:
                print(_row(name, tallies[name]), file=progress, flush=True)
    except KeyboardInterrupt:
        print("Interrupted; what there is so far:", file=sys.stderr)
    finally:
        worker.close()
    return tallies, list(found.values())


def _note(
    found: dict[tuple[str, str, str], Finding],
    case: Case,
    verdict: Verdict,
    worker: Worker,
    folder: Path | None,
    seed: int,
) -> None:
    """Count the finding, and write it down if it is the first of its sort."""
    key = (case.area, verdict.kind, verdict.place)
    if key in found:
        found[key].times += 1
        return
    small = smallest(case, verdict, worker)
    found[key] = Finding(small, verdict)
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        told = "".join(f"# {line}\n" for line in verdict.words.splitlines())
        head = f"# {case.area} {case.number} of seed {seed}: {verdict.kind}, {verdict.place!r}\n"
        path = folder / f"{case.area}-{case.number}.py"
        path.write_text(f"{head}{small.script}\n{told}", encoding="utf-8")


def smallest(case: Case, verdict: Verdict, worker: Worker) -> Case:
    """The case with as few edits as it takes to find the same."""
    limits = AREAS[case.area].limits
    edits = list(case.edits if verdict.edits is None else verdict.edits)
    for edit in list(reversed(edits)):
        fewer = [other for other in edits if other is not edit]
        again = worker.ask(case.with_edits(fewer), limits)
        if (again.kind, again.place) == (verdict.kind, verdict.place):
            edits = fewer
    return case.with_edits(edits)


def table(tallies: dict[str, Tally], findings: list[Finding]) -> str:
    """What came of everything, in words."""
    head = ("class", "cases", "refused", "answered", *FINDINGS, "per second")
    lines = [" | ".join(head), *(_row(name, tally) for name, tally in tallies.items())]
    for one in findings:
        last = one.verdict.words.strip().splitlines()[-1:] or [""]
        lines.append(
            f"{one.case.area}-{one.case.number}: {one.verdict.kind}, {one.verdict.place!r}, "
            f"{one.times} times: {last[0][:300]}"
        )
    return "\n".join(lines)


def _row(name: str, tally: Tally) -> str:
    kinds = (REFUSED, ANSWERED, *FINDINGS)
    rate = tally.counts.total() / max(tally.seconds, 1e-9)
    numbers = [tally.counts.total(), *(tally.counts[kind] for kind in kinds)]
    return " | ".join([name, *map(str, numbers), f"{rate:.1f}"])
