"""What a newcomer waits for: names of the library bring only what a fit needs."""

import subprocess
import sys

import pytest

LONG = ("scipy.stats", "scipy.optimize", "matplotlib", "jinja2")


def run(code):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize("name", ["MixedHMM", "HMMFit"])
def test_a_model_comes_without_what_is_long_to_import(name):
    code = f"import avem, sys; avem.{name}; print(*(m for m in {LONG} if m in sys.modules))"
    assert run(code) == ""


@pytest.mark.parametrize("collects", [True, False])
def test_garbage_is_collected_after_an_import_as_before(collects):
    before = "pass" if collects else "gc.disable()"
    code = f"import avem, gc; {before}; avem.MixedHMM; print(gc.isenabled(), gc.get_freeze_count())"
    assert run(code) == f"{collects} 0"


def test_garbage_that_is_kept_stays_kept():
    assert (
        run("import avem, gc; gc.freeze(); avem.MixedHMM; print(gc.get_freeze_count() > 0)")
        == "True"
    )
