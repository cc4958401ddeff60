"""Every example of a docstring runs and shows what it says."""

import doctest
import importlib
import io
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FINDER = doctest.DocTestFinder(exclude_empty=True)
EXTRAS = {
    "avem.fits.fit.Fit.to_arviz": "arviz",
    "avem.integrations.sklearn": "sklearn",
    "avem.data.panel.Panel.scan": "duckdb",
    "avem.data.scanning": "duckdb",
    "avem.fits.lazy": "duckdb",
}
"""Examples that need an optional extra, by how their names begin."""


def module_names():
    """The modules of avem with an example."""
    for path in sorted((ROOT / "avem").rglob("*.py")):
        if ">>> " in path.read_text(encoding="utf-8"):
            parts = path.relative_to(ROOT).with_suffix("").parts
            yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@pytest.mark.usefixtures("blank_pictures")
@pytest.mark.parametrize("name", list(module_names()))
def test_examples_of(name, example_names, tmp_path):
    """They share the names of the root's conftest.py, and a folder to write to."""
    module = importlib.import_module(name)
    names = example_names | {"folder": tmp_path}
    found = [test for test in FINDER.find(module, name, globs=names) if test.examples]
    assert found
    runner = doctest.DocTestRunner(verbose=False)
    said = io.StringIO()
    for test in found:
        if all(find_spec(extra) for of, extra in EXTRAS.items() if test.name.startswith(of)):
            runner.run(test, out=said.write)
    assert not runner.summarize(verbose=False).failed, said.getvalue()
