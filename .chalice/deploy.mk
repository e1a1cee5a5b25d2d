# Packaging, deployment and benchmarks; included by the Makefile. STAGE=dev|prod, ARCH=x86_64|arm64, STACK names the stack (dyntrain-<stage>).
# BENCH names the benchmarks to run (all).

STAGE ?= dev
ARCH ?= x86_64
STACK ?= dyntrain-$(STAGE)
PACKAGE := build/package/$(STAGE)-$(ARCH)
LINT := $(TOOLS)/lint/bin/cfn-lint

.PHONY: package wheel lint-template deploy destroy bench
package: $(SYNCED)
	$(RUN)/python .chalice/package.py --stage $(STAGE) --arch $(ARCH) --out $(PACKAGE)

# What nodes install. Left-overs of an earlier build would be packed too.
wheel: $(SYNCED)
	rm -rf build/lib build/dist
	$(UV) build --quiet --wheel --out-dir build/dist

# A wrong IAM action shows only in what SAM is translated to, so both are linted.
lint-template: package $(LINT)
	$(LINT) node_bootstrap/cluster.template.yaml
	$(TOOLS)/lint/bin/python .chalice/translate.py $(PACKAGE)/sam.json $(PACKAGE)/translated.json
	$(LINT) $(PACKAGE)/sam.json $(PACKAGE)/translated.json

deploy: package
	$(RUN)/python .chalice/deploy.py up --stack $(STACK) --package $(PACKAGE) $(DEPLOY_ARGS)

destroy: $(SYNCED)
	$(RUN)/python .chalice/deploy.py down --stack $(STACK)

bench: $(SYNCED)
	$(RUN)/python tests/benchmarks $(BENCH)

# The tests of the package translate and lint it too.
test: $(LINT)
check: lint-template

# aws-sam-translator pins pydantic, so both live in an environment of their own.
$(LINT): $(UV)
	$(UV) venv --quiet --clear --python "$(PYTHON)" $(TOOLS)/lint
	$(UV) pip install --quiet --python $(TOOLS)/lint/bin/python cfn-lint==1.58.0 aws-sam-translator==1.115.0
