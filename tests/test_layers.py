"""Imports inside avem point one way: down the layers."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "avem"

# Bottom to top. Modules in one row are siblings: neither imports the other.
LAYERS = [
    ("errors", "_moved"),  # _moved: former places of public names, for the package itself
    ("numerics",),
    ("kernels",),
    ("data",),
    ("execution",),
    ("families",),
    ("effects",),
    ("components",),
    ("models",),
    ("inference",),
    ("fits",),
    ("mixed",),
    ("mixed_hmm", "mixed_ssm"),  # what the user types: calls every layer
    ("workflows", "integrations"),  # many fits of one model; models for other tools
    ("sklearn", "priors"),  # public names of what is defined below
    ("cli", "__main__"),
]
RANK = {name: rank for rank, names in enumerate(LAYERS) for name in names}
NUMPY_ONLY = {"data", "fits"}
MAY_IMPORT_THE_PACKAGE = {"cli", "__main__"}


def imported_modules(tree, package):
    """(line, dotted name) of every import, wherever it stands; `package` resolves relative ones."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = [node.module] if node.module else []
            if node.level:
                base = package[: len(package) - node.level + 1] + base
            base = ".".join(base)
            if base == "avem":  # `from avem import data` names the layer only here
                yield from ((node.lineno, f"avem.{alias.name}") for alias in node.names)
            else:
                yield node.lineno, base


def complaint(layer, target):
    """Why `layer` may not import the module `target`, or None."""
    root, _, rest = target.partition(".")
    if root in {"jax", "jaxlib"} and layer in NUMPY_ONLY:
        return f"{layer} is NumPy only, but imports {target}"
    if root != "avem":
        return None
    below = rest.partition(".")[0]
    if below not in RANK:
        if layer in MAY_IMPORT_THE_PACKAGE:
            return None
        return f"{layer} imports {target}, which is no layer: import from the layer that defines it"
    if below == layer or RANK[below] < RANK[layer]:
        return None
    if layer == "__main__" and below == "cli":
        return None
    return f"{layer} imports {target}, which is not below it"


def violations(package):
    """One sentence for each import that points the wrong way, over all files under `package`."""
    found = []
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package).with_suffix("").parts
        layer = parts[0]
        if layer == "__init__":
            continue  # the public names: may import everything
        where = path.relative_to(package.parent).as_posix()
        if layer not in RANK:
            found.append(f"{where}: has no layer; give it one in LAYERS")
            continue
        tree = ast.parse(path.read_text(encoding="utf-8"), filename=str(path))
        for line, target in imported_modules(tree, ["avem", *parts[:-1]]):
            if reason := complaint(layer, target):
                found.append(f"{where}:{line}: {reason}")
    return found


def test_imports_point_one_way():
    found = violations(PACKAGE)
    assert not found, "\n".join(found)


def write(folder, path, source):
    file = folder / "avem" / path
    file.parent.mkdir(parents=True)
    file.write_text(source, encoding="utf-8")
    return violations(folder / "avem")


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("numerics/nodes.py", "from avem.data.panel import Panel"),
        ("numerics/nodes.py", "import avem.models"),
        ("numerics/nodes.py", "from avem import data"),
        ("numerics/nodes.py", "from ..data import Panel"),
        ("numerics/nodes.py", "from .. import data"),
        ("numerics/__init__.py", "from ..data import Panel"),
        ("numerics/deep/nodes.py", "from ...data import Panel"),
        ("errors.py", "from .numerics import nodes"),
        ("effects/prior.py", "def f():\n    from ..models import hmm"),
        ("effects/prior.py", "if TYPE_CHECKING:\n    from avem.models import MixedHMM"),
        ("kernels/kalman.py", "from ..families import gaussian"),
        ("families/gaussian.py", "from ..components import emissions"),
        ("inference/loop.py", "from ..fits import fit"),
        ("fits/fit.py", "from ..cli import app"),
        ("fits/fit.py", "import avem"),
        ("fits/fit.py", "from avem import MixedHMM"),
        ("fits/fit.py", "from .. import MixedHMM"),
        ("fits/fit.py", "import jax.numpy as jnp"),
        ("data/panel.py", "from jax import numpy"),
        ("helpers/misc.py", ""),
    ],
)
def test_a_wrong_import_is_found(tmp_path, path, source):
    assert len(write(tmp_path, path, source)) == 1


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("__init__.py", "from avem.models import MixedHMM"),
        ("cli.py", "import avem\nfrom avem import MixedHMM\nfrom .fits import fit"),
        ("__main__.py", "from avem.cli import app"),
        ("numerics/nodes.py", "import jax\nfrom . import logs\nfrom .logs import f"),
        ("kernels/kalman.py", "from avem.errors import AvemError\nfrom ..numerics import logs"),
        ("fits/fit.py", "import jaxtyping\nimport numpy\nfrom ..inference import loop"),
        ("fits/deep/fit.py", "from ...models import hmm\nfrom ..plots import draw"),
    ],
)
def test_a_right_import_is_left_alone(tmp_path, path, source):
    assert write(tmp_path, path, source) == []


def backends_after(code):
    """The JAX backends that a fresh interpreter has started once it has run `code`."""
    code += (
        "\nimport sys\n"
        "bridge = sys.modules.get('jax._src.xla_bridge')\n"
        "print('backends:', *(bridge._backends if bridge else []))\n"
    )
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    return run.stdout.split("backends:")[-1].split()


@pytest.mark.skipif(not (PACKAGE / "__init__.py").exists(), reason="no avem/__init__.py yet")
def test_importing_avem_starts_no_jax_backend():
    assert backends_after("import avem") == []


def test_a_started_backend_is_seen():
    assert "cpu" in backends_after("import jax.numpy\njax.numpy.ones(1)")
