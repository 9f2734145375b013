# What a person runs here; `make help` lists it. Everything goes into .venv, nothing else is touched
# (apart from `peers`, which installs Debian packages where it may).

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
SITE := build/site/index.html
BUILD_SITE = NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet

# Every package, in order of need.
PACKAGES := penstock penstock-store penstock-spark penstock-history penstock-hives penstock-jobs \
	penstock-pump pytest-penstock
EDITABLE := $(foreach package,$(PACKAGES),-e packages/$(package)[test])

# Five files run at a time, the longest first (tests/order.py). Each worker has its own servers. They
# are more than there are cores, because many tests wait for servers and clients.
PARALLEL := --workers 5

# Tests start some thousand programs: what those were compiled to is kept, whatever the shell says.
export PYTHONDONTWRITEBYTECODE :=

# The first interpreter that is new enough; `make PYTHON=/path/to/python setup` says otherwise.
PYTHON ?= $(shell for python in python3 python3.13 python3.12 python3.11; do \
	$$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
	&& echo $$python && break; done)

define NO_PYTHON
Penstock needs Python 3.11 or later, and `python3` is older or missing.
Install one (Debian 12 and later: apt-get install python3 python3-venv), or name one:
    make PYTHON=/path/to/python3.11 setup
endef

define NO_VENV
$(PYTHON) could not make a virtual environment. Debian keeps what it needs in a package of its own:
    apt-get install python3-venv
endef

export NO_PYTHON NO_VENV

.PHONY: help setup up peers peers-new lint test test-all test-spark-oldest bench docs dist clean $(addprefix test-,broker store spark history hives jobs pump pytest)

help: ## This list
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 12

setup: $(STAMP) ## The environment: .venv with every package and all that tests them

# Remade when what it is made from changed; otherwise this costs nothing.
$(STAMP): pyproject.toml requirements-test.txt constraints.txt $(wildcard packages/*/pyproject.toml)
	@test -n '$(PYTHON)' || { echo "$$NO_PYTHON" >&2; exit 1; }
	@test -x $(BIN)/pip || $(PYTHON) -m venv --clear $(VENV) || { echo "$$NO_VENV" >&2; exit 1; }
	@echo "Installing into $(VENV) what Penstock needs, once; this takes a few minutes."
	@scripts/install $(VENV) $(EDITABLE) -r requirements-test.txt -r requirements-bench.txt
	@touch $@

# Spark runs on Java, which no wheel brings. Without it everything else runs, and says so.
up: setup $(SITE) ## Everything there is, running on this machine; Ctrl-C stops it
	@scripts/peers --only java
	@$(BIN)/penstock up

peers: ## The servers that integration tests talk to, from Debian packages, where we may
	@scripts/peers

peers-new: ## Newer brokers beside the system's, for benchmarks and slow tests, where we may
	@scripts/peers-new

lint: setup ## What can be said without running anything: ruff, mypy, the rooms' doors
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

test: SELECTED := not slow
test: setup peers ## All checks and the tests that do not take long
	$(CHECKED)

test-all: SELECTED := slow or not slow
test-all: setup peers peers-new ## The same, and the tests that do take long
	$(CHECKED)

# Beside the environment's own Spark, without another environment.
test-spark-oldest: setup peers ## The Spark connector with the oldest Spark that it supports
	PYTHONPATH=$(CURDIR)/$(lastword $(sort $(wildcard .peers/pyspark-*))) $(BIN)/pytest --workers 2 -m 'not peer and not slow' \
		$(foreach part,batch loss register stream write,packages/penstock-spark/tests/pipeline/test_$(part).py)

# One package in an environment of its own: .venv-hives has penstock-hives and what it depends on.
test-broker test-store test-spark test-history test-hives test-jobs test-pump test-pytest: test-%:
	@scripts/test-package $*

dist: setup $(SITE) ## Wheels, source distributions and bills of materials of all packages, in dist/
	@for package in $(PACKAGES); do (cd packages/$$package && ../../$(BIN)/python -m hatchling build -d ../../dist); done
	@$(BIN)/python -m scripts.bill_of_materials dist $(PACKAGES)
	@$(BIN)/python -m scripts.openapi_files dist
	@$(BIN)/pytest -q -m 'slow or not slow' tests/distributions

# Lint and tests side by side: the tests leave time for it while they wait. What lint says is shown
# after the tests. Some tests load their peer when they are collected, so peers are there first.
define CHECKED
@said=$$(mktemp); trap 'rm -f "$$said"' EXIT; status=0; \
$(MAKE) --no-print-directory lint >"$$said" 2>&1 & lint=$$!; \
$(BIN)/pytest $(PARALLEL) -m '$(SELECTED)' || status=$$?; \
wait $$lint || status=$$?; \
cat "$$said"; exit $$status
endef

bench: setup peers ## Penstock beside its peers, for hours; writes docs/benchmarks.md
	$(BIN)/python -m benchmarks.broker --markdown docs/benchmarks.md
	$(BIN)/python -m benchmarks.mqtt --markdown docs/benchmarks.md
	$(BIN)/python -m benchmarks.amqp10 --markdown docs/benchmarks.md
	$(BIN)/python -m benchmarks.bystander --markdown docs/benchmarks.md
	$(BIN)/python -m benchmarks.startup --markdown docs/benchmarks.md
	$(BIN)/python -m benchmarks.scale --markdown docs/benchmarks.md
	$(BIN)/python -m benchmarks.spark --markdown docs/benchmarks.md
	$(BIN)/python -m benchmarks.pipeline --markdown docs/benchmarks.md
	$(BIN)/python -m benchmarks.accuracy --markdown docs/benchmarks.md
	$(BIN)/python -m benchmarks.content --markdown docs/benchmarks.md
	$(BIN)/python -m benchmarks.hives --markdown docs/benchmarks.md
	$(BIN)/python -m benchmarks.alerts
	$(BIN)/python -m benchmarks.jobs --markdown docs/benchmarks.md
	$(BIN)/python -m benchmarks.pump --markdown docs/benchmarks.md

docs: setup ## The pages that are made from the code, and the site in build/site
	$(BIN)/python -m scripts.configuration_page
	$(BIN)/python -m scripts.reference_pages
	$(BUILD_SITE)

# The site alone, which a broker serves at /docs.
$(SITE): $(STAMP) mkdocs.yml $(shell find docs -name '*.md')
	$(BUILD_SITE)

clean: ## Forget the environment and everything that can be made again
	rm -rf $(VENV) .venv-* build dist .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	find packages tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +
