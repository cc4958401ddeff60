"""What is said of the package in several places agrees, and workflows name what exists."""

import re
import shlex
import tomllib
from pathlib import Path

import pytest
import yaml

import avem

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
CITATION = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def targets():
    """What `make` can be asked for."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    return set(re.findall(r"^([\w-]+):", makefile, re.MULTILINE))


def jobs(path):
    return yaml.safe_load(path.read_text(encoding="utf-8"))["jobs"]


def commands(path):
    """Every command that a workflow runs, as words."""
    steps = [step for job in jobs(path).values() for step in job["steps"]]
    lines = [line for step in steps for line in step.get("run", "").splitlines()]
    return [shlex.split(line, comments=True) for line in lines]


def test_there_is_one_version():
    assert PROJECT["project"]["dynamic"] == ["version"]
    place = ROOT / PROJECT["tool"]["hatch"]["version"]["path"]
    assert f'__version__ = "{avem.__version__}"' in place.read_text(encoding="utf-8")
    assert CITATION["version"] == CITATION["preferred-citation"]["version"] == avem.__version__


def test_every_release_has_a_heading_newest_first():
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    headings = re.findall(r"^## (.+)$", changes, re.MULTILINE)
    found = [
        re.fullmatch(r"\[(\d+\.\d+\.\d+)\] - (unreleased|\d{4}-\d\d-\d\d)", h) for h in headings
    ]
    assert all(found), headings
    versions = [tuple(map(int, one[1].split("."))) for one in found]
    assert versions == sorted(set(versions), reverse=True)
    assert found[0][1] == avem.__version__.removesuffix(".dev0")
    assert all(one[2] != "unreleased" for one in found[1:])


def test_the_citation_is_one():
    assert {"cff-version", "message", "title", "authors"} <= set(CITATION)
    assert CITATION["cff-version"] == "1.2.0"
    assert CITATION["preferred-citation"]["year"] == 2026
    names = {author["name"] for author in CITATION["authors"]}
    assert names == {author["name"] for author in PROJECT["project"]["authors"]}
    assert CITATION["license"] == PROJECT["project"]["license"]


def test_every_python_that_is_named_is_tried():
    named = re.findall(r"Python :: (3\.\d+)", "\n".join(PROJECT["project"]["classifiers"]))
    matrix = jobs(ROOT / ".github" / "workflows" / "check.yml")["test"]["strategy"]["matrix"]
    assert matrix["python"] == named
    assert PROJECT["project"]["requires-python"] == f">={named[0]}"
    systems = " ".join(matrix["os"])
    assert all(system in systems for system in ("ubuntu", "macos", "windows"))


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_workflows_run_what_exists(path):
    made = ("docs-output/", "dist/", "wheelhouse/")
    extras = PROJECT["project"]["optional-dependencies"]
    assert commands(path) or path.name == "release.yml"
    for words in commands(path):
        if words[0] == "make":
            assert set(words[1:]) <= targets(), words
        for word in words[1:]:
            if extra := re.fullmatch(r"\.\[(\w+)\]", word):
                assert extra[1] in extras
            elif "/" in word and not word.startswith(made):
                assert (ROOT / word).exists(), word
    uploads = [
        s for job in jobs(path).values() for s in job["steps"] if "upload" in s.get("uses", "")
    ]
    assert all(step["with"]["path"].startswith(made) for step in uploads)


def test_wheels_are_tried_by_a_script_that_exists():
    command = PROJECT["tool"]["cibuildwheel"]["test-command"]
    (script,) = re.findall(r"\{project\}/(\S+)", command)
    assert (ROOT / script).is_file()


def test_the_readme_reads_well_where_pictures_do_not_show():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    for words, place in re.findall(r"!\[(.*?)\]\((.+?)\)", text):
        assert len(words.split()) > 3, place
        assert (ROOT / place).is_file()
