"""The page that sums up all studies, made from their tables: `python -m studies.overview`."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from avem.data.writing import write_text
from studies import catalogue, claims
from studies.study import Tables

HEAD = """# Studies

Every experiment and theorem of the paper, and a few studies of our own, each made by one command.
`avem study NAME` runs the replicates, writes each as it finishes, goes on where it was stopped, and
makes tables, figures and the page; its tables depend on neither the number of jobs nor
interruptions. `studies/README.md` says how to run them and how long they take.

There are two protocols, and every table says which it is. **Paper**: plain iterations from the
authors' start to their rule and limit, which must repeat the authors' numbers; that start knows the
order, the centre and roughly the scale of the truth. **Converged**: what a user gets from the data
alone, with AVEM alone (never refined) and the exact maximum of the likelihood beside it. All
numbers on this page come from the tables; `python -m studies.overview` writes it anew.
"""


def read(folder: Path) -> dict[str, Tables]:
    """The tables of every study that has been run."""
    found = {}
    for name in catalogue.NAMES:
        own = {path.stem: pd.read_csv(path) for path in sorted((folder / name).glob("*.csv"))}
        if (folder / name / "run.json").exists():
            found[name] = own
    return found


def text(found: dict[str, Tables]) -> str:
    """The page."""
    parts = [HEAD]
    for title, sentences in (
        ("The paper's claims, one by one", claims.one_by_one(found)),
        ("Where they depend on the protocol", claims.where_the_protocol_matters(found)),
        ("What refinement changes", claims.what_refinement_changes(found)),
    ):
        if sentences:
            parts += [f"## {title}", "", *(f"- {words}" for words in sentences), ""]
    parts += ["## All studies", ""]
    for name in found:
        study = catalogue.find(name)
        parts += [f"**[{name}]({name}/README.md)** {study.question}", ""]
        if study.reading is not None:
            parts += [study.reading(found[name]).split("\n\n")[0], ""]
    # For the documentation's contents.
    parts += ["```{toctree}", ":hidden:", "", *(f"{name}/README" for name in found), "```", ""]
    return "\n".join(parts)


def write(folder: Path) -> Path:
    """Write the page into the folder of the studies' pages."""
    path = folder / "README.md"
    write_text(path, text(read(folder)))
    return path


if __name__ == "__main__":
    print(write(Path(__file__).resolve().parents[1] / "docs" / "studies"))
