# Each target sets up what it needs. Python 3.11 or 3.12, make and git are all that has to be there.

SHELL := /bin/bash
PYTHON := $(shell for p in python3.11 python3.12 python3 python; do \
	$$p -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 12))' 2>/dev/null && { command -v $$p; break; }; done)
TOOLS := build/tools
UV := $(TOOLS)/uv/bin/uv
RUN := .venv/bin
SYNCED := .venv/.synced
HOROVOD := .venv/.horovod
ENGINE_NEEDS_horovod := $(HOROVOD)
AWS := $(TOOLS)/aws/bin/aws
MUTANTS := $(TOOLS)/mutants/bin/cosmic-ray
export UV_PYTHON_DOWNLOADS := never
# Tests start hundreds of processes, each of which would compile the sources anew.
unexport PYTHONDONTWRITEBYTECODE
# By this .ci/left_over.py tells what was started from here from what others run.
export DYNTRAIN_CHECKOUTS := $(DYNTRAIN_CHECKOUTS):$(CURDIR)

.PHONY: help setup demo pictures chaos test quick jobs matrices verify mutants bare horovod packages check fmt clean
help:
	@echo "make demo    a job that gains and loses workers while it trains, on an embedded cloud (about a minute)"
	@echo "make chaos   faults of every kind while people change a cluster: DURATION=60 SEED=1"
	@echo "make quick   what decides, the messages and their laws: for the hand while one works (half a minute)"
	@echo "make test    all tests but those of make jobs, matrices and bare (8 minutes); STRICT=1: no second look at what failed"
	@echo "make jobs    whole jobs and the whole system: workers that join, are killed or hang, several hosts, a hunt"
	@echo "make matrices  every case of the tests of many values against many, of which make test has a selection"
	@echo "make horovod the second engine into .venv, built once a machine (4 minutes); make jobs ENGINE=horovod then tests it"
	@echo "make bare    the cluster template's user data on systems with a systemd of their own (root; 10 minutes)"
	@echo "make verify  all of it, hunts and a busy machine too, a line for each part (three and a half hours): PARTS=\"jobs bare\" HUNTS=4"
	@echo "make mutants breaks of the product that tests ought to notice, a random sample (an hour): SEED=1 BREAKS=100 TREE=another/checkout"
	@echo "make witnesses  fetch what judges our claims about AWS; make test does it"
	@echo "make check   format, lint, types, layers, names, length of messages"
	@echo "make fmt     format and mend what can be mended"
	@echo "make bench   measurements beside their bounds: BENCH=name; BENCH=many WORKERS=\"8 14\" BEFORE=../other PEER=1 ALL=1"
	@echo "make pictures   of the dashboard and of what the demo shows, for the documents"
	@echo "make wheel   what nodes and people install"
	@echo "make package, lint-template, deploy, destroy   the controller in AWS: STAGE=dev|prod"
	@echo "make setup, packages   what the targets above need; they make it themselves"
	@echo "make clean   remove what the other targets made"

setup: $(SYNCED)

demo: $(SYNCED)
	$(RUN)/dyntrain local demo --report build/demo/report.json

pictures: $(SYNCED) packages
	$(RUN)/python tests/dashboard/pictures.py
	$(RUN)/dyntrain local demo --report build/demo/report.json --picture controller/local/demo/demo.svg

DURATION ?= 60
SEED ?= 1
chaos: $(SYNCED)
	$(RUN)/dyntrain local chaos --duration $(DURATION) --seed $(SEED) --report build/chaos/report.json

# What failed is looked at once more, alone: tests/second_look.py. STRICT=1 has no second look.
TESTED = DYNTRAIN_AWS_CLI=$(CURDIR)/$(AWS) $(RUN)/python tests/second_look.py
SPREAD := -n 2 --dist loadfile --no-loadscope-reorder
test: $(SYNCED) $(AWS) packages
	$(TESTED) -- $(SPREAD) -m "not (bare or e2e or horovod or jobs or matrix)" $(PYTEST_ARGS)

# What decides, the messages, and the laws of both. In one process: several cost half as much again.
quick: $(SYNCED)
	$(RUN)/python -m pytest -q tests/contracts tests/scenarios tests/training/test_session_* \
		tests/controller/test_controller_facts_laws.py tests/controller/test_controller_planning.py \
		tests/training/test_batching.py tests/training/test_training_sharding.py $(PYTEST_ARGS)

