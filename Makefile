# Everything a developer does here. It needs Python 3.11 or newer (PYTHON=… says which) and nothing else by hand.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
LOCKS  := requirements/build.txt requirements/dev.txt
LOCKED := $(VENV)/.locked
STAMP  := $(VENV)/.installed
PIP    := $(BIN)/python -m pip --disable-pip-version-check --quiet
PYTEST := $(BIN)/pytest

.DEFAULT_GOAL := help
.PHONY: help run test check format bench soak docs lock clean venv

help: ## say what can be made
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: $(STAMP) ## start the demonstration: a tree whose workers die and come back
	$(BIN)/python -m greenroom.demo

# `coverage run` starts measuring before pytest loads greenroom's own plugin, and it runs the `pytest` script: `python -m pytest`
# would put the repository's root on sys.path, where `import actors` succeeds.
test: check ## all gates, then the whole suite with coverage
	$(BIN)/coverage erase
	$(BIN)/coverage run $(PYTEST)
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report

check: $(STAMP) ## the gates only: ruff, mypy, pyright
	$(BIN)/ruff check --quiet .
	$(BIN)/ruff format --quiet --check .
	$(BIN)/mypy
	$(BIN)/pyright --pythonpath $(BIN)/python

format: $(STAMP) ## let ruff put the code in order
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(STAMP) ## measure, beside the floors of the same run
	$(BIN)/python -m benchmarks

soak: $(STAMP) ## the long tests
	$(PYTEST) -m soak

docs: $(STAMP) ## build the documentation into docs/_build; a warning is an error
	$(BIN)/sphinx-build --quiet --fail-on-warning --keep-going --nitpicky -b html docs docs/_build/html

# Versions and hashes only: which index they come from is the business of whoever installs.
lock: $(STAMP) ## resolve the dependencies anew
	$(BIN)/uv pip compile $(UVFLAGS) requirements/build.in -o requirements/build.txt
	$(BIN)/uv pip compile $(UVFLAGS) --all-extras --group dev pyproject.toml -o requirements/dev.txt
UVFLAGS := --quiet --upgrade --universal --python-version 3.11 --generate-hashes --no-header \
	--no-emit-index-url --no-emit-find-links

clean: ## remove what was made
	rm -rf $(VENV) build dist docs/_build htmlcov .coverage .coverage.* .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
	rm -rf src/*.egg-info *.egg-info

venv: $(STAMP) ## create .venv from the lock

# The build requirements come first and everything is then built without isolation, so that nothing unlocked is ever fetched.
$(LOCKED): $(LOCKS)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "greenroom needs Python 3.11 or newer; '$(PYTHON)' is: $$($(PYTHON) --version 2>&1)"; \
	  echo "Say which one to use: make PYTHON=/path/to/python3.12 $(MAKECMDGOALS)"; exit 1; } >&2
	$(PYTHON) -m venv --clear $(VENV)
	$(PIP) install --require-hashes -r requirements/build.txt
	$(PIP) install --require-hashes --no-build-isolation -r requirements/dev.txt
	@touch $@

$(STAMP): $(LOCKED) pyproject.toml
	$(PIP) install --no-build-isolation --no-deps --editable .
	@touch $@
