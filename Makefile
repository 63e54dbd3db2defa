# The same words here and in CI. `make help` prints them.
SHELL := /bin/bash
.DEFAULT_GOAL := help
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11 python3.14; do command -v $$p >/dev/null && $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
UV_VERSION := 0.13.8
BIN := .venv/bin
STAMP := .venv/.installed
DEMO := .venv/.demo
WORKERS ?= 2
PYTEST := $(BIN)/python -m pytest
NO_SKIP ?=
# Tests on a control plane wait more than they compute.
CLUSTER_WORKERS ?= 4
FAST := not cluster and not node
# Only files that name the marker: nobody collects the others, and imports torch, in each worker.
CLUSTER := $$(grep -rl --include='test_*.py' 'mark\.cluster' tests | sort) -m "cluster and not long" -n $(CLUSTER_WORKERS) --dist loadfile --no-loadscope-reorder
ALLOW := $(if $(NO_SKIP),--only-skip gpu,)

REGISTRY ?=
PYTHON_IMAGE ?=
PYTORCH_IMAGE ?=
PLATFORMS ?= linux/amd64,linux/arm64
BUILDER ?=
URL ?=
DIGESTS ?=

.PHONY: help setup demo demo-down test test-fast fuzz test-alerts test-cluster test-fleet test-node test-node-faults test-node-leftovers node-readiness security-controls compare-commits node-packages lint generate check-generated lock build-lab browser
.PHONY: screenshots benchmark sizes bench-fleet images images-check release publish sbom audit clean

help: ## Show this list.
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-19s %s\n", $$1, $$2}'

setup: $(STAMP) build-lab ## Install everything: Python packages (.venv) and the cluster's binaries (user cache).

demo: $(DEMO) ## Bring up a cluster with a simulated fleet of 24 nodes, profile it, show the results.
	$(BIN)/precision-lab demo

demo-down: $(DEMO) ## End what `make demo` left running.
	$(BIN)/precision-lab down

test: setup browser lint check-generated ## All tests: fast ones, those on a real control plane, those on real nodes.
	$(PYTEST) -m "$(FAST)" -n $(WORKERS) --dist worksteal -q $(ALLOW)
	@echo "Tests on a control plane and on real nodes run side by side; what each says follows at its end."
	$(MAKE) --no-print-directory --jobs=2 --keep-going --output-sync=target test-node test-cluster

test-fast: $(STAMP) browser ## Tests that need no cluster (some five minutes on 2 cores).
	$(PYTEST) -m "$(FAST)" -n $(WORKERS) --dist worksteal -q $(ALLOW)

fuzz: setup ## Every parser of outside data on 10,000 damaged documents (some 12 minutes on 2 cores), slow properties on more examples, the scheduler's DRA.
	$(PYTEST) tests/fuzz $$(grep -rl --include='*.py' 'support.examples import' tests) --hypothesis-profile=fuzz -n $(WORKERS) -q -m "not cluster"
	$(PYTEST) tests/e2e/test_dra_scheduling.py -q $(ALLOW)

test-alerts: $(STAMP) ## Rules and alerts on two versions of promtool and a Prometheus that runs: a healthy month, every alert, every rule taken back.
	$(PYTEST) tests/monitoring/test_running.py -q $(ALLOW)  # against the clock: alone
	EVERY_PROMTOOL=1 $(PYTEST) tests/monitoring --ignore tests/monitoring/test_running.py -n $(WORKERS) --dist loadfile -q --durations=5 $(ALLOW)

test-cluster: setup browser ## Tests on a real control plane.
	$(PYTEST) $(CLUSTER) -q $(ALLOW)

test-fleet: setup ## 300 nodes on a real control plane, agents simulated: a sweep beside a bare client's, then five minutes of motion.
	$(PYTEST) tests/e2e/test_moving_fleet.py -q $(ALLOW)

test-node: setup node-packages ## Tests of the images on real nodes (root; elsewhere skipped, with the reason).
	$(PYTEST) tests/node -m "node and not long" -q --durations=5 $(ALLOW)