# With ENGINE=horovod: what the training tests prove of workers on ps-lite, of workers on Horovod, but for what only
# servers can do.
ENGINE ?= pslite
ENGINE_TESTS_pslite := -m "(jobs or e2e) and not horovod"
ENGINE_TESTS_horovod := -m "(jobs and not pslite) or horovod" tests/training
jobs: $(SYNCED) $(AWS) packages $(ENGINE_NEEDS_$(ENGINE))
	$(TESTED) --engine $(ENGINE) -- $(SPREAD) $(ENGINE_TESTS_$(ENGINE)) $(PYTEST_ARGS)

# The cases of which `make test` has a selection.
matrices: $(SYNCED)
	$(TESTED) -- $(SPREAD) -m matrix $(PYTEST_ARGS)

horovod: $(HOROVOD)

BARE := build/bare
bare: $(SYNCED) $(AWS)
	@.ci/packages bare
	rm -rf $(BARE)/wheel && $(UV) build --quiet --wheel --out-dir $(BARE)/wheel
	$(TESTED) -m bare -- tests/bare $(PYTEST_ARGS)

HUNTS ?= 4
# PARTS="jobs hunts" for some of them, HUNTS=20 for so many seeds.
verify: $(SYNCED)
	HUNTS=$(HUNTS) $(RUN)/python .ci/verify.py $(PARTS)

# Breaks of the product, and which of them no test notices: .ci/mutants. FLOOR is the percent that have to be killed.
BREAKS ?= 100
SIDE_BY_SIDE ?= 2
FLOOR ?= 0
TREE ?= .
mutants: $(SYNCED) $(AWS) $(MUTANTS)
	$(TOOLS)/mutants/bin/python .ci/mutants --seed $(SEED) --breaks $(BREAKS) --jobs $(SIDE_BY_SIDE) --floor $(FLOOR) --tree $(TREE)

# Some tests want an sshd, iproute2 and a browser.
packages:
	@.ci/packages

check: $(SYNCED)
	$(UV) lock --check --quiet
	$(RUN)/ruff format --check .
	$(RUN)/ruff check .
	$(RUN)/mypy
	$(RUN)/lint-imports
	$(RUN)/python -m pytest -q tests/gate/test_gate_names.py

fmt: $(SYNCED)
	$(RUN)/ruff check --fix-only --quiet .
	$(RUN)/ruff format .

clean:
	rm -rf .venv build .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(SYNCED): pyproject.toml uv.lock training/face/hatch_build.py $(UV)
	@.ci/patiently "setting up: what uv.lock names, MXNet among it, into .venv, compiled (once; a minute)" \
		$(UV) sync --frozen --refresh-package dyntrain --all-extras --no-extra horovod --compile-bytecode --python "$(PYTHON)"
	@touch $@

# Its wheel stays in uv's cache: a second checkout on this machine takes it from there.
$(HOROVOD): $(SYNCED)
	@.ci/packages horovod
	@.ci/patiently "building Horovod against MXNet, unless this machine has it already (minutes)" \
		$(UV) sync --frozen --all-extras --compile-bytecode
	@$(RUN)/python -c "import dyntrain.training.numpy_aliases, horovod.mxnet" || { echo "Horovod wants Python 3.11" >&2; exit 1; }
	@touch $@

$(UV):
	@test -n "$(PYTHON)" || { echo "Python 3.11 or 3.12 is needed and was not found on PATH" >&2; exit 1; }
	@.ci/patiently "setting up: uv, which installs the rest" \
		bash -c '"$(PYTHON)" -m venv $(TOOLS)/uv && $(TOOLS)/uv/bin/pip install --quiet uv==0.13.8'

# The AWS command line pins botocore, so it lives in an environment of its own.
$(AWS): $(UV)
	@$(UV) venv --quiet --clear --python "$(PYTHON)" $(TOOLS)/aws
	@.ci/patiently "setting up: the AWS command line, for the tests" \
		$(UV) pip install --quiet --compile-bytecode --python $(TOOLS)/aws/bin/python awscli==1.45.11

# What makes the breaks, in an environment of its own: it brings web servers and databases that nothing here wants. Both
# versions say what a seed means.
$(MUTANTS): $(UV)
	$(UV) venv --quiet --clear --python "$(PYTHON)" $(TOOLS)/mutants
	$(UV) pip install --quiet --python $(TOOLS)/mutants/bin/python cosmic-ray==8.7.0 parso==0.8.7

-include .chalice/deploy.mk
