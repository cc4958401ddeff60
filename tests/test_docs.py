"""The pages of docs/: what can be checked without building them. `make docs` runs their code."""

import ast
import re
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest

import avem
from tests.test_layers import LAYERS

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
sys.path.insert(0, str(DOCS / "_ext"))

from cells import code, split  # noqa: E402

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md"))]
LINK = re.compile(r"(?<!\\)\[[^\[\]]*\]\(([^()\s]+)\)")
CODE = re.compile(r"^(```+|~~~+).*?^\1\s*$|`[^`\n]+`", re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"^#+ +(.+?) *$", re.MULTILINE)


def name(page):
    return str(page.relative_to(ROOT))


def text_of(page):
    """A page without its code; the pages that only include another one are that one."""
    text = page.read_text(encoding="utf-8")
    included = re.search(r"^```\{include\} (\S+)", text, re.MULTILINE)
    return (page.parent / included[1]).read_text(encoding="utf-8") if included else text


def anchors(page):
    """The anchors of a page's headings, as forges and the site make them."""
    without_blocks = re.sub(r"^```.*?^```", "", text_of(page), flags=re.MULTILINE | re.DOTALL)
    words = [re.sub(r"[^\w\- ]", "", title.lower()) for title in HEADING.findall(without_blocks)]
    return {word.replace(" ", "-") for word in words}


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_code_parses_and_comes_at_its_own_lines(page):
    text = page.read_text(encoding="utf-8")
    lines = text.splitlines()
    for cell in code(text):
        assert lines[cell.line - 1] == cell.text.splitlines()[0]
        ast.parse(cell.text, filename=f"{name(page)} at line {cell.line}")


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_lead_somewhere(page):
    for target in LINK.findall(CODE.sub("", page.read_text(encoding="utf-8"))):
        if "://" in target:
            parts = urlsplit(target)
            assert parts.scheme == "https", target
            assert "." in parts.netloc, target
            continue
        file, _, anchor = target.partition("#")
        found = (page.parent / file).resolve() if file else page
        assert found.exists(), f"{name(page)} links to {target}, which is not there"
        if anchor:
            assert anchor in anchors(found), f"{name(page)}: no heading for {target}"


def test_every_page_is_in_the_contents():
    listed = set()
    for page in [*DOCS.rglob("*.md"), *DOCS.rglob("*.rst")]:
        text = page.read_text(encoding="utf-8")
        for tree in re.findall(r"^```\{toctree\}\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
            listed |= {page.parent / line for line in tree.split() if not line.startswith(":")}
        for tree in re.findall(r"^\.\. toctree::\n((?:[ \t]+.*\n|\n)+)", text, re.MULTILINE):
            lines = [line.strip() for line in tree.splitlines()]
            listed |= {page.parent / line for line in lines if line and line[0] != ":"}
    pages = {page.with_suffix("") for page in [*DOCS.rglob("*.md"), *DOCS.rglob("*.rst")]}
    made_or_templates = {page for page in pages if page.parts[-2] in ("reference", "autosummary")}
    assert pages - listed - made_or_templates == {DOCS / "index"}


def test_every_public_name_is_in_the_reference():
    reference = "".join(page.read_text(encoding="utf-8") for page in (DOCS / "api").glob("*.rst"))
    tables = re.findall(r"^\.\. autosummary::\n((?:   .*\n|\n)+)", reference, re.MULTILINE)
    listed = re.findall(r"^   avem\.(\w+)$", "".join(tables), re.MULTILINE)
    assert set(avem.__all__) <= set(listed)
    assert len(set(listed)) == len(listed)


# --- files and names that pages mention ---------------------------------------------------------

SPAN = re.compile(r"`([^`\n]+)`")
FILE = re.compile(r"[\w./-]+(?:\.(?:py|md|h|cc|js|css|csv|svg)|/)")
NAME = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*")


def spans(text):
    """Code within sentences."""
    return SPAN.findall(re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL))


def names_in(file):
    """Classes, functions and, as `Class.name`, what a class has of its own."""
    found = set()
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        found.add(getattr(node, "name", ""))
        for member in node.body if isinstance(node, ast.ClassDef) else []:
            target = getattr(member, "target", None)
            found.add(f"{node.name}.{getattr(member, 'name', getattr(target, 'id', ''))}")
    return found


def stops():
    """Title and text of every stop of the page that follows one fit."""
    page = (DOCS / "one-fit.md").read_text(encoding="utf-8")
    parts = re.split(r"^### (\d+\. .+)$", page, flags=re.MULTILINE)
    return list(zip(parts[1::2], parts[2::2], strict=True))


def test_one_fit_has_at_most_fifteen_stops():
    numbers = [int(title.partition(".")[0]) for title, _ in stops()]
    assert numbers == list(range(1, len(numbers) + 1))
    assert len(numbers) <= 15


@pytest.mark.parametrize(("title", "text"), stops())
def test_a_stop_names_a_file_and_what_is_in_it(title, text):
    file, *names = spans(text.strip().splitlines()[0])
    assert (ROOT / file).is_file(), f"{title}: there is no {file}"
    missing = set(names) - names_in(ROOT / file)
    assert names, title
    assert not missing, f"{title}: {file} has no {missing}"


def test_every_name_on_the_way_exists():
    known = {name for file in (ROOT / "avem").rglob("*.py") for name in names_in(file)}
    for title, text in stops():
        names = {span for span in spans(text) if NAME.fullmatch(span) and not FILE.fullmatch(span)}
        assert names <= known, f"{title}: {names - known} are nowhere in avem"


@pytest.mark.parametrize("page", [ROOT / "CHANGELOG.md", *PAGES], ids=name)
def test_files_and_folders_exist(page):
    """Named from the top of the repository, or from avem/."""
    for span in spans(page.read_text(encoding="utf-8")):
        if FILE.fullmatch(span) and "/" in span:
            places = [ROOT / span, ROOT / "avem" / span]
            made_by_make = span.startswith(("docs-output", "fuzz-output", ".venv"))
            assert made_by_make or any(place.exists() for place in places), f"no {span}"


def test_the_picture_shows_every_layer():
    picture = (DOCS / "images" / "layers.svg").read_text(encoding="utf-8")
    layers = {layer for row in LAYERS for layer in row} - {
        "__main__",
        "_moved",
        "sklearn",
        "priors",
        "mixed",
    }
    words = set(re.findall(r"\w+", " ".join(re.findall(r">([^<>]+)</text>", picture))))
    assert layers <= words


def test_a_page_is_split_into_text_and_code():
    page = (
        "# A\n\n```python\nx = 1\n```\nb\n\n````md\n```python\ny = 2\n```\n````\n\n```py\nz\n```\n"
    )
    cells = split(page)
    assert [(cell.is_code, cell.line) for cell in cells] == [(False, 1), (True, 4), (False, 6)]
    assert cells[1].text == "x = 1"
    assert "y = 2" in cells[2].text
    with pytest.raises(ValueError, match="line 1"):
        split("```python\nx = 1\n")
