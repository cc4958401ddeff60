# Everything runs in .venv, which is made on first use and brought up to date when
# pyproject.toml changes. Another interpreter: make PYTHON=python3.12 test

PYTHON = python3
JOBS = 2
BIN = .venv/bin
# Without --no-compile a good part of the time goes into modules that are never imported.
PIP_INSTALL = $(BIN)/python -m pip install -qq --disable-pip-version-check --no-compile --prefer-binary
# Those that are imported are compiled once, also where Python is told to keep nothing: the tests start many processes.
export PYTHONDONTWRITEBYTECODE =

.PHONY: demo test test-slow test-costs test-environments fuzz lint docs bench package clean
.NOTPARALLEL:
.DELETE_ON_ERROR:

demo: .venv/.done-demo
	$(BIN)/avem demo --out demo-output

# Tests that share fits and compiled code run in one process: tests/conftest.py says which.
PYTEST = $(BIN)/python -m pytest -n $(JOBS)

test: .venv/.done-test
	$(PYTEST)

test-slow: .venv/.done-test
	$(PYTEST) -m slow

# Processor seconds and compilations of the dearest files and tests (TESTS chooses).
test-costs: .venv/.done-test
	$(PYTEST) --costs=40 $(TESTS)

# TESTS="tests/test_cli.py -k fit" chooses; a short selection otherwise.
test-environments: .venv/.done-test
	tools/try_environments.sh $(TESTS)

# Tries what nobody expects, and ends with 1 if avem stumbles. N cases; CLASS=files chooses (docs/safety.md).
N = 10000
SEED = 0
fuzz: .venv/.done-test
	$(BIN)/python -m tools.fuzz --cases $(N) --seed $(SEED) $(if $(CLASS),--only $(CLASS))

lint: .venv/.done-dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyright --pythonpath $(BIN)/python
	$(BIN)/check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml

# Runs the code of every page, and says which; warnings and links that lead nowhere are errors. Pages keep
# what they gave, and what they compiled, until they change: `make clean` before the last look.
docs: .venv/.done-docs
	$(BIN)/python -m sphinx -W --keep-going -q -j $(JOBS) -d docs-output/.doctrees docs docs-output/html
	@echo "The pages are in docs-output/html/index.html"

# Builds sdist and wheel into dist/, and tries the wheel in an empty environment of $(PYTHON).
package:
	$(PYTHON) tools/check_package.py

bench: .venv/.done-bench
	$(BIN)/python bench/run.py

clean:
	rm -rf .venv build dist demo-output docs-output docs/api/reference fuzz-output study-output .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# One environment serves all: each kind only adds what it lacks. AVEM_PURE=1: the kernels are compiled on first use.
.venv/.done-demo: EXTRA = parquet
.venv/.done-dev: EXTRA = dev
.venv/.done-test: EXTRA = test
.venv/.done-docs: EXTRA = docs
.venv/.done-bench: EXTRA = bench
.venv/.done-demo .venv/.done-dev .venv/.done-test .venv/.done-docs .venv/.done-bench: pyproject.toml | .venv/.done-venv
	@echo "Installing avem[$(EXTRA)] into .venv; the first time takes a minute or two."
	@AVEM_PURE=1 $(PIP_INSTALL) -e '.[$(EXTRA)]'
	@touch $@

.venv/.done-venv:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "avem needs Python 3.11 or newer, which '$(PYTHON)' is not; name one that is, for example: make PYTHON=python3.12 test" >&2; \
	  exit 1; }
	@$(PYTHON) -m venv .venv
	@touch $@
