# Each target sets up what it needs. Python 3.11 or 3.12, make and git are all that has to be there.

SHELL := /bin/bash
PYTHON := $(shell for p in python3.11 python3.12 python3 python; do \
	$$p -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 12))' 2>/dev/null && { command -v $$p; break; }; done)
TOOLS := build/tools
UV := $(TOOLS)/uv/bin/uv
RUN := .venv/bin
SYNCED := .venv/.synced
AWS := $(TOOLS)/aws/bin/aws
export UV_PYTHON_DOWNLOADS := never
export PYTHONDONTWRITEBYTECODE := 1

.PHONY: help setup demo chaos test check fmt clean
help:
	@echo "make demo    a job that gains and loses workers while it trains, on an embedded cloud (2 minutes)"
	@echo "make chaos   faults of every kind while people change a cluster: DURATION=60 SEED=1"
	@echo "make test    all tests"
	@echo "make check   format, lint, types, layers"
	@echo "make fmt     format and mend what can be mended"
	@echo "make clean   remove what the other targets made"

setup: $(SYNCED)

demo: $(SYNCED)
	$(RUN)/dyntrain local demo --report build/demo/report.json

DURATION ?= 60
SEED ?= 1
chaos: $(SYNCED)
	$(RUN)/dyntrain local chaos --duration $(DURATION) --seed $(SEED) --report build/chaos/report.json

test: $(SYNCED) $(AWS)
	DYNTRAIN_AWS_CLI=$(CURDIR)/$(AWS) $(RUN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder $(PYTEST_ARGS)

check: $(SYNCED)
	$(UV) lock --check --quiet
	$(RUN)/ruff format --check .
	$(RUN)/ruff check .
	$(RUN)/mypy
	$(RUN)/lint-imports

fmt: $(SYNCED)
	$(RUN)/ruff check --fix-only --quiet .
	$(RUN)/ruff format .

clean:
	rm -rf .venv build .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(SYNCED): pyproject.toml uv.lock $(UV)
	$(UV) sync --frozen --all-extras --compile-bytecode --python "$(PYTHON)"
	@touch $@

$(UV):
	@test -n "$(PYTHON)" || { echo "Python 3.11 or 3.12 is needed and was not found on PATH" >&2; exit 1; }
	"$(PYTHON)" -m venv $(TOOLS)/uv
	$(TOOLS)/uv/bin/pip install --quiet uv==0.13.8

# The AWS command line pins botocore, so it lives in an environment of its own.
$(AWS): $(UV)
	$(UV) venv --quiet --clear --python "$(PYTHON)" $(TOOLS)/aws
	$(UV) pip install --quiet --compile-bytecode --python $(TOOLS)/aws/bin/python awscli==1.45.11

-include .chalice/deploy.mk
