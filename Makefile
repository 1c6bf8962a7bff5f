# One command each: `make setup` once, then `make check` and `make test`; `make demo` shows it all.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.setup

.DEFAULT_GOAL := help
.PHONY: help setup gen fmt check test test-faults test-slow demo bench lock clean

help: ## Say what there is to make.
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 14

setup: $(STAMP) ## Make the virtual environment with everything pinned.

$(STAMP): requirements-dev.txt pyproject.toml tools/prerequisites.sh
	@bash tools/prerequisites.sh "$(PYTHON)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-dev.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $(STAMP)

gen: $(STAMP) ## Generate the Python stubs and docs/api/ from protos/.
	$(BIN)/python tools/generate.py
	$(BIN)/python tools/reference.py

fmt: $(STAMP) ## Format Python and protos, and fix what can be fixed.
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .
	$(BIN)/buf format -w

# The contracts as they last landed; `make landed` takes today's when a release is cut.
LANDED := tests/contract/landed/contracts.binpb

.PHONY: landed
landed: $(STAMP) ## Take today's contracts as those that may no longer break.
	$(BIN)/buf build --exclude-source-info -o $(LANDED)

check: $(STAMP) ## Format, lint, types, imports, protos, generated code: all verified, nothing changed.
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/buf lint
	$(BIN)/buf format -d --exit-code
	$(BIN)/buf breaking --against $(LANDED)
	$(BIN)/python tools/generate.py --verify
	$(BIN)/python tools/reference.py --verify
	$(BIN)/lint-imports --no-cache
	$(BIN)/mypy

test: $(STAMP) ## The whole test suite but the slow and the fault tests.
	@# Two at a time, but those that start whole suites: they have the machine to themselves.
	@failed=0; \
	$(BIN)/pytest -q -n 2 -m "not slow and not faults" --ignore tests/e2e || failed=1; \
	$(BIN)/pytest -q -m "not slow and not faults" tests/e2e || failed=1; \
	exit $$failed

test-faults: $(STAMP) ## Kill and pause real processes while they work.
	$(BIN)/pytest -q -m faults

test-slow: $(STAMP) ## What takes minutes: whole traces, hundreds of simulated histories.
	$(BIN)/pytest -q -m "slow and not faults"

demo: $(STAMP) ## Start the suite on this machine and show the main job on real work.
	$(BIN)/tenure demo

bench: $(STAMP) ## Measure speed; prints figures with their baselines.
	$(BIN)/python -m tests.bench

lock: ## Pin every dependency anew, with hashes.
	$(BIN)/python -m pip install --quiet uv
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header \
		--no-emit-index-url --no-annotate --group dev pyproject.toml -o requirements-dev.txt

clean: ## Forget the virtual environment.
	rm -rf $(VENV)

HELM_VENV := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/tenure/helm-0.2.2-kubernetes-1.37.0

.PHONY: helm-check
helm-check: $(STAMP) $(HELM_VENV)/.ready ## Lint, render and judge the chart, and install the image's environment.
	TENURE_HELM_PYTHON=$(HELM_VENV)/bin/python $(BIN)/pytest -q tests/helm

# Heavy and needed for nothing else: not part of requirements-dev.txt.
$(HELM_VENV)/.ready:
	$(PYTHON) -m venv $(HELM_VENV)
	$(HELM_VENV)/bin/python -m pip install --quiet --disable-pip-version-check \
		helm-python-sdk==0.2.2 kubernetes-validate==1.37.0
	@touch $@

SEED ?= 1
STEPS ?= 2500

.PHONY: sim
sim: $(STAMP) ## Run the whole control plane on virtual time with faults: SEED=… STEPS=…, a transcript.
	@$(BIN)/python -m tests.simulation --seed $(SEED) --steps $(STEPS)

COUNT ?= 10000

.PHONY: fuzz
fuzz: $(STAMP) ## Send every call COUNT odd requests (SEED=…), and abuse the sockets below; on a real suite.
	@$(BIN)/python -m tests.fuzz --count $(COUNT) --seed $(SEED)

DURATION_S ?= 120
FACTOR ?= 10

.PHONY: overload
overload: $(STAMP) ## Offer admission FACTOR=10 times what it can do; judge goodput, latency, recovery.
	@$(BIN)/python -m tests.overload --seconds $(DURATION_S) --factor $(FACTOR)

.PHONY: polyglot
polyglot: $(STAMP) ## Tell the conformance story in every language that has a client and its tools here.
	$(BIN)/python -m examples.polyglot

DOCS_VENV := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/tenure/docs-1.6.1

.PHONY: docs
docs: $(DOCS_VENV)/.ready ## Build the documentation as pages to read in a browser, below build/docs.
	$(DOCS_VENV)/bin/mkdocs build --strict --quiet --site-dir build/docs

# Needed for nothing else: not part of requirements-dev.txt.
$(DOCS_VENV)/.ready:
	$(PYTHON) -m venv $(DOCS_VENV)
	$(DOCS_VENV)/bin/python -m pip install --quiet --disable-pip-version-check mkdocs==1.6.1
	@touch $@
