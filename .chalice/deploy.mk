# Packaging, deployment and benchmarks; included by the Makefile. STAGE=dev|prod, ARCH=x86_64|arm64, STACK names the stack (dyntrain-<stage>).
# BENCH names the benchmarks to run (all).

STAGE ?= dev
ARCH ?= x86_64
STACK ?= dyntrain-$(STAGE)
PACKAGE := build/package/$(STAGE)-$(ARCH)
LINT := $(TOOLS)/lint/bin/cfn-lint
WITNESS := $(TOOLS)/witness/bin/python
DYNALITE := $(TOOLS)/dynalite/node_modules/dynalite/cli.js

.PHONY: package wheel lint-template deploy destroy bench witnesses
package: $(SYNCED)
	$(RUN)/python .chalice/package.py --stage $(STAGE) --arch $(ARCH) --out $(PACKAGE)

# The package that nodes install. Without rm it would include left-overs of an earlier build.
wheel: $(SYNCED)
	rm -rf build/lib build/dist
	$(UV) build --quiet --wheel --out-dir build/dist

# A wrong IAM action shows only in what SAM is translated to, so both are linted.
lint-template: package $(LINT)
	$(LINT) node_bootstrap/cluster.template.yaml node_bootstrap/job.template.yaml
	$(TOOLS)/lint/bin/python .chalice/translate.py $(PACKAGE)/sam.json $(PACKAGE)/translated.json
	$(LINT) $(PACKAGE)/sam.json $(PACKAGE)/translated.json

deploy: package
	$(RUN)/python .chalice/deploy.py up --stack $(STACK) --package $(PACKAGE) $(DEPLOY_ARGS)

destroy: $(SYNCED)
	$(RUN)/python .chalice/deploy.py down --stack $(STACK)

bench: $(SYNCED)
	$(RUN)/python tests/benchmarks $(BENCH)

# The tests of the package translate and lint it too.
test: $(LINT) witnesses
check: lint-template

# aws-sam-translator pins pydantic, so both live in an environment of their own.
$(LINT): $(UV)
	$(UV) venv --quiet --clear --python "$(PYTHON)" $(TOOLS)/lint
	$(UV) pip install --quiet --python $(TOOLS)/lint/bin/python cfn-lint==1.58.0 aws-sam-translator==1.115.0

# Third-party programs that verify our claims about AWS: IAM's tables, a matcher of event patterns (only this part of
# LocalStack, so without its dependencies), and a second DynamoDB, if npm is there.
witnesses: $(WITNESS) | packages
	@if command -v npm >/dev/null; then $(MAKE) --no-print-directory $(DYNALITE) || echo "no dynalite: its tests are skipped" >&2; fi

$(WITNESS): $(UV)
	$(UV) venv --quiet --clear --python "$(PYTHON)" $(TOOLS)/witness
	$(UV) pip install --quiet --python $(WITNESS) policy-sentry==0.15.2
	$(UV) pip install --quiet --python $(WITNESS) --no-deps localstack-core==2026.3.0

$(DYNALITE):
	npm install --silent --fetch-retries 1 --fetch-timeout 60000 --no-audit --no-fund --ignore-scripts --prefix $(TOOLS)/dynalite dynalite@4.0.0
