"""How Sphinx builds the site; `make docs` runs it."""

import json
import logging
import os
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "_ext"))

import reference  # noqa: E402

import avem  # noqa: E402

project, author, version = "avem", "the avem developers", avem.__version__
release, copyright = version, "the avem developers; Apache-2.0"

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "numpydoc",
    "pages",
    "reference",
]
smartquotes = False  # quotes in what can be copied stay as they are
templates_path = ["_templates"]
exclude_patterns = ["_ext", "_static", "_templates"]

# --- pages: Markdown, with code that runs -------------------------------------------------------

nb_custom_formats = {".md": "pages.read"}
nb_execution_mode = "auto"
nb_execution_timeout = 1800  # seconds for one block; busy machines are slow
nb_execution_in_temp = True
nb_output_stderr = "warn"  # a page that warns fails the build
suppress_warnings = [
    "mystnb.exec",  # reported by pages.py, with page and line
    "ref.python",  # `effects()` in a sentence is a method of several classes: it links to one
]
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3

# One process per page, run by this very interpreter; what one of them has compiled, others find,
# and so does the next build. Pages compile more than they compute: the compiler optimises less.
_shared = tempfile.TemporaryDirectory(prefix="avem-docs-")
_kernel = Path(_shared.name) / "jupyter" / "kernels" / "avem-docs"
_kernel.mkdir(parents=True)
_start = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}", "--log-level=40"]
_about = {"argv": _start, "display_name": "avem docs", "language": "python"}
(_kernel / "kernel.json").write_text(json.dumps(_about), encoding="utf-8")
logging.getLogger("traitlets").setLevel(logging.WARNING)
os.environ["JUPYTER_PATH"] = str(_kernel.parents[1])
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(HERE.parent / "docs-output" / ".compiled"))
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=1")
os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0.05"
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"  # compiling on a busy machine is no news
os.environ["JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES"] = "-1"
_path = [str(HERE.parent), str(HERE.parent / "examples"), os.environ.get("PYTHONPATH", "")]
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, _path))

# --- reference from docstrings ------------------------------------------------------------------

default_role = "py:obj"
autodoc_default_options = {"members": True, "member-order": "bysource"}
autodoc_preserve_defaults = True
autosummary_context = reference.CONTEXT  # pages of classes and functions: _ext/reference.py
numpydoc_show_class_members = False
maximum_signature_line_length = 80
python_use_unqualified_type_names = True
add_module_names = False

# --- looks --------------------------------------------------------------------------------------

html_theme = "furo"
html_title = f"avem {version}"
html_static_path = ["_static"]
html_css_files = ["avem.css"]
html_math_renderer = "mathml"
html_copy_source = False
html_show_sphinx = False
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#0072B2", "color-brand-content": "#0072B2"},
    "dark_css_variables": {"color-brand-primary": "#56B4E9", "color-brand-content": "#56B4E9"},
}
