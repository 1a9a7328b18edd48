# Everything is installed into .venv, from the lock files in requirements/, once.

VENV    ?= .venv
WORKERS ?= 2
ARGS    ?=
# The one tool of `make lock`; nothing else needs it.
UV      ?= uv==0.13.7

BIN     := $(VENV)/bin
# Python makes the byte code of what it imports; pip would make it of everything, most of which nobody does.
PIP     := $(BIN)/python -m pip --disable-pip-version-check install --quiet --no-compile
PYTEST  := $(BIN)/python -m pytest
# Compiling is most of what the tests do. XLA's older code for fused operations compiles in about half the time, and leaving
# optimisations out saves a third of the rest. `make test COMPILE_FAST=` compiles as for everybody, as the other groups do.
COMPILE_FAST ?= XLA_FLAGS="$$XLA_FLAGS --xla_backend_extra_options=xla_cpu_disable_new_fusion_emitters" \
                JAX_DISABLE_MOST_OPTIMIZATIONS=1
COMPILE := .cache/lock/bin/uv pip compile --quiet --universal --python-version 3.11 --fork-strategy fewest \
           --no-emit-index-url --no-emit-find-links --custom-compile-command "make lock" $(ARGS)

.DEFAULT_GOAL := help
# Two installations at once would write to one folder.
.NOTPARALLEL:
.PHONY: help demo test test-peers test-data test-full test-browser lint format types imports check bench docs peers lock clean

help:  ## print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo
	@echo "  PYTHON=... picks the Python that makes .venv, WORKERS=... the test processes, ARGS=... goes to the tool called."

demo: $(VENV)/.runtime  ## install, then run the demonstration
	$(BIN)/gde demo $(ARGS)

test: $(VENV)/.test  ## install, then run every test that needs nothing more than Python
	$(COMPILE_FAST) $(PYTEST) -n $(WORKERS) --dist worksteal -m "not peers and not data and not browser" $(ARGS)

test-peers: $(VENV)/.peers  ## the tests that compare with PyTorch libraries
	$(PYTEST) -m peers $(ARGS)

test-data: $(VENV)/.test  ## the tests on real data sets: NEURALGDE_DATA=folder make test-data
	@$(need_data)
	$(PYTEST) -m "data and not full" $(ARGS)

test-full: $(VENV)/.test  ## those that take many minutes: NEURALGDE_DATA=folder make test-full
	@$(need_data)
	$(PYTEST) -m full $(ARGS)

test-browser: $(VENV)/.test  ## the tests that open pages in a headless Chromium
	$(PYTEST) -m browser $(ARGS)

lint: $(VENV)/.dev  ## ruff: rules and format
	$(BIN)/ruff check
	$(BIN)/ruff format --check

format: $(VENV)/.dev  ## let ruff mend what it can
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

types: $(VENV)/.dev  ## pyright on src
	$(BIN)/pyright

imports: $(VENV)/.dev  ## which folder may import which
	$(BIN)/lint-imports

check: lint types imports  ## lint, types and imports

bench: $(VENV)/.peers  ## ours and the peers', the same work in one run
	$(BIN)/python -m benchmarks $(ARGS)

docs: $(VENV)/.docs  ## build the documentation into build/docs
	$(BIN)/mkdocs build --strict $(ARGS)

peers: $(VENV)/.peers  ## install the PyTorch libraries that tests and benchmarks compare with

lock: .cache/lock/bin/uv  ## resolve the lock files anew (ARGS=--upgrade takes newer versions)
	$(COMPILE) --generate-hashes --extra dev -o requirements/dev.lock pyproject.toml requirements/build.in
	$(COMPILE) --generate-hashes -c requirements/dev.lock -o requirements/runtime.lock pyproject.toml requirements/build.in
	$(COMPILE) --generate-hashes --extra test -c requirements/dev.lock -o requirements/test.lock pyproject.toml \
	    requirements/build.in
	$(COMPILE) --generate-hashes --extra docs -c requirements/dev.lock -o requirements/docs.lock pyproject.toml \
	    requirements/build.in
	$(COMPILE) --extra peers --excludes requirements/peers.exclude -c requirements/dev.lock \
	    -o requirements/peers.lock pyproject.toml

clean:  ## remove .venv, caches and builds
	rm -rf $(VENV) .cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache build dist
	find src tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

define need_data
test -d "$$NEURALGDE_DATA" || { echo "make $@: set NEURALGDE_DATA to the folder of the data sets" >&2; exit 2; }
endef

# Python 3.11 comes first because the lock files are tested with it. Each candidate is run, not only looked up.
define find_python
for p in $(PYTHON) $(if $(PYTHON),,python3.11 python3.12 python3.13 python3.14 python3 python); do \
    "$$p" -c 'import sys, ensurepip, venv; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && { found=$$p; break; }; \
done; \
if [ -z "$$found" ]; then \
    echo "neuralgde needs Python 3.11 or newer with its venv module, and found none$(if $(PYTHON), in PYTHON=$(PYTHON))." >&2; \
    echo "Install one, or name it: make PYTHON=/path/to/python3.11 ..." >&2; exit 2; \
fi
endef

$(BIN)/python:
	@$(find_python); echo "making $(VENV) with $$("$$found" --version)"; "$$found" -m venv $(VENV)

# Each holds those before it, so that they need not be installed again.
within_test := $(VENV)/.runtime
within_dev  := $(VENV)/.runtime $(VENV)/.test
$(VENV)/.runtime $(VENV)/.test $(VENV)/.dev: $(VENV)/.%: requirements/%.lock pyproject.toml | $(BIN)/python
	@echo "installing from requirements/$*.lock"
	@$(PIP) --require-hashes -r requirements/$*.lock
	@$(PIP) --no-deps --no-build-isolation -e .
	@touch $(within_$*) $@

$(VENV)/.docs: requirements/docs.lock $(VENV)/.dev
	@echo "installing from requirements/docs.lock"
	@$(PIP) --require-hashes -r requirements/docs.lock
	@touch $@

# torch brings its own dependencies, which differ between its builds; the rest is exactly the lock file.
$(VENV)/.peers: requirements/peers.lock $(VENV)/.dev
	@echo "installing from requirements/peers.lock"
	@$(PIP) -c requirements/peers.lock "$$(grep '^torch==' requirements/peers.lock)"
	@$(PIP) --no-deps -r requirements/peers.lock
	@touch $@

.cache/lock/bin/uv:
	@$(find_python); "$$found" -m venv .cache/lock
	@.cache/lock/bin/python -m pip --disable-pip-version-check install --quiet $(UV)