test-node-faults: setup node-packages ## Faults of nodes, GPUs, images, API server and operators on real kubelets; nothing may be left behind (root).
	$(BIN)/python -m precision_lab.nodes.leftovers \
	    $(PYTEST) tests/node/faults tests/node/test_leftovers.py -m node -q --durations=10 $(ALLOW)

security-controls: setup node-packages ## Take each protection of docs/security.md, and some other rules, out of a copy once: their tests must fail then (root).
	$(BIN)/python -m tests.security.controls

test-node-leftovers: setup node-packages ## Show that real nodes leave nothing behind, also after kill -9 (root).
	$(BIN)/python -m precision_lab.nodes.leftovers

node-readiness: setup ## The rule of integrations/node-readiness with Node Readiness Controller itself, built in SOURCE=CHECKOUT.
	cd "$(SOURCE)" && go build -o bin/manager ./cmd
	NODE_READINESS="$(abspath $(SOURCE))" $(PYTEST) tests/e2e/test_node_condition.py -q

compare-commits: $(STAMP) ## Does the core of OLD=COMMIT decide the same as that of NEW=COMMIT, or of this checkout, over random worlds?
	$(BIN)/python -m tests.support.compare_commits --old $(OLD) $(if $(NEW),--new $(NEW))

lint: $(STAMP) ## ruff, mypy, import-linter.
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

generate: $(STAMP) ## Write everything that is generated from code (CRDs, RBAC, chart copies, docs).
	$(BIN)/python -m precision_api.kinds.crdgen
	$(BIN)/python -m precision_operator.generate
	$(BIN)/python -m precision_lab.monitoring.perses.generate
	$(BIN)/python -m tests.support.figures --write

check-generated: $(STAMP) ## Fail if a generated file differs from what the code says.
	$(BIN)/python -m precision_api.kinds.crdgen --check
	$(BIN)/python -m precision_operator.generate --check
	$(BIN)/python -m precision_lab.monitoring.perses.generate --check
	$(BIN)/python -m tests.support.figures --check

lock: .venv/bin/uv ## Pin all dependencies with hashes.
	$(BIN)/uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-header --extra dev --extra build pyproject.toml -o requirements/dev.txt
	$(BIN)/uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-header -c requirements/dev.txt --extra lab --extra build pyproject.toml -o requirements/demo.txt
	$(BIN)/uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-header --extra operator pyproject.toml -o requirements/operator.txt
	$(BIN)/uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-header --extra build pyproject.toml -o requirements/build.txt
	$(BIN)/uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-header -c requirements/dev.txt operator/kubectl-precision/pyproject.toml -o requirements/plugin.txt
	$(BIN)/uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-header -c requirements/dev.txt --extra plan operator/kubectl-precision/pyproject.toml -o requirements/plugin-plan.txt
	$(BIN)/uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-header requirements/tools.in -o requirements/tools.txt
	$(BIN)/uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-header -c requirements/dev.txt requirements/agent.in -o requirements/agent.txt

build-lab: $(STAMP) ## Build (or find) the cluster's binaries from pinned Go modules.
	$(BIN)/precision-lab build

browser: ## Install Chromium, which some tests look at pages with (Debian's package; needs root the first time).
	@command -v chromium >/dev/null || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null \
	  && apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium >/dev/null; } \
	  || { echo "Chromium is needed for tests of pages: install it so that 'chromium' is on the PATH, then try again."; exit 1; }

node-packages: # What real nodes need of Debian, where it is missing and can be installed; the tests say what is missing.
	@$(BIN)/python -m precision_lab.nodes.support --install

screenshots: setup browser ## Draw the dashboards of a simulated fleet of 200 nodes into docs/screenshots.
	$(BIN)/python -m precision_lab.pictures.screenshots docs/screenshots

benchmark: setup ## Run the benchmarks and print their tables.
	$(BIN)/python -m benchmarks.exporter
	$(BIN)/python -m benchmarks.reconcile
	$(BIN)/python -m benchmarks.tenants
	$(BIN)/python -m benchmarks.dashboards
	$(BIN)/python -m benchmarks.plan
	$(BIN)/python -m benchmarks.spread simulate
	$(BIN)/python -m benchmarks.planner

SIZES ?= 1000x1 1000x3
sizes: setup ## Measure what programs, etcd and Prometheus need at SIZES (NODESxPROFILES), and write docs/scale.md (some ten minutes).
	$(BIN)/python -m benchmarks.sizes $(SIZES) --json

NODES ?= 100
bench-fleet: setup ## Sweep fleets of NODES="100 1000 10000" on a real control plane, agents simulated, beside a bare client; into benchmarks/results/fleet.
	$(BIN)/python -m benchmarks.fleet --nodes $(NODES)

images: ## Build and push both images: make images REGISTRY=registry.example.com/team [PLATFORMS=...] [BUILDER=...] [DIGESTS=FILE].
	PYTHONPATH=lab $(PYTHON) -m precision_lab.release.images push --registry "$(REGISTRY)" --platforms "$(PLATFORMS)" \
	  --python-image "$(PYTHON_IMAGE)" --pytorch-image "$(PYTORCH_IMAGE)" $(if $(BUILDER),--builder "$(BUILDER)") \
	  --digests "$(or $(DIGESTS),build/images.txt)"

images-check: $(STAMP) ## Build both images on stand-in bases, start them as the chart does (root, buildah, debootstrap).
	$(BIN)/python -m precision_lab.release.images check

release: $(STAMP) sbom ## Write dist/ from the commit: make release REGISTRY=... URL=... [DIGESTS=file of make images]; without them a draft.
	$(BIN)/python -m precision_lab.release.release --registry "$(REGISTRY)" --url "$(URL)" \
	  $(if $(DIGESTS),--digests "$(DIGESTS)")

publish: $(STAMP) ## Push the chart in dist/ to REGISTRY, and make a draft of the release with the other files (gh).
	"$$($(BIN)/precision-lab build helm-4 | cut -f2)" push dist/precision-profiler-*.tgz "oci://$(REGISTRY)"
	gh release create --draft --verify-tag --notes-file dist/NOTES.md "$$(git describe --tags --exact-match)" dist/*

sbom: .venv/tools/.installed ## List what both images add to their bases, and the plugin's packages (CycloneDX, into sbom/).
	mkdir -p sbom
	@for image in operator agent plugin-plan; do \
	  .venv/tools/bin/cyclonedx-py requirements requirements/$$image.txt --pyproject pyproject.toml --mc-type application \
	    --output-reproducible --of JSON -o sbom/$$image.cdx.json && echo "sbom/$$image.cdx.json: \
	    $$(grep -c '"purl"' sbom/$$image.cdx.json) packages" || exit 1; done

audit: $(STAMP) .venv/tools/.installed ## Known vulnerabilities of locked packages and of our Go; 2: a database did not answer.
	$(BIN)/python -m precision_lab.release.audit .venv/tools/bin

clean: ## Remove the virtual environment and caches of this checkout.
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis

.venv/bin/uv:
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer is needed: install it, or say PYTHON=/path/to/python3"; exit 1; }
	@echo "Setting up. The first time builds the cluster's programs, which takes 17 to 35 minutes on 2 cores; later it takes seconds."
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install -q --disable-pip-version-check uv==$(UV_VERSION)

# What the demo needs, without torch; nothing where everything is installed.
$(DEMO): requirements/demo.txt pyproject.toml | .venv/bin/uv
	@[ -e $(STAMP) ] || { $(BIN)/uv pip install --python $(BIN)/python --require-hashes -r requirements/demo.txt \
	  && $(BIN)/uv pip install -q --python $(BIN)/python --no-deps --no-build-isolation -e .; }
	@touch $@

$(STAMP): requirements/dev.txt pyproject.toml | .venv/bin/uv
	$(BIN)/uv pip install --python $(BIN)/python --require-hashes -r requirements/dev.txt
	$(BIN)/uv pip install -q --python $(BIN)/python --no-deps --no-build-isolation -e .
	@touch $@

# Tools that look at what is locked, apart from it: their own packages are nobody else's.
.venv/tools/.installed: requirements/tools.txt | .venv/bin/uv
	$(BIN)/uv venv -q --clear --python $(BIN)/python .venv/tools
	$(BIN)/uv pip install -q --python .venv/tools/bin/python --require-hashes -r requirements/tools.txt
	@touch $@
